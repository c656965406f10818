#include "text/chat_checks.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/json.h"
#include "base/macros.h"
#include "text/markup.h"

namespace ps::text {
namespace {

constexpr size_t kMaxToolName = 128;
constexpr std::string_view kUnanswered =
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. ";

std::string message_path(size_t index) { return "messages[" + std::to_string(index) + "]"; }

// A placeholder in text would count as an image: it is refused under both of its spellings.
Status check_no_placeholder(std::string_view text) {
  for (const std::string_view literal : {markup::kRecipeImage, markup::kModelImage}) {
    if (text.find(literal) == std::string_view::npos) continue;
    return Status::invalid(std::string("The sub-string \"")
                               .append(literal)
                               .append("\" in your input is not allowed for this API. Please remove \"")
                               .append(literal)
                               .append("\" from your input and try again."));
  }
  return {};
}

bool is_tool_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxToolName && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

Status check_tool_names(const std::vector<ToolDefinition>& tools) {
  std::unordered_set<std::string_view> seen;
  for (size_t i = 0; i < tools.size(); ++i) {
    if (!is_tool_name(tools[i].name)) {
      return Status::invalid(tools[i].path + ".name: legal are 1 to 128 characters of a-z, A-Z, 0-9, _ and -");
    }
  }
  for (const ToolDefinition& tool : tools) {
    if (!seen.insert(tool.name).second) return Status::invalid("Tool names must be unique");
  }
  return {};
}

Status check_tool_schema(const ToolDefinition& tool) {
  const std::string path = tool.path + ".";
  const JsonValue* description = tool.function.find("description");
  if (description != nullptr && !description->is_null() && !description->is_string()) {
    return Status::invalid(path + "description: expected a string, found " + std::string(description->kind_name()));
  }
  const JsonValue* parameters = tool.function.find("parameters");
  if (parameters == nullptr || parameters->is_null()) return {};
  const JsonValue* type = parameters->find("type");
  if (!parameters->is_object() || type == nullptr || !type->is_string() || type->text() != "object") {
    return Status::invalid(path + std::string(tool.schema_key) + ": expected a JSON schema with \"type\": \"object\"");
  }
  return {};
}

bool can_have_images(Role role) { return role == Role::kUser || role == Role::kTool; }

Status check_content(const ChatMessage& message, size_t index, ChatEncoding encoding) {
  for (size_t i = 0; i < message.content.size(); ++i) {
    const ContentPart& part = message.content[i];
    if (part.kind == ContentPart::Kind::kImage && !can_have_images(message.role)) {
      return Status::invalid("Image in " + std::string(role_name(message.role)) + " message is unsupported");
    }
    if (part.kind == ContentPart::Kind::kUnsupported && encoding == ChatEncoding::kRecipe) {
      return Status::invalid(message_path(index) + ".content[" + std::to_string(i) + "].type: unknown type '" +
                             part.text + "'; legal: text, image_url, image, file");
    }
    if (part.kind == ContentPart::Kind::kText) PS_RETURN_IF_ERROR(check_no_placeholder(part.text));
  }
  return check_no_placeholder(message.reasoning);
}

// What only the model encoder can express.
Status check_recipe_fields(const ChatRequest& request, size_t index) {
  const ChatMessage& message = request.messages[index];
  const auto refuse = [index](std::string_view field) {
    return Status::invalid(message_path(index).append(".").append(field).append(
        ": not known to this chat encoding; the model repository's encoding has it"));
  };
  if (message.role == Role::kDeveloper) {
    return Status::invalid(message_path(index) +
                           ".role: unknown variant `developer`, expected one of `system`, `user`, `assistant`, `tool`, "
                           "`latest_reminder`");
  }
  if (message.task != Task::kNone) return refuse("task");
  if (!message.tools.empty()) return refuse("tools");
  if (message.response_format) return refuse("response_format");
  if (message.without_eos && index + 1 != request.messages.size()) {
    return Status::invalid(message_path(index) + ".prefix: only the last message can be unfinished");
  }
  return {};
}

// How a surface names calls, their results, and the ids that join them.
class CallErrors {
 public:
  explicit CallErrors(Dialect dialect)
      : is_own_(dialect == Dialect::kChatCompletions),
        call_(dialect == Dialect::kMessages ? "tool_use" : "function_call"),
        call_id_(dialect == Dialect::kMessages ? "id" : "call_id"),
        result_(dialect == Dialect::kMessages ? "tool_result" : "function_call_output"),
        result_id_(dialect == Dialect::kMessages ? "tool_use_id" : "call_id") {}

