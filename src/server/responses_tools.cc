#include "server/responses_tools.h"

#include <optional>
#include <utility>

#include "base/json.h"
#include "base/macros.h"
#include "text/chat_completions_request.h"

namespace ps::server {

namespace {

constexpr std::string_view kSeparator = "__";
constexpr size_t kMostNameBytes = 128;
constexpr std::string_view kInput = "input";
constexpr std::string_view kInputStart = R"({"input": ")";  // as the output parser writes it

struct Parent {
  std::string space;
  ResponsesTools& tools;
};

// A function in the flat shape of this surface, as a function of chat completions.
Result<JsonValue> function_of(const ObjectReader& tool, const std::string& shown_name) {
  JsonWriter function(JsonWriter::Style::kCompact);
  function.begin_object().key("name").string(shown_name);
  PS_TRY(const std::optional<std::string> description, tool.string("description"));
  if (description.has_value()) function.key("description").string(*description);
  if (const JsonValue* parameters = tool.find("parameters"); parameters != nullptr) {
    function.key("parameters").value(*parameters);
  }
  PS_TRY(const std::optional<bool> is_strict, tool.boolean("strict"));
  if (is_strict.has_value()) function.key("strict").boolean(*is_strict);
  return JsonValue::parse(function.end_object().text(), text::kChatBodyLimits);
}

// What a custom tool says of its input: its grammar can be shown to the model, not enforced.
Result<std::string> input_description(const ObjectReader& tool) {
  PS_TRY(const std::optional<ObjectReader> format, tool.inner("format"));
  if (!format.has_value()) return std::string("Free text");
  PS_TRY(const std::string type, format->required_choice("type", {"text", "grammar"}));
  if (type == "text") return std::string("Free text");
  PS_TRY(const std::string syntax, format->required_choice("syntax", {"lark", "regex"}));
  PS_TRY(const std::string definition, format->required_string("definition"));
  return "Free text that follows this " + syntax + " grammar:\n" + definition;
}

Result<JsonValue> function_of_custom(const ObjectReader& tool, const std::string& shown_name) {
  PS_TRY(const std::optional<std::string> description, tool.string("description"));
  PS_TRY(const std::string input, input_description(tool));
  JsonWriter function(JsonWriter::Style::kCompact);
  function.begin_object().key("name").string(shown_name);
  if (description.has_value()) function.key("description").string(*description);
  function.key("parameters").begin_object().key("type").string("object");
  function.key("properties").begin_object().key(kInput).begin_object();
  function.key("type").string("string").key("description").string(input).end_object().end_object();
  function.key("required").begin_array().string(kInput).end_array().end_object();
  return JsonValue::parse(function.end_object().text(), text::kChatBodyLimits);
}

// false: left out.
Result<bool> read_tool(const ObjectReader& tool, Parent parent) {
  PS_TRY(std::string type, tool.required_string("type"));
  const bool is_custom = type == "custom";
  if (!is_custom && type != "function") {
    parent.tools.left_out.push_back(std::move(type));
    return false;
  }
  ClientTool client{.space = parent.space, .is_custom = is_custom};
  PS_TRY(client.name, tool.required_string("name"));
  // encode_prompt() checks names too, but each of a namespace's tools carries the name of the namespace along.
  if (client.space.size() + client.name.size() > kMostNameBytes) {
    return tool.error("name", "with its namespace it is longer than " + std::to_string(kMostNameBytes) + " bytes");
  }
  text::ToolDefinition definition{.name = model_tool_name(client.space, client.name), .path = tool.path()};
  if (is_custom) {
    PS_TRY(definition.function, function_of_custom(tool, definition.name));
  } else {
    PS_TRY(definition.function, function_of(tool, definition.name));
  }
  const bool is_renamed = is_custom || !client.space.empty();
  if (is_renamed && !parent.tools.by_name.try_emplace(definition.name, std::move(client)).second) {
    return tool.error("name", "another tool is \"" + definition.name + "\" to the model too");
  }
  parent.tools.shown.push_back(std::move(definition));
  return true;
}

Result<bool> read_space(const ObjectReader& space, ResponsesTools& tools) {
  PS_TRY(const std::string name, space.required_name("name"));
  PS_TRY(const std::span<const JsonValue> items, space.items("tools"));
  bool has_some = false;
  for (size_t i = 0; i < items.size(); ++i) {
    PS_TRY(const ObjectReader tool, ObjectReader::of(items[i], item_path(space.path_of("tools"), i)));
    PS_TRY(const bool is_shown, read_tool(tool, {name, tools}));
    has_some |= is_shown;
  }
  return has_some;
}

// "u" and four digits, or two of them that are one character; 0 where they go on beyond the end. Half a character
// becomes U+FFFD.
size_t read_unicode_escape(std::string_view escape, std::string& text) {
  constexpr size_t kLength = 5;
  if (escape.size() < kLength) return 0;
  const bool is_first_half = escape.size() > 2 && (escape[1] == 'd' || escape[1] == 'D') &&
                             std::string_view("89abAB").find(escape[2]) != std::string_view::npos;
  const auto read = [&escape](size_t length) {
    std::string quoted = "[\"\\";
    return JsonValue::parse(quoted.append(escape.substr(0, length)).append("\"]"));
  };
  if (is_first_half) {
    constexpr size_t kPairLength = 2 * kLength + 1;
    const std::string_view second = escape.substr(kLength, 2);
    const bool may_be_pair = second == std::string_view("\\u").substr(0, second.size());
    if (may_be_pair && escape.size() < kPairLength) return 0;
    if (const Result<JsonValue> pair = read(kPairLength); may_be_pair && pair.ok()) {
      text += pair.value().items()[0].text();
      return kPairLength;
    }
  }
  const Result<JsonValue> single = read(kLength);
  text += single.ok() ? single.value().items()[0].text() : std::string_view("\uFFFD");
  return kLength;
}

// One character after a backslash; 0 where the escape goes on beyond the end.
size_t read_escape(std::string_view escape, std::string& text) {
  if (escape.empty()) return 0;
  if (escape.front() == 'u') return read_unicode_escape(escape, text);
  switch (escape.front()) {
    case 'n': text += '\n'; break;
    case 'r': text += '\r'; break;
    case 't': text += '\t'; break;
    case 'b': text += '\b'; break;
    case 'f': text += '\f'; break;
    default: text += escape.front();
  }
  return 1;
}

}  // namespace

