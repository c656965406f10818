#include "base/json.h"

#include <simdjson.h>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <set>
#include <unordered_map>

#include "base/macros.h"

namespace ps {
namespace {

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

// The JSON grammar's number: the lazy reader does not check the tokens that it hands out raw.
bool is_json_number(std::string_view token) noexcept {
  size_t at = 0;
  const auto digits = [&] {
    const size_t start = at;
    while (at < token.size() && is_digit(token[at])) ++at;
    return at - start;
  };
  if (at < token.size() && token[at] == '-') ++at;
  const size_t whole = at;
  const size_t whole_digits = digits();
  if (whole_digits == 0 || (whole_digits > 1 && token[whole] == '0')) return false;
  if (at < token.size() && token[at] == '.') {
    ++at;
    if (digits() == 0) return false;
  }
  if (at < token.size() && (token[at] == 'e' || token[at] == 'E')) {
    ++at;
    if (at < token.size() && (token[at] == '+' || token[at] == '-')) ++at;
    if (digits() == 0) return false;
  }
  return at == token.size();
}

std::string_view without_spaces(std::string_view text) noexcept {
  const size_t begin = text.find_first_not_of(" \t\n\r");
  return begin == std::string_view::npos ? "" : text.substr(begin, text.find_last_not_of(" \t\n\r") + 1 - begin);
}

bool is_integer_spelling(std::string_view number) noexcept {
  return number.find_first_of(".eE") == std::string_view::npos;
}

// A JSON number as the nearest double, as Python's float(): too large gives an infinity, too small a zero.
double nearest_double(const std::string& number) noexcept {
  double value = 0;
  const auto parsed = std::from_chars(number.data(), number.data() + number.size(), value);
  return parsed.ec == std::errc{} ? value : std::strtod(number.c_str(), nullptr);
}

std::string python_real(double value) {
  if (value == 0) return std::signbit(value) ? "-0.0" : "0.0";
  char digits[64];
  const double magnitude = std::fabs(value);
  const bool scientific = magnitude < 1e-4 || magnitude >= 1e16;
  const auto end = std::to_chars(digits, digits + sizeof digits, value,
                                 scientific ? std::chars_format::scientific : std::chars_format::fixed);
  std::string text(digits, end.ptr);
  if (!scientific && text.find('.') == std::string::npos) text += ".0";
  return text;
}

}  // namespace

// Walks simdjson's lazy document once and builds the owned tree.
class JsonReader {
 public:
  explicit JsonReader(const JsonLimits& limits) : limits_(limits) {}

  Result<JsonValue> parse(std::string_view text) {
    if (static_cast<int64_t>(text.size()) > limits_.bytes) {
      return Status::invalid("JSON text of " + std::to_string(text.size()) + " bytes, at most " +
                             std::to_string(limits_.bytes) + " are read");
    }
    const std::string_view bare = without_spaces(text);
    if (!bare.empty() && bare.find_first_of("[{\"") != 0) return bare_scalar(bare);
    const simdjson::padded_string padded(text);  // NOTE: simdjson reads up to 32 bytes past the end
    simdjson::ondemand::parser parser;
    simdjson::ondemand::document document;
    JsonValue root;
    if (const auto error = parser.iterate(padded).get(document)) return failure(error);
    PS_RETURN_IF_ERROR(read_root(document, root));
    const char* rest = nullptr;
    if (document.current_location().get(rest) == simdjson::SUCCESS) {
      return Status::invalid("malformed JSON: text after the value");
    }
    return root;
  }

 private:
  static Status failure(simdjson::error_code error) {
    return Status::invalid(std::string("malformed JSON: ") + simdjson::error_message(error));
  }

  // A text that is one number, true, false or null. simdjson's reader of a lone scalar takes "falsey" for false, and
  // does not get past a number that is too large for a double or has more than a thousand digits.
  static Result<JsonValue> bare_scalar(std::string_view token) {
    JsonValue out;
    if (token == "true" || token == "false") {
      out.kind_ = token == "true" ? JsonValue::Kind::kTrue : JsonValue::Kind::kFalse;
    } else if (token != "null") {
      PS_RETURN_IF_ERROR(set_number(token, out));
    }
    return out;
  }

  static Status set_number(std::string_view token, JsonValue& out) {
    if (!is_json_number(token)) {
      return Status::invalid("malformed JSON: bad number " + std::string(token.substr(0, 40)));
    }
    out.kind_ = JsonValue::Kind::kNumber;
    out.text_ = token;
    return {};
  }

  Status read_root(simdjson::ondemand::document& document, JsonValue& out) {
    bool is_string = false;
    if (const auto error = document.is_scalar().get(is_string)) return failure(error);
    if (is_string) {
      std::string_view text;
      if (const auto error = document.get_string().get(text)) return failure(error);
      set_string(text, out);
      return {};
    }
    simdjson::ondemand::value value;
    if (const auto error = document.get_value().get(value)) return failure(error);
    return read(value, out, 0);
  }

