// The fields of a request that describe the conversation: messages, tools, effort.
#include <utility>

#include "base/json_fields.h"
#include "base/macros.h"
#include "text/chat_completions_request.h"

namespace ps::text {
namespace {

std::string item_path(std::string_view list, size_t index) {
  return std::string(list).append("[").append(std::to_string(index)).append("]");
}

Result<ImageDetail> read_detail(const JsonFields& image) {
  std::string name = "auto";
  PS_RETURN_IF_ERROR(image.read("detail", name));
  if (name == "auto") return ImageDetail::kAuto;
  if (name == "low") return ImageDetail::kLow;
  if (name == "high") return ImageDetail::kHigh;
  return Status::invalid(image.path_of("detail") + ": unknown value '" + name + "'; legal: auto, low, high");
}

// {"type": "image_url", "image_url": {"url": ..., "detail": ...}} or the address itself in place of the object.
Result<ContentPart> read_image_url(const JsonFields& part, const std::string& path) {
  ContentPart image{.kind = ContentPart::Kind::kImage, .path = path};
  PS_RETURN_IF_ERROR(part.require("image_url"));
  const JsonValue& value = *part.find("image_url");
  if (value.is_string()) {
    image.image_url = value.text();
    return image;
  }
  PS_TRY(const JsonFields fields, JsonFields::of(value, part.path_of("image_url")));
  PS_RETURN_IF_ERROR(fields.require("url"));
  PS_RETURN_IF_ERROR(fields.read("url", image.image_url));
  PS_TRY(image.detail, read_detail(fields));
  return image;
}

// {"type": "file", "file": {"file_data": ...}}: images by content; an id of an earlier upload is not supported.
Result<ContentPart> read_file_part(const JsonFields& part, const std::string& path) {
  ContentPart image{.kind = ContentPart::Kind::kImage, .path = path};
  PS_TRY(const JsonValue* const file, part.object("file"));
  const JsonValue* data = file == nullptr ? nullptr : file->find("file_data");
  if (data == nullptr || !data->is_string()) return Status::invalid(path + ": file must have file_data");
  image.image_url = data->text();
  return image;
}

Result<ContentPart> read_part(const JsonValue& value, const std::string& path, Role role) {
  PS_TRY(const JsonFields fields, JsonFields::of(value, path));
  std::string type;
  PS_RETURN_IF_ERROR(fields.require("type"));
  PS_RETURN_IF_ERROR(fields.read("type", type));
  ContentPart part;
  if (type == "text") {
    PS_RETURN_IF_ERROR(fields.require("text"));
    PS_RETURN_IF_ERROR(fields.read("text", part.text));
    return part;
  }
  if (type == "image_url") return read_image_url(fields, path);
  if (type == "file") return read_file_part(fields, path);
  if (type == "image") {  // as the model repository's examples have it
    part.kind = ContentPart::Kind::kImage;
    part.path = path;
    PS_RETURN_IF_ERROR(fields.require("image"));
    PS_RETURN_IF_ERROR(fields.read("image", part.image_url));
    return part;
  }
  if (role != Role::kTool) {
    return Status::invalid(path + ".type: unknown type '" + type + "'; legal: text, image_url, image, file");
  }
  part.kind = ContentPart::Kind::kUnsupported;
  part.text = std::move(type);
  return part;
}

Status read_content(const JsonFields& fields, ChatMessage& message) {
  const JsonValue* content = fields.find("content");
  if (content == nullptr) return {};
  message.has_content = true;
  if (content->is_string()) {
    message.content.push_back({.text = content->text()});
    return {};
  }
  const std::string path = fields.path_of("content");
  if (!content->is_array()) return JsonFields::mismatch(path, "a string or an array of parts", *content);
  message.content.reserve(content->items().size());
  for (size_t i = 0; i < content->items().size(); ++i) {
    PS_TRY(message.content.emplace_back(), read_part(content->items()[i], item_path(path, i), message.role));
  }
  return {};
}

Result<ToolCall> read_tool_call(const JsonValue& value, const std::string& path) {
  PS_TRY(const JsonFields fields, JsonFields::of(value, path));
  ToolCall call;
  std::string type = "function";
  PS_RETURN_IF_ERROR(fields.read("id", call.id));
  PS_RETURN_IF_ERROR(fields.read("type", type));
  if (type != "function") return Status::invalid(path + ".type: unknown type '" + type + "'; legal: function");
  PS_RETURN_IF_ERROR(fields.require("function"));
  PS_TRY(const JsonFields function, JsonFields::of(*fields.find("function"), path + ".function"));
  PS_RETURN_IF_ERROR(function.require("name"));
  PS_RETURN_IF_ERROR(function.read("name", call.name));
  const JsonValue* arguments = function.find("arguments");
  if (arguments == nullptr) return Status::invalid(function.path_of("arguments") + ": missing field");
  if (arguments->is_object()) {
    call.arguments = JsonWriter().value(*arguments).text();
  } else if (arguments->is_string()) {
    call.arguments = arguments->text();
  } else {
    return JsonFields::mismatch(function.path_of("arguments"), "a string with JSON text, or an object", *arguments);
  }
  return call;
}

Status read_assistant(const JsonFields& fields, ChatMessage& message) {
  PS_RETURN_IF_ERROR(fields.read("reasoning", message.reasoning));
  PS_RETURN_IF_ERROR(fields.read("reasoning_content", message.reasoning));
  bool is_prefix = false;
  PS_RETURN_IF_ERROR(fields.read("prefix", is_prefix));
  PS_RETURN_IF_ERROR(fields.read("wo_eos", message.without_eos));
  message.without_eos = message.without_eos || is_prefix;
  if (fields.find("function_call") != nullptr) {
    return Status::invalid(fields.path_of("function_call") + ": not supported; use tool_calls");
  }
  PS_TRY(const JsonValue* const calls, fields.array("tool_calls"));
  if (calls == nullptr) return {};
  message.has_tool_calls = true;
  const std::string path = fields.path_of("tool_calls");
  for (size_t i = 0; i < calls->items().size(); ++i) {
    PS_TRY(message.tool_calls.emplace_back(), read_tool_call(calls->items()[i], item_path(path, i)));
  }
  return {};
}

// Fields that only the model encoder knows.
Status read_model_extras(const JsonFields& fields, ChatMessage& message) {
  std::string task;
  PS_RETURN_IF_ERROR(fields.read("task", task));
  if (!task.empty()) {
    const auto found = find_task(task);
    if (!found) {
      return Status::invalid(fields.path_of("task") + ": unknown task '" + task +
                             "'; legal: action, query, authority, domain, title, read_url");
    }
    message.task = *found;
  }
  if (const JsonValue* tools = fields.find("tools")) {
    PS_TRY(message.tools, read_tool_definitions(*tools, fields.path_of("tools")));
  }
  if (const JsonValue* format = fields.find("response_format")) message.response_format = *format;
  return {};
}

Result<ChatMessage> read_message(const JsonValue& value, const std::string& path) {
  PS_TRY(const JsonFields fields, JsonFields::of(value, path));
  std::string role;
  PS_RETURN_IF_ERROR(fields.require("role"));
  PS_RETURN_IF_ERROR(fields.read("role", role));
  const auto found = find_role(role);
  if (!found) {
    return Status::invalid(path + ".role: unknown role '" + role +
                           "'; legal: system, developer (model encoding), user, assistant, tool, latest_reminder");
  }
  ChatMessage message;
  message.role = *found;
  PS_RETURN_IF_ERROR(read_content(fields, message));
  if (message.role == Role::kAssistant) PS_RETURN_IF_ERROR(read_assistant(fields, message));
  if (message.role == Role::kTool) PS_RETURN_IF_ERROR(fields.read("tool_call_id", message.tool_call_id));
  PS_RETURN_IF_ERROR(read_model_extras(fields, message));
  return message;
}

Result<ToolDefinition> read_tool(const JsonValue& value, const std::string& path) {
  PS_TRY(const JsonFields fields, JsonFields::of(value, path));
  std::string type = "function";
  PS_RETURN_IF_ERROR(fields.read("type", type));
  if (type != "function") return Status::invalid(path + ".type: unknown type '" + type + "'; legal: function");
  PS_RETURN_IF_ERROR(fields.require("function"));
  const JsonValue& function = *fields.find("function");
  PS_TRY(const JsonFields function_fields, JsonFields::of(function, path + ".function"));
  ToolDefinition tool;
  PS_RETURN_IF_ERROR(function_fields.require("name"));
  PS_RETURN_IF_ERROR(function_fields.read("name", tool.name));
  tool.function = function;
  tool.path = path + ".function";
  return tool;
}

}  // namespace

Result<std::vector<ChatMessage>> read_chat_messages(const JsonValue& value, std::string_view path) {
  if (!value.is_array()) return JsonFields::mismatch(path, "an array of messages", value);
  std::vector<ChatMessage> messages;
  messages.reserve(value.items().size());
  for (size_t i = 0; i < value.items().size(); ++i) {
    PS_TRY(messages.emplace_back(), read_message(value.items()[i], item_path(path, i)));
  }
  return messages;
}

Result<std::vector<ToolDefinition>> read_tool_definitions(const JsonValue& value, std::string_view path) {
  if (!value.is_array()) return JsonFields::mismatch(path, "an array of tools", value);
  std::vector<ToolDefinition> tools;
  tools.reserve(value.items().size());
  for (size_t i = 0; i < value.items().size(); ++i) {
    PS_TRY(tools.emplace_back(), read_tool(value.items()[i], item_path(path, i)));
  }
  return tools;
}

Result<std::optional<ReasoningEffort>> read_reasoning_effort(const JsonValue& value, std::string_view path) {
  constexpr std::string_view kLegal =
      "none, minimal, low, medium, high, xhigh, max, ultra, or an integer from 1 to 100";
  const auto refuse = [&](const std::string& found) {
    return Status::invalid(std::string(path).append(": ").append(found).append("; legal: ").append(kLegal));
  };
  if (value.is_number()) {
    const auto number = value.integer();
    if (!number.ok() || number.value() < 1 || number.value() > 100) return refuse(value.text().substr(0, 40));
    return std::optional(ReasoningEffort{ReasoningEffort::Level::kNumber, static_cast<int>(number.value())});
  }
  if (!value.is_string()) return refuse("found " + std::string(value.kind_name()));
  const std::string& name = value.text();
  if (name == "none") return std::optional<ReasoningEffort>();
  if (name == "minimal" || name == "low") return std::optional(ReasoningEffort::low());
  if (name == "medium" || name == "high") return std::optional(ReasoningEffort::high());
  if (name == "xhigh") return std::optional(ReasoningEffort::xhigh());
  if (name == "max" || name == "ultra") return std::optional(ReasoningEffort::max());
  return refuse("unknown value '" + name + "'");
}

}  // namespace ps::text
