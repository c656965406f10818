#include "server/responses_request.h"

#include <limits>
#include <optional>
#include <utility>

#include "base/macros.h"
#include "server/object_reader.h"

namespace ps::server {

namespace {

using text::ChatMessage;
using text::ContentPart;
using text::Role;

std::string compact(const JsonValue& value) {
  return std::move(JsonWriter(JsonWriter::Style::kCompact).value(value)).text();
}

ContentPart text_part(std::string text) { return {.kind = ContentPart::Kind::kText, .text = std::move(text)}; }

Result<ContentPart> read_part(const ObjectReader& part) {
  PS_TRY(const std::string type,
         part.required_choice("type", {"input_text", "output_text", "text", "refusal", "input_image"}));
  if (type == "input_image") {
    ContentPart image{.kind = ContentPart::Kind::kImage, .path = part.path()};
    PS_TRY(image.image_url, part.required_string("image_url"));
    return image;
  }
  PS_TRY(std::string text, part.required_string(type == "refusal" ? "refusal" : "text"));
  return text_part(std::move(text));
}

// A string or an array of parts under `key`.
Status read_content(const ObjectReader& item, std::string_view key, std::vector<ContentPart>& content) {
  const JsonValue* value = item.find(key);
  if (value == nullptr) return item.error(key, "is required, a string or an array of parts");
  if (value->is_string()) {
    content.push_back(text_part(value->text()));
    return {};
  }
  if (!value->is_array()) return item.error(key, expected("a string or an array of parts", *value));
  for (size_t i = 0; i < value->items().size(); ++i) {
    PS_TRY(const ObjectReader part, ObjectReader::of(value->items()[i], item_path(item.path_of(key), i)));
    PS_TRY(ContentPart read, read_part(part));
    content.push_back(std::move(read));
  }
  return {};
}

ChatMessage& assistant_turn(std::vector<ChatMessage>& messages) {
  if (messages.empty() || messages.back().role != Role::kAssistant) messages.push_back({.role = Role::kAssistant});
  return messages.back();
}

Status read_message(const ObjectReader& item, std::vector<ChatMessage>& messages) {
  PS_TRY(const std::string name, item.required_choice("role", {"user", "assistant", "system", "developer"}));
  const std::string_view role = name;
  if (role == "assistant") {
    ChatMessage& turn = assistant_turn(messages);
    turn.has_content = true;
    return read_content(item, "content", turn.content);
  }
  ChatMessage message{.role = role == "user" ? Role::kUser : Role::kSystem, .has_content = true};
  PS_RETURN_IF_ERROR(read_content(item, "content", message.content));
  messages.push_back(std::move(message));
  return {};
}

Status read_reasoning_item(const ObjectReader& item, std::vector<ChatMessage>& messages) {
  std::string thought;
  PS_TRY(const std::span<const JsonValue> parts, item.items("content"));
  for (size_t i = 0; i < parts.size(); ++i) {
    PS_TRY(const ObjectReader part, ObjectReader::of(parts[i], item_path(item.path_of("content"), i)));
    PS_TRY(const std::string text, part.required_string("text"));
    if (!thought.empty()) thought += "\n\n";
    thought += text;
  }
  PS_TRY(const std::optional<std::string> sealed, item.string("encrypted_content"));
  if (thought.empty() && sealed.has_value() && sealed->starts_with(kReasoningPrefix)) {
    thought = sealed->substr(kReasoningPrefix.size());
  }
  ChatMessage& turn = assistant_turn(messages);
  if (!turn.reasoning.empty() && !thought.empty()) turn.reasoning += "\n\n";
  turn.reasoning += thought;
  return {};
}

Status read_call_item(const ObjectReader& item, bool is_custom, std::vector<ChatMessage>& messages) {
  text::ToolCall call;
  PS_TRY(call.id, item.required_name("call_id"));
  PS_TRY(const std::string name, item.required_string("name"));
  PS_TRY(const std::optional<std::string> space, item.string("namespace"));
  call.name = model_tool_name(space.value_or(""), name);
  const std::string_view key = is_custom ? "input" : "arguments";
  PS_TRY(call.arguments, item.required_string(key));
  if (is_custom) call.arguments = custom_arguments(call.arguments);
  call.path = item.path_of(key);
  ChatMessage& turn = assistant_turn(messages);
  turn.tool_calls.push_back(std::move(call));
  turn.has_tool_calls = true;
  return {};
}

Status read_item(const ObjectReader& item, std::vector<ChatMessage>& messages) {
  PS_TRY(std::optional<std::string> type,
         item.choice("type", {"message", "reasoning", "function_call", "function_call_output", "custom_tool_call",
                              "custom_tool_call_output"}));
  if (!type.has_value() || *type == "message") return read_message(item, messages);
  if (*type == "reasoning") return read_reasoning_item(item, messages);
  if (*type == "function_call") return read_call_item(item, false, messages);
  if (*type == "custom_tool_call") return read_call_item(item, true, messages);
  ChatMessage result{.role = Role::kTool, .has_content = true};
  PS_TRY(result.tool_call_id, item.required_name("call_id"));
  PS_RETURN_IF_ERROR(read_content(item, "output", result.content));
  messages.push_back(std::move(result));
  return {};
}

Status read_input(const ObjectReader& body, std::vector<ChatMessage>& messages) {
  const JsonValue* input = body.find("input");
  if (input == nullptr) return body.error("input", "is required, a string or an array of items");
  if (input->is_string()) {
    messages.push_back({.role = Role::kUser, .has_content = true, .content = {text_part(input->text())}});
    return {};
  }
  if (!input->is_array()) return body.error("input", expected("a string or an array of items", *input));
  for (size_t i = 0; i < input->items().size(); ++i) {
    PS_TRY(const ObjectReader item, ObjectReader::of(input->items()[i], item_path("input", i)));
    PS_RETURN_IF_ERROR(read_item(item, messages));
  }
  for (ChatMessage& message : messages) {
    // A thought alone is a turn without text.
    if (message.role == Role::kAssistant && !message.has_tool_calls) message.has_content = true;
  }
  return {};
}

Status read_instructions(const ObjectReader& body, ResponsesRequest& request) {
  PS_TRY(const std::optional<std::string> instructions, body.string("instructions"));
  if (!instructions.has_value()) return {};
  request.chat.messages.push_back({.role = Role::kSystem, .has_content = true, .content = {text_part(*instructions)}});
  request.echo.instructions = compact(*body.find("instructions"));
  return {};
}

Status read_tool_choice(const ObjectReader& body, ResponsesRequest& request) {
  using Kind = text::ToolChoice::Kind;
  const JsonValue* value = body.find("tool_choice");
  if (value == nullptr) return {};
  text::ToolChoice& choice = request.chat.tool_choice;
  request.echo.tool_choice = compact(*value);
  if (value->is_string()) {
    PS_TRY(const std::string name, body.required_choice("tool_choice", {"auto", "none", "required"}));
    choice.kind = name == "none" ? Kind::kNone : name == "required" ? Kind::kRequired : Kind::kAuto;
  } else {
    PS_TRY(const ObjectReader fields, ObjectReader::of(*value, "tool_choice"));
    PS_RETURN_IF_ERROR(fields.required_choice("type", {"function", "custom"}).status());
    choice.kind = Kind::kNamed;
    PS_TRY(const std::string name, fields.required_string("name"));
    PS_TRY(const std::optional<std::string> space, fields.string("namespace"));
    choice.name = model_tool_name(space.value_or(""), name);
  }
  const bool is_forced = choice.kind == Kind::kRequired || choice.kind == Kind::kNamed;
  if (is_forced && request.chat.tools.empty()) {
    const std::string_view name = choice.kind == Kind::kRequired ? "\"required\"" : "a named tool";
    return body.error("tool_choice",
                      std::string(name) + " needs at least one tool of type function or custom in tools");
  }
  return {};
}

Status read_reasoning(const ObjectReader& body, const text::ChatDefaults& defaults, ResponsesRequest& request) {
  std::optional<bool> wanted;
  PS_TRY(const std::optional<ObjectReader> reasoning, body.inner("reasoning"));
  if (reasoning.has_value()) {
    PS_TRY(const std::optional<std::string> summary, reasoning->string("summary"));
    if (const JsonValue* value = reasoning->find("effort"); value != nullptr) {
      PS_TRY(const std::optional<text::ReasoningEffort> effort,
             text::read_reasoning_effort(*value, "reasoning.effort"));
      wanted = effort.has_value();
      if (effort.has_value()) request.chat.effort = *effort;
      request.echo.reasoning = R"({"effort":)" + compact(*value) + R"(,"summary":null})";
    }
  }
  const text::ToolChoice::Kind kind = request.chat.tool_choice.kind;
  const bool is_forced = kind == text::ToolChoice::Kind::kRequired || kind == text::ToolChoice::Kind::kNamed;
  if (is_forced && wanted.value_or(false)) {
    return body.error("tool_choice", "reasoning does not go with a forced tool; " + legal_values({"auto", "none"}) +
                                         ", or reasoning.effort \"none\"");
  }
  request.chat.is_thinking = wanted.value_or(defaults.is_thinking && !is_forced);
  return {};
}

Status read_text_format(const ObjectReader& body, ResponsesRequest& request) {
  PS_TRY(const std::optional<ObjectReader> text, body.inner("text"));
  if (!text.has_value()) return {};
  PS_TRY(const std::optional<ObjectReader> format, text->inner("format"));
  if (!format.has_value()) return {};
  PS_TRY(const std::string type, format->required_choice("type", {"text", "json_object"}));
  request.chat.response_format.type = type;
  if (type == "json_object") request.chat.response_format.kind = text::ResponseFormat::Kind::kJsonObject;
  request.echo.text = R"({"format":{"type":")" + type + R"("}})";
  return {};
}

Status read_sampling(const ObjectReader& body, ResponsesRequest& request) {
  text::SamplingFields& sampling = request.sampling;
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  PS_TRY(sampling.max_tokens, body.integer("max_output_tokens", 1, kMost));
  sampling.max_tokens_name = "max_output_tokens";
  PS_TRY(sampling.temperature, body.number("temperature", {.low = 0, .high = 2}));
  PS_TRY(sampling.top_p, body.number("top_p", {.low = 0, .high = 1, .excludes_low = true}));
  PS_TRY(sampling.top_k, body.integer("top_k", 0, std::numeric_limits<int32_t>::max()));
  PS_TRY(sampling.seed, body.integer("seed", 0, kMost));
  PS_RETURN_IF_ERROR(body.integer("top_logprobs", 0, 0).status());
  PS_TRY(const std::optional<bool> is_stream, body.boolean("stream"));
  PS_TRY(const std::optional<bool> is_parallel, body.boolean("parallel_tool_calls"));
  request.is_stream = is_stream.value_or(false);
  request.echo.parallel_tool_calls = is_parallel.value_or(true);
  for (auto [key, echo] : {std::pair{"max_output_tokens", &request.echo.max_output_tokens},
                           {"temperature", &request.echo.temperature},
                           {"top_p", &request.echo.top_p},
                           {"metadata", &request.echo.metadata},
                           {"user", &request.echo.user}}) {
    if (body.has(key)) *echo = compact(*body.find(key));
  }
  return {};
}

// What would need a store, a background queue or a cut of the input.
Status refuse_unsupported(const ObjectReader& body) {
  for (const std::string_view key : {"previous_response_id", "conversation", "prompt"}) {
    if (body.has(key)) return body.error(key, "is not supported: nothing is stored; send the whole input");
  }
  PS_TRY(const std::optional<bool> is_background, body.boolean("background"));
  if (is_background.value_or(false)) return body.error("background", "is not supported; the legal value is false");
  PS_RETURN_IF_ERROR(body.boolean("store").status());
  return body.choice("truncation", {"disabled"}).status();
}

Status read_include(const ObjectReader& body, ResponsesRequest& request) {
  constexpr size_t kMost = 64;
  PS_TRY(const std::vector<std::string> include, body.strings("include", kMost));
  for (const std::string& name : include) {
    if (name == "message.output_text.logprobs") {
      return body.error("include", "\"" + name + "\" is not supported; use /v1/chat/completions with logprobs");
    }
    request.includes_encrypted_reasoning |= name == "reasoning.encrypted_content";
  }
  return {};
}

}  // namespace

Result<ResponsesRequest> read_responses_request(const JsonValue& body, const text::ChatDefaults& defaults) {
  ResponsesRequest request;
  request.chat.dialect = text::Dialect::kResponses;
  PS_TRY(const ObjectReader fields, ObjectReader::of(body));
  PS_TRY(request.model, fields.required_string("model"));
  PS_RETURN_IF_ERROR(refuse_unsupported(fields));
  PS_RETURN_IF_ERROR(read_sampling(fields, request));
  PS_RETURN_IF_ERROR(read_include(fields, request));
  PS_RETURN_IF_ERROR(read_instructions(fields, request));
  PS_RETURN_IF_ERROR(read_input(fields, request.chat.messages));
  if (request.chat.messages.empty()) return fields.error("input", "at least one item is required");
  PS_TRY(request.tools, read_responses_tools(fields));
  request.chat.tools = request.tools.shown;
  PS_RETURN_IF_ERROR(read_tool_choice(fields, request));
  PS_RETURN_IF_ERROR(read_reasoning(fields, defaults, request));
  PS_RETURN_IF_ERROR(read_text_format(fields, request));
  return request;
}

}  // namespace ps::server
