#include "apps/eval/tool_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/macros.h"

namespace ps::apps::eval {
namespace {

constexpr std::string_view kOpenBlock = "<｜DSML｜ calls>";
constexpr std::string_view kCloseBlock = "</｜DSML｜ calls>";
constexpr std::string_view kOpenInvoke = "<｜DSML｜ invoke name=\"";
constexpr std::string_view kCloseInvoke = "</｜DSML｜ invoke>";
constexpr std::string_view kOpenParameter = "<｜DSML｜ parameter name=\"";
constexpr std::string_view kCloseParameter = "</｜DSML｜ parameter>";

// Takes a text apart from the front.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : rest_(text) {}

  bool skip(std::string_view literal) {
    if (!rest_.starts_with(literal)) return false;
    rest_.remove_prefix(literal.size());
    return true;
  }
  Status expect(std::string_view literal) {
    if (skip(literal)) return {};
    return Status::invalid(fmt::format("expected {} before \"{}\"", literal == "\n" ? "a line break" : literal,
                                       rest_.substr(0, std::min<size_t>(rest_.size(), 24))));
  }
  // The text up to `literal`, which is skipped too.
  Result<std::string_view> until(std::string_view literal) {
    const size_t at = rest_.find(literal);
    if (at == std::string_view::npos) return Status::invalid(fmt::format("{} is missing", literal));
    const std::string_view text = rest_.substr(0, at);
    rest_.remove_prefix(at + literal.size());
    return text;
  }
  [[nodiscard]] bool is_at_end() const noexcept { return rest_.empty(); }