ClientTool ResponsesTools::find(std::string_view name) const {
  const auto found = by_name.find(name);
  return found != by_name.end() ? found->second : ClientTool{.name = std::string(name)};
}

Result<ResponsesTools> read_responses_tools(const ObjectReader& body) {
  ResponsesTools tools;
  PS_TRY(const std::span<const JsonValue> items, body.items("tools"));
  JsonWriter in_force(JsonWriter::Style::kCompact);
  in_force.begin_array();
  for (size_t i = 0; i < items.size(); ++i) {
    PS_TRY(const ObjectReader tool, ObjectReader::of(items[i], item_path("tools", i)));
    PS_TRY(const std::string type, tool.required_string("type"));
    PS_TRY(const bool is_shown, type == "namespace" ? read_space(tool, tools) : read_tool(tool, {"", tools}));
    if (is_shown) in_force.value(items[i]);
  }
  tools.in_force = std::move(in_force.end_array()).text();
  return tools;
}

std::string model_tool_name(std::string_view space, std::string_view name) {
  std::string full(space);
  if (!space.empty() && !space.ends_with(kSeparator)) full += kSeparator;
  return full.append(name);
}

std::string custom_arguments(std::string_view input) {
  return std::move(JsonWriter().begin_object().key(kInput).string(input).end_object()).text();
}

std::string CustomInput::take(std::string_view json) {
  json_ += json;
  if (!json_.starts_with(kInputStart)) return {};
  const size_t before = text_.size();
  if (read_ == 0) read_ = kInputStart.size();
  while (read_ < json_.size() && json_[read_] != '"') {
    if (json_[read_] == '\\') {
      const size_t length = read_escape(std::string_view(json_).substr(read_ + 1), text_);
      if (length == 0) break;
      read_ += 1 + length;
    } else {
      text_ += json_[read_++];
    }
  }
  return text_.substr(before);
}

std::string CustomInput::finish() {
  if (read_ > 0) return text_;
  return kInputStart.starts_with(json_) ? std::string() : json_;  // cut off before its text, or another form
}

}  // namespace ps::server
