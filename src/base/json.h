// JSON reading into an owned tree, and an append-only writer with Python's json.dumps spelling (encoding.md 2.0).
//
// The reader keeps the spelling of numbers, so 64-bit integers stay exact (pitfalls D2) and prompts can repeat them.
// Every parse has a size and a depth limit. Objects keep the order and the duplicates of the text; find() gives the
// last value of a key, as Python does. Threading: values are immutable after parsing and may be read from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace ps {

struct JsonLimits {
  int64_t bytes = 64 << 20;  // of the text
  int depth = 64;            // of nested arrays and objects
};

class JsonValue {
 public:
  enum class Kind : uint8_t { kNull, kFalse, kTrue, kNumber, kString, kArray, kObject };
  using Member = std::pair<std::string, JsonValue>;

  // invalid, with the reason, for malformed text, bad UTF-8 or a crossed limit. NOTE: one complete value, nothing
  // after it.
  static Result<JsonValue> parse(std::string_view text, const JsonLimits& limits = {});

  [[nodiscard]] Kind kind() const noexcept { return kind_; }
  [[nodiscard]] bool is_null() const noexcept { return kind_ == Kind::kNull; }
  [[nodiscard]] bool is_bool() const noexcept { return kind_ == Kind::kTrue || kind_ == Kind::kFalse; }
  [[nodiscard]] bool is_number() const noexcept { return kind_ == Kind::kNumber; }
  [[nodiscard]] bool is_string() const noexcept { return kind_ == Kind::kString; }
  [[nodiscard]] bool is_array() const noexcept { return kind_ == Kind::kArray; }
  [[nodiscard]] bool is_object() const noexcept { return kind_ == Kind::kObject; }

  // REQUIRES: is_bool()
  [[nodiscard]] bool boolean() const noexcept { return kind_ == Kind::kTrue; }
  // The decoded string, or the number as spelled. REQUIRES: is_string() or is_number()
  [[nodiscard]] const std::string& text() const noexcept { return text_; }
  // REQUIRES: is_array()
  [[nodiscard]] const std::vector<JsonValue>& items() const noexcept { return items_; }
  // In text order, duplicates included. REQUIRES: is_object()
  [[nodiscard]] const std::vector<Member>& members() const noexcept { return members_; }

  // An integer spelled without point or exponent that fits; otherwise invalid.
  [[nodiscard]] Result<int64_t> integer() const;
  // Any number, rounded to double; infinite values are invalid.
  [[nodiscard]] Result<double> real() const;

  // The last member of that name, or nullptr (also when this is no object).
  [[nodiscard]] const JsonValue* find(std::string_view key) const noexcept;
  // Each name once, at its first place and with its last value, as Python's dict. Views into this object.
  // REQUIRES: is_object()
  [[nodiscard]] std::vector<std::pair<std::string_view, const JsonValue*>> merged_members() const;
  // The first key that occurs twice in this object, or nullptr.
  [[nodiscard]] const std::string* duplicate_key() const;

  // "null", "a number", ... for messages.
  [[nodiscard]] std::string_view kind_name() const noexcept;

 private:
  friend class JsonReader;
  Kind kind_ = Kind::kNull;
  std::string text_;
  std::vector<JsonValue> items_;
  std::vector<Member> members_;
};

// Appends JSON text. Separators are ", " and ": " (Python's default) or "," and ":" in compact style; non-ASCII
// characters are written raw. The caller keeps the nesting right; commas are placed here.
class JsonWriter {
 public:
  enum class Style { kPython, kCompact };
  explicit JsonWriter(Style style = Style::kPython) : style_(style) { text_.reserve(kFirstBytes); }

  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }
  JsonWriter& key(std::string_view name);
  JsonWriter& string(std::string_view text);
  JsonWriter& integer(int64_t value);
  // Python's repr: shortest digits, exponent form below 1e-4 or from 1e16. REQUIRES: finite.
  JsonWriter& real(double value);
  JsonWriter& boolean(bool value);
  JsonWriter& null();
  // A value of a parsed tree, numbers as spelled (floats in Python's repr), duplicate keys merged as Python does.
  JsonWriter& value(const JsonValue& value);
  // A value that is JSON text already. REQUIRES: it is well-formed.
  JsonWriter& json(std::string_view text) { return raw(text); }
  // Members of the open object that are JSON text already, as a writer without that object wrote them.
  JsonWriter& members(std::string_view text) { return raw(text); }

  [[nodiscard]] const std::string& text() const& noexcept { return text_; }
  [[nodiscard]] std::string&& text() && noexcept { return std::move(text_); }

 private:
  void separate();
  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);
  JsonWriter& raw(std::string_view token);

  static constexpr size_t kFirstBytes = 256;  // an event of a stream fits
  Style style_;
  std::string text_;
  bool needs_comma_ = false;
};

// `text` between quotes with JSON escapes: \" \\ \n \r \t \b \f and \u00xx for the other control characters.
void append_json_string(std::string& out, std::string_view text);
// The same without the quotes, for a string that is written in parts.
void append_json_escaped(std::string& out, std::string_view text);

// Whether two values mean the same: objects without regard to order, the last of duplicate keys counting; integers by
// their digits, other numbers as doubles.
[[nodiscard]] bool is_same_json(const JsonValue& a, const JsonValue& b);

}  // namespace ps
