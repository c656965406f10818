// Typed access to the fields of a JSON object that may lie deep in a request body. An error names the field by its path
// ("messages[1].content[0].type") and says what is legal there.
//
// Adds to base/json_fields.h what surfaces with deep bodies need: values instead of targets, ranges, and choices.
// Must not know: which surface asks. Threading: plain values; the JSON value must outlive the reader.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json_fields.h"
#include "base/status.h"

namespace ps::server {

struct NumberRange {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool excludes_low = false;
};

class ObjectReader : public JsonFields {
 public:
  // invalid unless `value` is an object. `path` is empty for the body itself.
  [[nodiscard]] static Result<ObjectReader> of(const JsonValue& value, std::string path = {});

  [[nodiscard]] bool has(std::string_view key) const noexcept { return find(key) != nullptr; }
  // "<path of key>: <problem>"
  [[nodiscard]] Status error(std::string_view key, std::string_view problem) const;

  [[nodiscard]] Result<std::optional<std::string>> string(std::string_view key) const;
  [[nodiscard]] Result<std::string> required_string(std::string_view key) const;
  // As required_string(), and not empty.
  [[nodiscard]] Result<std::string> required_name(std::string_view key) const;
  [[nodiscard]] Result<std::optional<bool>> boolean(std::string_view key) const;
  [[nodiscard]] Result<std::optional<int64_t>> integer(std::string_view key, int64_t low, int64_t high) const;
  [[nodiscard]] Result<std::optional<double>> number(std::string_view key, const NumberRange& range) const;
  // The items of an array; none when it is absent.
  [[nodiscard]] Result<std::span<const JsonValue>> items(std::string_view key) const;
  [[nodiscard]] Result<std::optional<ObjectReader>> inner(std::string_view key) const;
  // At most `most` strings.
  [[nodiscard]] Result<std::vector<std::string>> strings(std::string_view key, size_t most) const;
  // A string that must be one of `legal`.
  [[nodiscard]] Result<std::optional<std::string>> choice(std::string_view key,
                                                          std::initializer_list<std::string_view> legal) const;
  [[nodiscard]] Result<std::string> required_choice(std::string_view key,
                                                    std::initializer_list<std::string_view> legal) const;

 private:
  explicit ObjectReader(JsonFields fields) : JsonFields(std::move(fields)) {}
};

// "<path>[<index>]"
[[nodiscard]] std::string item_path(std::string_view path, size_t index);
// "expected a string, found a number", "legal values are a, b and c"
[[nodiscard]] std::string expected(std::string_view what, const JsonValue& found);
[[nodiscard]] std::string legal_values(std::initializer_list<std::string_view> legal);

}  // namespace ps::server
