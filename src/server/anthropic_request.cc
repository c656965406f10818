#include "server/anthropic_request.h"

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <utility>

#include "base/macros.h"
#include "server/object_reader.h"

namespace ps::server {

namespace {

using text::ChatMessage;
using text::ContentPart;
using text::Role;
// Every tool of a body, listed in the prompt or not.
class ToolCatalog {
 public:
  Status add(text::ToolDefinition tool) {
    std::string name = tool.name;
    const bool is_new = tools_.try_emplace(std::move(name), Entry{std::move(tool)}).second;
    return is_new ? Status() : Status::invalid("Tool names must be unique");
  }
  [[nodiscard]] bool empty() const { return tools_.empty(); }

  // The tool that a block refers to, as JSON; where it was shown before, its name only. So a prompt has every schema
  // once, however often the body names it, and what joins late leaves the prompt before it as it was.
  Result<std::string> show(const ObjectReader& block, std::string_view key) {
    PS_TRY(const std::string name, block.required_string(key));
    const auto found = tools_.find(name);
    if (found == tools_.end()) return block.error(key, "\"" + name + "\" is not among the tools");
    if (std::exchange(found->second.is_shown, true)) return "This tool is described above: " + name;
    return std::move(JsonWriter().value(found->second.tool.function)).text();
  }