  [[nodiscard]] Status duplicate_call(const std::string& id, size_t index) const {
    return is_own_ ? duplicate(id, index) : refuse(call_, "two have the ", call_id_, id, "");
  }
  [[nodiscard]] Status duplicate_result(const std::string& id, size_t index) const {
    return is_own_ ? duplicate(id, index) : refuse(result_, "two have the ", result_id_, id, "");
  }
  [[nodiscard]] Status unexpected_result(const std::string& id) const {
    if (is_own_) return Status::invalid(std::string(kUnanswered) + "Unexpected tool_call_id: " + id);
    return refuse(result_, "the ", result_id_, id,
                  std::string(" belongs to no ").append(call_) + " of the turn before");
  }
  [[nodiscard]] Status lone_result(const std::string& id) const {
    if (!is_own_) return unexpected_result(id);
    return Status::invalid("Messages with role 'tool' must be a response to a preceding message with 'tool_calls'");
  }
  [[nodiscard]] Status missing_result(const std::string& id) const {
    if (!is_own_)
      return refuse(call_, "the ", call_id_, id, std::string(" has no ").append(result_) + " right after it");
    return Status::invalid(std::string(kUnanswered) + "(insufficient tool messages following tool_calls message)");
  }

 private:
  static Status duplicate(const std::string& id, size_t index) {
    return Status::invalid("Duplicate value for 'tool_call_id' of " + id + " in message[" + std::to_string(index) +
                           "]");
  }
  static Status refuse(std::string_view thing, std::string_view before, std::string_view field, const std::string& id,
                       std::string_view after) {
    return Status::invalid(std::string(thing).append(": ").append(before).append(field).append(" \"") + id +
                           std::string("\"").append(after));
  }