  static void set_string(std::string_view text, JsonValue& out) {
    out.kind_ = JsonValue::Kind::kString;
    out.text_ = text;
  }

  Status read(simdjson::ondemand::value value, JsonValue& out, int depth) {
    simdjson::ondemand::json_type type;
    if (const auto error = value.type().get(type)) return failure(error);
    const bool nested = type == simdjson::ondemand::json_type::array || type == simdjson::ondemand::json_type::object;
    if (nested && depth >= limits_.depth) {
      return Status::invalid("JSON nested deeper than " + std::to_string(limits_.depth) + " levels");
    }
    if (type == simdjson::ondemand::json_type::array) return read_array(value, out, depth);
    if (type == simdjson::ondemand::json_type::object) return read_object(value, out, depth);
    return read_scalar(value, type, out);
  }

  Status read_array(simdjson::ondemand::value value, JsonValue& out, int depth) {
    out.kind_ = JsonValue::Kind::kArray;
    simdjson::ondemand::array array;
    if (const auto error = value.get_array().get(array)) return failure(error);
    for (auto element : array) {
      simdjson::ondemand::value item;
      if (const auto error = element.get(item)) return failure(error);
      PS_RETURN_IF_ERROR(read(item, out.items_.emplace_back(), depth + 1));
    }
    return {};
  }

  Status read_object(simdjson::ondemand::value value, JsonValue& out, int depth) {
    out.kind_ = JsonValue::Kind::kObject;
    simdjson::ondemand::object object;
    if (const auto error = value.get_object().get(object)) return failure(error);
    for (auto field : object) {
      std::string_view key;
      simdjson::ondemand::value item;
      if (const auto error = field.unescaped_key().get(key)) return failure(error);
      auto& member = out.members_.emplace_back(std::string(key), JsonValue{});
      if (const auto error = field.value().get(item)) return failure(error);
      PS_RETURN_IF_ERROR(read(item, member.second, depth + 1));
    }
    return {};
  }

  static Status read_scalar(simdjson::ondemand::value value, simdjson::ondemand::json_type type, JsonValue& out) {
    switch (type) {
      case simdjson::ondemand::json_type::string: {
        std::string_view text;
        if (const auto error = value.get_string().get(text)) return failure(error);
        set_string(text, out);
        return {};
      }
      case simdjson::ondemand::json_type::boolean: {
        bool flag = false;
        if (const auto error = value.get_bool().get(flag)) return failure(error);
        out.kind_ = flag ? JsonValue::Kind::kTrue : JsonValue::Kind::kFalse;
        return {};
      }
      case simdjson::ondemand::json_type::number: {
        PS_RETURN_IF_ERROR(set_number(without_spaces(value.raw_json_token()), out));
        // Consume the token; its value, which may not fit, is not used.
        const simdjson::error_code error = value.get_double().error();
        return error == simdjson::SUCCESS || error == simdjson::NUMBER_ERROR ? Status() : failure(error);
      }
      case simdjson::ondemand::json_type::null: {
        bool null = false;
        if (const auto error = simdjson::simdjson_result<bool>(value.is_null()).get(null)) return failure(error);
        if (!null) return Status::invalid("malformed JSON: a token that starts like null");
        return {};
      }
      default: return Status::invalid("malformed JSON: unexpected token");
    }
  }

  JsonLimits limits_;
};

Result<JsonValue> JsonValue::parse(std::string_view text, const JsonLimits& limits) {
  return JsonReader(limits).parse(text);
}

Result<int64_t> JsonValue::integer() const {
  if (!is_number()) return Status::invalid("expected an integer, found " + std::string(kind_name()));
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
  if (error != std::errc{} || end != text_.data() + text_.size()) {
    return Status::invalid("expected a 64-bit integer, found " + text_.substr(0, 40));
  }
  return value;
}

Result<double> JsonValue::real() const {
  if (!is_number()) return Status::invalid("expected a number, found " + std::string(kind_name()));
  const double value = nearest_double(text_);
  if (!std::isfinite(value)) return Status::invalid("number out of range: " + text_.substr(0, 40));
  return value;
}

const JsonValue* JsonValue::find(std::string_view key) const noexcept {
  for (auto member = members_.rbegin(); member != members_.rend(); ++member) {
    if (member->first == key) return &member->second;
  }
  return nullptr;
}

std::vector<std::pair<std::string_view, const JsonValue*>> JsonValue::merged_members() const {
  std::vector<std::pair<std::string_view, const JsonValue*>> merged;
  std::unordered_map<std::string_view, size_t> place;
  for (const auto& [name, member] : members_) {
    const auto [found, is_first] = place.emplace(name, merged.size());
    if (is_first) {
      merged.emplace_back(name, &member);
    } else {
      merged[found->second].second = &member;
    }
  }
  return merged;
}

const std::string* JsonValue::duplicate_key() const {
  std::set<std::string_view> seen;
  for (const Member& member : members_) {
    if (!seen.insert(member.first).second) return &member.first;
  }
  return nullptr;
}

std::string_view JsonValue::kind_name() const noexcept {
  switch (kind_) {
    case Kind::kNull: return "null";
    case Kind::kFalse:
    case Kind::kTrue: return "a boolean";
    case Kind::kNumber: return "a number";
    case Kind::kString: return "a string";
    case Kind::kArray: return "an array";
    case Kind::kObject: return "an object";
  }
  return "?";
}

void append_json_escaped(std::string& out, std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  size_t run = 0;  // begin of the bytes that are copied as they are
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (static_cast<unsigned char>(c) >= 0x20 && c != '"' && c != '\\') continue;
    out.append(text, run, at - run);
    run = at + 1;
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      case '\b': out += "\\b"; break;
      case '\f': out += "\\f"; break;
      default:
        out += "\\u00";
        out += kHex[static_cast<unsigned char>(c) >> 4];
        out += kHex[static_cast<unsigned char>(c) & 15];
    }
  }
  out.append(text, run);
}

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  append_json_escaped(out, text);
  out += '"';
}