 private:
  struct Entry {
    text::ToolDefinition tool;
    bool is_shown = false;
  };
  std::unordered_map<std::string, Entry> tools_;
};

constexpr size_t kMaxStops = 16;
constexpr std::string_view kUnsupportedDocument = "[Unsupported Document]";
// A line that one client puts before its system prompt; it changes with every request, and no prefix would ever be
// found in the cache.
constexpr std::string_view kBillingLine = "x-anthropic-billing-header:";

ContentPart text_part(std::string text) { return {.kind = ContentPart::Kind::kText, .text = std::move(text)}; }

void append_paragraph(std::string& text, std::string_view more) {
  if (!text.empty() && !more.empty()) text += "\n\n";
  text += more;
}

Result<ContentPart> read_image(const ObjectReader& block) {
  PS_TRY(std::optional<ObjectReader> source, block.inner("source"));
  if (!source.has_value()) return block.error("source", "is required, an object");
  PS_TRY(const std::string type, source->required_choice("type", {"base64", "url"}));
  ContentPart part{.kind = ContentPart::Kind::kImage, .path = block.path()};
  if (type == "url") {
    PS_TRY(part.image_url, source->required_string("url"));
    return part;
  }
  PS_TRY(const std::string media,
         source->required_choice("media_type", {"image/jpeg", "image/png", "image/gif", "image/webp"}));
  PS_TRY(const std::string data, source->required_string("data"));
  part.image_url = "data:" + media + ";base64," + data;
  return part;
}

// A block of a user's content or of a tool result, other than those that only one of them has.
Result<ContentPart> read_user_block(const ObjectReader& block, std::string_view type,
                                    std::initializer_list<std::string_view> legal) {
  if (type == "text") {
    PS_TRY(std::string text, block.required_string("text"));
    return text_part(std::move(text));
  }
  if (type == "image") return read_image(block);
  if (type == "document") return text_part(std::string(kUnsupportedDocument));
  return block.error("type", "\"" + std::string(type) + "\" is not supported here; " + legal_values(legal));
}

// `content` of a tool result: a string, blocks, or nothing.
Status read_result_content(const ObjectReader& block, ToolCatalog& tools, ChatMessage& message) {
  message.has_content = true;
  const JsonValue* content = block.find("content");
  if (content == nullptr) return {};
  if (content->is_string()) {
    message.content.push_back(text_part(content->text()));
    return {};
  }
  if (!content->is_array()) return block.error("content", expected("a string or an array of blocks", *content));
  for (size_t i = 0; i < content->items().size(); ++i) {
    PS_TRY(const ObjectReader inner, ObjectReader::of(content->items()[i], item_path(block.path_of("content"), i)));
    PS_TRY(const std::string type, inner.required_string("type"));
    if (type == "tool_reference") {
      PS_TRY(std::string schema, tools.show(inner, "tool_name"));
      message.content.push_back(text_part(std::move(schema)));
      continue;
    }
    PS_TRY(ContentPart part, read_user_block(inner, type, {"text", "image", "document", "tool_reference"}));
    message.content.push_back(std::move(part));
  }
  return {};
}

// Appends the tool results of one user turn, then a user message with the rest.
Status read_user_turn(const std::vector<JsonValue>& blocks, const std::string& path, ToolCatalog& tools,
                      std::vector<ChatMessage>& messages) {
  if (blocks.empty()) return Status::invalid(path + ": at least one block is required");
  ChatMessage user{.role = Role::kUser, .has_content = true};
  for (size_t i = 0; i < blocks.size(); ++i) {
    PS_TRY(const ObjectReader block, ObjectReader::of(blocks[i], item_path(path, i)));
    PS_TRY(const std::string type, block.required_string("type"));
    if (type != "tool_result") {
      PS_TRY(ContentPart part, read_user_block(block, type, {"text", "image", "document", "tool_result"}));
      user.content.push_back(std::move(part));
      continue;
    }
    ChatMessage result{.role = Role::kTool};
    PS_TRY(result.tool_call_id, block.required_name("tool_use_id"));
    PS_RETURN_IF_ERROR(read_result_content(block, tools, result));
    messages.push_back(std::move(result));
  }
  if (!user.content.empty()) messages.push_back(std::move(user));
  return {};
}

// The same tool as a function of chat completions; JSON keeps its spelling.
Result<text::ToolDefinition> read_tool(const ObjectReader& tool) {
  PS_TRY(std::optional<std::string> type, tool.string("type"));
  if (type.has_value() && *type != "custom") {
    return tool.error("type", "\"" + *type + "\" runs on Anthropic's servers or has no schema of its own; " +
                                  legal_values({"custom"}));
  }
  text::ToolDefinition definition{.path = tool.path(), .schema_key = "input_schema"};
  PS_TRY(definition.name, tool.required_string("name"));
  PS_TRY(std::optional<std::string> description, tool.string("description"));
  const JsonValue* schema = tool.find("input_schema");
  if (schema == nullptr || !schema->is_object()) return tool.error("input_schema", "is required, an object");
  JsonWriter function(JsonWriter::Style::kCompact);
  function.begin_object();
  function.key("name").string(definition.name);
  if (description.has_value()) function.key("description").string(*description);
  function.key("parameters").value(*schema);
  PS_TRY(definition.function, JsonValue::parse(function.end_object().text(), text::kChatBodyLimits));
  return definition;
}

// A change of the tools in the middle of a conversation, as text.
Result<std::string> read_tool_change(const ObjectReader& block, bool is_addition, ToolCatalog& tools) {
  PS_TRY(const std::optional<ObjectReader> tool, block.inner("tool"));
  if (!tool.has_value()) return block.error("tool", "is required, an object");
  PS_TRY(const std::string type, tool->required_choice("type", {"tool_reference", "tool_definition"}));
  if (!is_addition) {
    PS_TRY(const std::string name, tool->required_string("name"));
    return "This tool is no longer available: " + name;
  }
  constexpr std::string_view kAdded = "This tool is available from here on:\n";
  if (type == "tool_reference") {
    PS_TRY(const std::string schema, tools.show(*tool, "name"));
    return std::string(kAdded) + schema;
  }
  if (tools.empty()) return block.error("type", "\"tool_addition\" needs at least one tool in tools");
  PS_TRY(const std::optional<ObjectReader> inner, tool->inner("definition"));
  if (!inner.has_value()) return tool->error("definition", "is required, an object");
  PS_TRY(const text::ToolDefinition definition, read_tool(*inner));
  return std::string(kAdded) + std::move(JsonWriter().value(definition.function)).text();
}

Status read_system_turn(const std::vector<JsonValue>& blocks, const std::string& path, ToolCatalog& tools,
                        ChatMessage& message) {
  if (blocks.empty()) return Status::invalid(path + ": at least one block is required");
  for (size_t i = 0; i < blocks.size(); ++i) {
    PS_TRY(const ObjectReader block, ObjectReader::of(blocks[i], item_path(path, i)));
    PS_TRY(const std::string type, block.required_choice("type", {"text", "tool_addition", "tool_removal"}));
    PS_TRY(std::string text,
           type == "text" ? block.required_string("text") : read_tool_change(block, type == "tool_addition", tools));
    message.content.push_back(text_part(std::move(text)));
  }
  return {};
}

Result<text::ToolCall> read_tool_use(const ObjectReader& block) {
  text::ToolCall call;
  PS_TRY(call.id, block.required_name("id"));
  PS_TRY(call.name, block.required_string("name"));
  const JsonValue* input = block.find("input");
  if (input != nullptr && !input->is_object()) return block.error("input", expected("an object", *input));
  call.arguments = input == nullptr ? "{}" : JsonWriter(JsonWriter::Style::kCompact).value(*input).text();
  return call;
}

Status read_assistant_turn(const std::vector<JsonValue>& blocks, const std::string& path, ChatMessage& message) {
  for (size_t i = 0; i < blocks.size(); ++i) {
    PS_TRY(const ObjectReader block, ObjectReader::of(blocks[i], item_path(path, i)));
    PS_TRY(const std::string type, block.required_string("type"));
    if (type == "text") {
      PS_TRY(std::string text, block.required_string("text"));
      message.content.push_back(text_part(std::move(text)));
    } else if (type == "thinking") {
      PS_TRY(const std::string thinking, block.required_string("thinking"));
      append_paragraph(message.reasoning, thinking);
    } else if (type == "tool_use") {
      PS_TRY(text::ToolCall call, read_tool_use(block));
      message.tool_calls.push_back(std::move(call));
      message.has_tool_calls = true;
    } else if (type != "redacted_thinking") {  // another service's secret: nothing to show to this model
      return block.error("type", "\"" + type + "\" is not supported in an assistant turn; " +
                                     legal_values({"text", "thinking", "redacted_thinking", "tool_use"}));
    }
  }
  return {};
}

// Adds what one message says. Neighbouring messages of the assistant become one.
Status read_turn(const ObjectReader& fields, Role role, ToolCatalog& tools, std::vector<ChatMessage>& messages) {
  const JsonValue* content = fields.find("content");
  if (content == nullptr) return fields.error("content", "is required, a string or an array of blocks");
  const bool is_string = content->is_string();
  if (!is_string && !content->is_array()) {
    return fields.error("content", expected("a string or an array of blocks", *content));
  }
  const std::string path = fields.path_of("content");
  if (role == Role::kAssistant) {
    const bool is_joined = !messages.empty() && messages.back().role == Role::kAssistant;
    if (!is_joined) messages.push_back({.role = Role::kAssistant, .has_content = true});
    ChatMessage& message = messages.back();
    if (!is_string) return read_assistant_turn(content->items(), path, message);
    message.content.push_back(text_part(content->text()));
    return {};
  }
  if (role == Role::kUser && !is_string) return read_user_turn(content->items(), path, tools, messages);
  ChatMessage message{.role = role, .has_content = true};
  if (is_string) {
    message.content.push_back(text_part(content->text()));
  } else {
    PS_RETURN_IF_ERROR(read_system_turn(content->items(), path, tools, message));
  }
  messages.push_back(std::move(message));
  return {};
}

Status read_messages(const ObjectReader& body, ToolCatalog& tools, std::vector<ChatMessage>& messages) {
  PS_TRY(const std::span<const JsonValue> items, body.items("messages"));
  if (!body.has("messages")) return body.error("messages", "is required, an array");
  if (items.empty()) return body.error("messages", "at least one message is required");
  for (size_t i = 0; i < items.size(); ++i) {
    PS_TRY(const ObjectReader fields, ObjectReader::of(items[i], item_path("messages", i)));
    PS_TRY(const std::string name, fields.required_choice("role", {"user", "assistant", "system"}));
    const Role role = name == "user" ? Role::kUser : name == "assistant" ? Role::kAssistant : Role::kSystem;
    PS_RETURN_IF_ERROR(read_turn(fields, role, tools, messages));
  }
  return {};
}

void add_system_text(std::string text, ChatMessage& system) {
  if (text.starts_with(kBillingLine)) text.erase(0, std::min(text.find('\n'), text.size() - 1) + 1);
  if (!text.empty()) system.content.push_back(text_part(std::move(text)));
}

Status read_system(const ObjectReader& body, std::vector<ChatMessage>& messages) {
  const JsonValue* value = body.find("system");
  if (value == nullptr) return {};
  ChatMessage system{.role = Role::kSystem, .has_content = true};
  if (value->is_string()) {
    add_system_text(value->text(), system);
  } else if (value->is_array()) {
    for (size_t i = 0; i < value->items().size(); ++i) {
      PS_TRY(const ObjectReader block, ObjectReader::of(value->items()[i], item_path("system", i)));
      PS_RETURN_IF_ERROR(block.choice("type", {"text"}).status());
      PS_TRY(std::string text, block.required_string("text"));
      add_system_text(std::move(text), system);
    }
  } else {
    return body.error("system", expected("a string or an array of text blocks", *value));
  }
  if (!system.content.empty()) messages.push_back(std::move(system));
  return {};
}

// All tools, and those that the prompt lists: a tool that the client defers is shown where a tool_reference names it.
Status read_tools(const ObjectReader& body, ToolCatalog& all, std::vector<text::ToolDefinition>& listed) {
  PS_TRY(const std::span<const JsonValue> items, body.items("tools"));
  for (size_t i = 0; i < items.size(); ++i) {
    PS_TRY(const ObjectReader tool, ObjectReader::of(items[i], item_path("tools", i)));
    PS_TRY(text::ToolDefinition definition, read_tool(tool));
    PS_TRY(const std::optional<bool> is_deferred, tool.boolean("defer_loading"));
    if (!is_deferred.value_or(false)) listed.push_back(definition);
    PS_RETURN_IF_ERROR(all.add(std::move(definition)));
  }
  if (listed.empty() && !all.empty()) return body.error("tools", "at least one must not have defer_loading");
  return {};
}

Status read_tool_choice(const ObjectReader& body, AnthropicRequest& request) {
  using Kind = text::ToolChoice::Kind;
  PS_TRY(std::optional<ObjectReader> choice, body.inner("tool_choice"));
  if (!choice.has_value()) return {};
  PS_TRY(const std::string type, choice->required_choice("type", {"auto", "any", "tool", "none"}));
  text::ToolChoice& result = request.chat.tool_choice;
  const bool is_forced = type == "any" || type == "tool";
  if (is_forced && request.chat.tools.empty()) {
    return choice->error("type", "\"" + type + "\" needs at least one tool in tools");
  }
  if (type == "any") result.kind = Kind::kRequired;
  if (type == "none") result.kind = Kind::kNone;
  if (type == "tool") {
    result.kind = Kind::kNamed;
    PS_TRY(result.name, choice->required_string("name"));
  }
  PS_TRY(const std::optional<bool> is_single, choice->boolean("disable_parallel_tool_use"));
  request.allows_parallel_calls = !is_single.value_or(false);
  return {};
}

// How the client asked for thoughts; nothing: not at all.
Result<std::optional<bool>> read_thinking(const ObjectReader& body, text::ReasoningEffort& effort) {
  std::optional<bool> is_thinking;
  PS_TRY(std::optional<ObjectReader> thinking, body.inner("thinking"));
  if (thinking.has_value()) {
    PS_TRY(std::string type, thinking->required_choice("type", {"enabled", "adaptive", "disabled"}));
    is_thinking = std::string_view(type) != "disabled";
    // Checked, not enforced: the effort is what the model knows.
    PS_RETURN_IF_ERROR(thinking->integer("budget_tokens", 1, std::numeric_limits<int64_t>::max()).status());
  }
  PS_TRY(std::optional<ObjectReader> output, body.inner("output_config"));
  if (output.has_value()) {
    if (output->has("format")) return output->error("format", "structured output is not supported");
    if (const JsonValue* value = output->find("effort"); value != nullptr) {
      PS_TRY(std::optional<text::ReasoningEffort> wanted,
             text::read_reasoning_effort(*value, output->path_of("effort")));
      if (wanted.has_value()) effort = *wanted;
      if (!wanted.has_value() && !is_thinking.has_value()) is_thinking = false;
    }
  }
  return is_thinking;
}

// Settles thinking, forced tools and the continuation of an assistant's text against each other.
Status settle(const ObjectReader& body, const std::optional<bool>& wanted, const text::ChatDefaults& defaults,
              text::ChatRequest& chat) {
  const bool is_forced = chat.tool_choice.kind == text::ToolChoice::Kind::kRequired ||
                         chat.tool_choice.kind == text::ToolChoice::Kind::kNamed;
  const ChatMessage& last = chat.messages.back();
  const bool is_continued = last.role == Role::kAssistant && !last.has_tool_calls;
  if (wanted.value_or(false) && is_forced) {
    return body.error("tool_choice", "thinking does not go with a forced tool; " + legal_values({"auto", "none"}));
  }
  if (wanted.value_or(false) && is_continued) {
    return body.error("messages", "thinking does not go with a last message of the assistant");
  }
  if (is_forced && is_continued) {
    return body.error("tool_choice", "a forced tool does not go with a last message of the assistant");
  }
  chat.is_thinking = wanted.value_or(defaults.is_thinking && !is_forced && !is_continued);
  if (is_continued) chat.ending = text::PromptEnding::kContinue;
  return {};
}

Status read_sampling(const ObjectReader& body, AnthropicRequest& request) {
  text::SamplingFields& sampling = request.sampling;
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  PS_TRY(sampling.max_tokens, body.integer("max_tokens", 1, kMost));
  if (!sampling.max_tokens.has_value()) return body.error("max_tokens", "is required, an integer of at least 1");
  PS_TRY(sampling.temperature, body.number("temperature", {.low = 0, .high = 2}));
  PS_TRY(sampling.top_p, body.number("top_p", {.low = 0, .high = 1, .excludes_low = true}));
  PS_TRY(sampling.top_k, body.integer("top_k", 0, std::numeric_limits<int32_t>::max()));
  PS_TRY(sampling.seed, body.integer("seed", 0, kMost));
  PS_TRY(sampling.stops, body.strings("stop_sequences", kMaxStops));
  PS_TRY(const std::optional<bool> is_stream, body.boolean("stream"));
  request.is_stream = is_stream.value_or(false);
  return {};
}

}  // namespace

Result<AnthropicRequest> read_anthropic_request(const JsonValue& body, AnthropicTask task,
                                                const text::ChatDefaults& defaults) {
  AnthropicRequest request;
  request.chat.dialect = text::Dialect::kMessages;
  PS_TRY(const ObjectReader fields, ObjectReader::of(body));
  PS_TRY(request.model, fields.required_string("model"));
  if (task == AnthropicTask::kMessage) PS_RETURN_IF_ERROR(read_sampling(fields, request));
  for (const std::string_view key : {"mcp_servers", "output_format"}) {
    const JsonValue* value = fields.find(key);
    if (value != nullptr && !(value->is_array() && value->items().empty()))
      return fields.error(key, "is not supported");
  }
  PS_RETURN_IF_ERROR(read_system(fields, request.chat.messages));
  ToolCatalog tools;
  PS_RETURN_IF_ERROR(read_tools(fields, tools, request.chat.tools));
  PS_RETURN_IF_ERROR(read_messages(fields, tools, request.chat.messages));
  PS_RETURN_IF_ERROR(read_tool_choice(fields, request));
  PS_TRY(const std::optional<bool> is_thinking, read_thinking(fields, request.chat.effort));
  PS_RETURN_IF_ERROR(settle(fields, is_thinking, defaults, request.chat));
  return request;
}

}  // namespace ps::server