  bool is_own_;
  std::string_view call_;
  std::string_view call_id_;
  std::string_view result_;
  std::string_view result_id_;
};

Status check_call_ids(const ChatMessage& message, size_t index, const CallErrors& errors,
                      std::unordered_set<std::string_view>& ids) {
  for (size_t i = 0; i < message.tool_calls.size(); ++i) {
    const std::string& id = message.tool_calls[i].id;
    if (id.empty()) {
      return Status::invalid(message_path(index) + ".tool_calls[" + std::to_string(i) + "].id: missing field");
    }
    if (!ids.insert(id).second) return errors.duplicate_call(id, index);
  }
  return {};
}

// The assistant message at `index` and the results after it, which end before the index that is returned.
Result<size_t> check_calls(const std::vector<ChatMessage>& messages, size_t index, const CallErrors& errors) {
  const ChatMessage& message = messages[index];
  if (!message.has_content && !message.has_tool_calls) {
    return Status::invalid("Invalid assistant message: content or tool_calls must be set");
  }
  if (!message.has_tool_calls) return index + 1;
  if (message.tool_calls.empty()) {
    return Status::invalid("Invalid '" + message_path(index) +
                           ".tool_calls': empty array. Expected an array with minimum length 1, but got an empty array "
                           "instead.");
  }
  std::unordered_set<std::string_view> ids;
  PS_RETURN_IF_ERROR(check_call_ids(message, index, errors, ids));
  std::unordered_set<std::string_view> answered;
  size_t next = index + 1;
  for (; next < messages.size() && messages[next].role == Role::kTool; ++next) {
    const std::string& id = messages[next].tool_call_id;
    if (id.empty()) return Status::invalid(message_path(next) + ".tool_call_id: missing field");
    if (!ids.contains(id)) return errors.unexpected_result(id);
    if (!answered.insert(id).second) return errors.duplicate_result(id, next);
  }
  for (const ToolCall& call : message.tool_calls) {
    if (!answered.contains(call.id)) return errors.missing_result(call.id);
  }
  return next;
}

Status check_recipe_messages(const ChatRequest& request) {
  const CallErrors errors(request.dialect);
  size_t results_end = 0;  // tool messages before it answer a call
  for (size_t i = 0; i < request.messages.size(); ++i) {
    const ChatMessage& message = request.messages[i];
    if (message.role == Role::kTool && i >= results_end) {
      return errors.lone_result(message.tool_call_id);
    }
    PS_RETURN_IF_ERROR(check_recipe_fields(request, i));
    PS_RETURN_IF_ERROR(check_content(message, i, ChatEncoding::kRecipe));
    if (message.role == Role::kAssistant) {
      PS_TRY(results_end, check_calls(request.messages, i, errors));
    }
  }
  return {};
}

Status check_model_messages(const ChatRequest& request) {
  for (size_t i = 0; i < request.messages.size(); ++i) {
    const ChatMessage& message = request.messages[i];
    PS_RETURN_IF_ERROR(check_content(message, i, ChatEncoding::kModel));
    const bool is_empty = std::all_of(message.content.begin(), message.content.end(), [](const ContentPart& part) {
      return part.kind == ContentPart::Kind::kText && part.text.empty();
    });
    if (message.role == Role::kDeveloper && is_empty) {
      return Status::invalid(message_path(i) + ".content: a developer message must not be empty");
    }
  }
  return {};
}

bool mentions_json(const ChatRequest& request) {
  constexpr std::string_view kWord = "json";
  const auto is_same_letter = [](char a, char b) { return (a | 0x20) == b; };
  for (const ChatMessage& message : request.messages) {
    for (const ContentPart& part : message.content) {
      if (part.kind != ContentPart::Kind::kText) continue;
      const auto found = std::search(part.text.begin(), part.text.end(), kWord.begin(), kWord.end(), is_same_letter);
      if (found != part.text.end()) return true;
    }
  }
  return false;
}

}  // namespace

std::string_view effort_field(Dialect dialect) noexcept {
  switch (dialect) {
    case Dialect::kChatCompletions: break;
    case Dialect::kMessages: return "output_config.effort";
    case Dialect::kResponses: return "reasoning.effort";
  }
  return "reasoning_effort";
}

std::string tool_schema(const ToolDefinition& tool, ChatEncoding encoding) {
  JsonWriter json;
  if (encoding == ChatEncoding::kModel) return std::move(json.value(tool.function)).text();
  const JsonValue* description = tool.function.find("description");
  const JsonValue* parameters = tool.function.find("parameters");
  json.begin_object().key("name").string(tool.name);
  json.key("description").string(description == nullptr || !description->is_string() ? "" : description->text());
  json.key("parameters");
  if (parameters == nullptr || parameters->is_null()) {
    json.begin_object().end_object();
  } else {
    json.value(*parameters);
  }
  return std::move(json.end_object()).text();
}

Result<ShownTools> check_tools(const ChatRequest& request, ChatEncoding encoding) {
  PS_RETURN_IF_ERROR(check_tool_names(request.tools));
  ShownTools shown;
  if (encoding == ChatEncoding::kRecipe) {
    for (const ToolDefinition& tool : request.tools) PS_RETURN_IF_ERROR(check_tool_schema(tool));
  }
  const ToolChoice& choice = request.tool_choice;
  if (choice.kind == ToolChoice::Kind::kNone) return shown;
  for (size_t i = 0; i < request.tools.size(); ++i) {
    if (choice.kind == ToolChoice::Kind::kNamed && request.tools[i].name != choice.name) continue;
    shown.indices.push_back(i);
    shown.schemas.push_back(tool_schema(request.tools[i], encoding));
    PS_RETURN_IF_ERROR(check_no_placeholder(shown.schemas.back()));
  }
  if (choice.kind == ToolChoice::Kind::kNamed && shown.indices.empty()) {
    return Status::invalid("tool_choice: no tool named '" + choice.name + "' was specified");
  }
  shown.is_call_forced = choice.kind != ToolChoice::Kind::kAuto && !shown.indices.empty();
  if (shown.is_call_forced && request.is_thinking) {
    return Status::invalid("Thinking mode does not support this tool_choice");
  }
  if (shown.is_call_forced && request.ending == PromptEnding::kNoHeader) {
    return Status::invalid("tool_choice: a required call needs add_generation_prompt = true");
  }
  return shown;
}

Status check_messages(const ChatRequest& request, ChatEncoding encoding) {
  if (request.messages.empty()) return Status::invalid("Empty input messages");
  PS_RETURN_IF_ERROR(encoding == ChatEncoding::kRecipe ? check_recipe_messages(request)
                                                       : check_model_messages(request));
  if (request.ending == PromptEnding::kContinue && request.messages.back().role != Role::kAssistant) {
    return Status::invalid("continue_final_message: the last message must be an assistant's");
  }
  return {};
}

Status check_response_format(const ChatRequest& request, ChatEncoding encoding) {
  const ResponseFormat::Kind kind = request.response_format.kind;
  if (kind == ResponseFormat::Kind::kOther) {
    return Status::invalid("response_format: only text and json_object are supported");
  }
  if (kind == ResponseFormat::Kind::kJsonObject && encoding == ChatEncoding::kRecipe && !mentions_json(request)) {
    const std::string field = request.dialect == Dialect::kResponses ? "text.format" : "response_format";
    return Status::invalid("Prompt must contain the word 'json' in some form to use '" + field +
                           "' of type 'json_object'.");
  }
  return {};
}

}  // namespace ps::text