namespace {

bool is_same_number(const JsonValue& a, const JsonValue& b) {
  if (a.text() == b.text()) return true;
  if (is_integer_spelling(a.text()) && is_integer_spelling(b.text())) return false;
  return nearest_double(a.text()) == nearest_double(b.text());
}

bool is_same_object(const JsonValue& a, const JsonValue& b) {
  const auto left = a.merged_members();
  const auto right = b.merged_members();
  if (left.size() != right.size()) return false;
  const std::unordered_map<std::string_view, const JsonValue*> by_name(right.begin(), right.end());
  for (const auto& [name, member] : left) {
    const auto other = by_name.find(name);
    if (other == by_name.end() || !is_same_json(*member, *other->second)) return false;
  }
  return true;
}

}  // namespace

bool is_same_json(const JsonValue& a, const JsonValue& b) {
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case JsonValue::Kind::kNumber: return is_same_number(a, b);
    case JsonValue::Kind::kString: return a.text() == b.text();
    case JsonValue::Kind::kArray: {
      if (a.items().size() != b.items().size()) return false;
      for (size_t i = 0; i < a.items().size(); ++i) {
        if (!is_same_json(a.items()[i], b.items()[i])) return false;
      }
      return true;
    }
    case JsonValue::Kind::kObject: return is_same_object(a, b);
    default: return true;
  }
}

void JsonWriter::separate() {
  if (needs_comma_) text_ += style_ == Style::kPython ? ", " : ",";
  needs_comma_ = true;
}

JsonWriter& JsonWriter::open(char bracket) {
  separate();
  text_ += bracket;
  needs_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::close(char bracket) {
  text_ += bracket;
  needs_comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::raw(std::string_view token) {
  separate();
  text_ += token;
  return *this;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  separate();
  append_json_string(text_, name);
  text_ += style_ == Style::kPython ? ": " : ":";
  needs_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::string(std::string_view text) {
  separate();
  append_json_string(text_, text);
  return *this;
}

JsonWriter& JsonWriter::integer(int64_t value) { return raw(std::to_string(value)); }
JsonWriter& JsonWriter::real(double value) { return raw(python_real(value)); }
JsonWriter& JsonWriter::boolean(bool value) { return raw(value ? "true" : "false"); }
JsonWriter& JsonWriter::null() { return raw("null"); }

JsonWriter& JsonWriter::value(const JsonValue& value) {
  switch (value.kind()) {
    case JsonValue::Kind::kNull: return null();
    case JsonValue::Kind::kFalse: return boolean(false);
    case JsonValue::Kind::kTrue: return boolean(true);
    case JsonValue::Kind::kString: return string(value.text());
    case JsonValue::Kind::kNumber: {
      if (is_integer_spelling(value.text())) return raw(value.text() == "-0" ? "0" : value.text());
      const double real = nearest_double(value.text());
      if (std::isinf(real)) {
        // A float that overflows reads as infinity in Python, and prints so. That is no JSON, so compact text keeps it.
        if (style_ == Style::kCompact) return raw(value.text());
        return raw(real < 0 ? "-Infinity" : "Infinity");
      }
      return this->real(real);
    }
    case JsonValue::Kind::kArray:
      begin_array();
      for (const JsonValue& item : value.items()) this->value(item);
      return end_array();
    case JsonValue::Kind::kObject:
      begin_object();
      for (const auto& [name, member] : value.merged_members()) key(name).value(*member);
      return end_object();
  }
  return *this;
}

}  // namespace ps