 private:
  std::string_view rest_;
};

Result<ToolArgument> parse_argument(Cursor& cursor) {
  ToolArgument argument;
  PS_TRY(argument.name, cursor.until("\" string=\""));
  PS_TRY(const std::string_view kind, cursor.until("\">"));
  if (kind != "true" && kind != "false") {
    return Status::invalid(fmt::format("string=\"{}\"; legal values are true, false", kind));
  }
  argument.is_string = kind == "true";
  PS_TRY(argument.value, cursor.until(kCloseParameter));
  if (!argument.is_string)
    PS_RETURN_IF_ERROR(JsonValue::parse(argument.value).status().ok()
                           ? Status()
                           : Status::invalid("parameter " + argument.name + " is no JSON"));
  return argument;
}

Result<ToolCall> parse_call(Cursor& cursor) {
  ToolCall call;
  PS_TRY(call.name, cursor.until("\">"));
  PS_RETURN_IF_ERROR(cursor.expect("\n"));
  if (cursor.skip("\n")) {  // no parameters: one empty line
    PS_RETURN_IF_ERROR(cursor.expect(kCloseInvoke));
    return call;
  }
  while (!cursor.skip(kCloseInvoke)) {
    PS_RETURN_IF_ERROR(cursor.expect(kOpenParameter));
    PS_TRY(ToolArgument argument, parse_argument(cursor));
    call.arguments.push_back(std::move(argument));
    PS_RETURN_IF_ERROR(cursor.expect("\n"));
  }
  return call;
}

bool has_type(const JsonValue& value, std::string_view type) {
  if (type == "integer") return value.is_number() && value.text().find_first_of(".eE") == std::string::npos;
  if (type == "number") return value.is_number();
  if (type == "boolean") return value.is_bool();
  if (type == "null") return value.is_null();
  if (type == "array") return value.is_array();
  if (type == "object") return value.is_object();
  return false;
}

// A member that is a string, or "".
std::string_view text_of(const JsonValue* object, std::string_view key) {
  const JsonValue* value = object != nullptr ? object->find(key) : nullptr;
  return value != nullptr && value->is_string() ? std::string_view(value->text()) : std::string_view();
}

Status check_argument(const ToolArgument& argument, const JsonValue* properties) {
  const JsonValue* property = properties != nullptr ? properties->find(argument.name) : nullptr;
  if (property == nullptr) return Status::invalid("unknown parameter " + argument.name);
  const std::string_view type = text_of(property, "type");
  if (type.empty()) return {};
  const Result<JsonValue> value = argument.is_string ? JsonValue() : JsonValue::parse(argument.value);
  const bool fits = argument.is_string ? type == "string" : value.ok() && has_type(value.value(), type);
  if (!fits) return Status::invalid(fmt::format("parameter {} is not of type {}", argument.name, type));
  return {};
}

Status check_call(const ToolCall& call, std::span<const JsonValue> tools) {
  const auto tool = std::find_if(tools.begin(), tools.end(),
                                 [&](const JsonValue& offered) { return text_of(&offered, "name") == call.name; });
  if (tool == tools.end()) return Status::invalid("not offered");
  const JsonValue* schema = tool->find("parameters");
  const JsonValue* properties = schema != nullptr ? schema->find("properties") : nullptr;
  std::set<std::string_view> given;
  for (const ToolArgument& argument : call.arguments) {
    if (!given.insert(argument.name).second) return Status::invalid("parameter " + argument.name + " occurs twice");
    PS_RETURN_IF_ERROR(check_argument(argument, properties));
  }
  const JsonValue* required = schema != nullptr ? schema->find("required") : nullptr;
  if (required == nullptr || !required->is_array()) return {};
  for (const JsonValue& name : required->items()) {
    if (name.is_string() && !given.contains(name.text())) {
      return Status::invalid("parameter " + name.text() + " is missing");
    }
  }
  return {};
}

// One spelling per value: keys sorted, numbers as doubles where they have a point or an exponent.
std::string normal_form(const JsonValue& value) {
  if (value.is_array()) {
    std::string text = "[";
    for (const JsonValue& item : value.items()) text += normal_form(item) + ",";
    return text + "]";
  }
  if (value.is_object()) {
    std::set<std::string> keys;
    for (const auto& [key, member] : value.members()) keys.insert(key);
    std::string text = "{";
    for (const std::string& key : keys) {
      append_json_string(text, key);
      text += ":" + normal_form(*value.find(key)) + ",";
    }
    return text + "}";
  }
  if (value.is_number()) {
    const Result<int64_t> integer = value.integer();
    if (integer.ok()) return std::to_string(integer.value());
    const Result<double> real = value.real();
    return real.ok() ? fmt::format("{}", real.value()) : value.text();
  }
  JsonWriter writer;
  writer.value(value);
  return std::move(writer).text();
}

std::string normal_form(const ToolArgument& argument) {
  if (argument.is_string) return "s" + argument.value;
  const Result<JsonValue> value = JsonValue::parse(argument.value);
  return "j" + (value.ok() ? normal_form(value.value()) : argument.value);
}

std::vector<std::pair<std::string, std::string>> normal_form(const ToolCall& call) {
  std::vector<std::pair<std::string, std::string>> sorted;
  for (const ToolArgument& argument : call.arguments) sorted.emplace_back(argument.name, normal_form(argument));
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

}  // namespace

bool has_calls(std::string_view answer) noexcept { return answer.find(kOpenBlock) != std::string_view::npos; }

Result<std::vector<ToolCall>> parse_calls(std::string_view answer) {
  const size_t block = answer.find(kOpenBlock);
  if (block == std::string_view::npos) return Status::invalid("no block of calls");
  if (!answer.substr(0, block).ends_with("\n\n")) return Status::invalid("no empty line before the block");
  Cursor cursor(answer.substr(block + kOpenBlock.size()));
  std::vector<ToolCall> calls;
  PS_RETURN_IF_ERROR(cursor.expect("\n"));
  while (!cursor.skip(kCloseBlock)) {
    PS_RETURN_IF_ERROR(cursor.expect(kOpenInvoke));
    PS_TRY(ToolCall call, parse_call(cursor));
    calls.push_back(std::move(call));
    PS_RETURN_IF_ERROR(cursor.expect("\n"));
  }
  if (calls.empty()) return Status::invalid("the block has no call");
  if (!cursor.is_at_end()) return Status::invalid("text behind the block");
  return calls;
}

Status check_calls(std::span<const ToolCall> calls, std::span<const JsonValue> tools) {
  for (const ToolCall& call : calls) PS_RETURN_IF_ERROR(check_call(call, tools).with("tool " + call.name));
  return {};
}

bool same_calls(std::span<const ToolCall> a, std::span<const ToolCall> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const ToolCall& x, const ToolCall& y) {
    return x.name == y.name && normal_form(x) == normal_form(y);
  });
}

}  // namespace ps::apps::eval
