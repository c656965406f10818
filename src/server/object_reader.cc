#include "server/object_reader.h"

#include <algorithm>

#include "base/macros.h"

namespace ps::server {

namespace {

std::string spell(double value) { return JsonWriter().real(value).text(); }

std::string range_text(const NumberRange& range) {
  const bool has_low = range.low > -std::numeric_limits<double>::infinity();
  const bool has_high = range.high < std::numeric_limits<double>::infinity();
  std::string text = "must be a number";
  if (has_low) text += (range.excludes_low ? " above " : " of at least ") + spell(range.low);
  if (has_high) text += (has_low ? " and at most " : " of at most ") + spell(range.high);
  return text;
}

}  // namespace

std::string item_path(std::string_view path, size_t index) {
  return std::string(path) + '[' + std::to_string(index) + ']';
}

std::string expected(std::string_view what, const JsonValue& found) {
  return "expected " + std::string(what) + ", found " + std::string(found.kind_name());
}

std::string legal_values(std::initializer_list<std::string_view> legal) {
  std::string text = legal.size() == 1 ? "the legal value is " : "legal values are ";
  size_t at = 0;
  for (const std::string_view value : legal) {
    if (at > 0) text += at + 1 == legal.size() ? " and " : ", ";
    text += value;
    ++at;
  }
  return text;
}

Result<ObjectReader> ObjectReader::of(const JsonValue& value, std::string path) {
  if (path.empty() && !value.is_object()) return Status::invalid("the request body: " + expected("an object", value));
  PS_TRY(JsonFields fields, JsonFields::of(value, std::move(path)));
  return ObjectReader(std::move(fields));
}

Status ObjectReader::error(std::string_view key, std::string_view problem) const {
  return Status::invalid(path_of(key) + ": " + std::string(problem));
}

Result<std::optional<std::string>> ObjectReader::string(std::string_view key) const {
  std::optional<std::string> value;
  PS_RETURN_IF_ERROR(read(key, value));
  return value;
}

Result<std::string> ObjectReader::required_string(std::string_view key) const {
  PS_TRY(std::optional<std::string> value, string(key));
  if (!value.has_value()) return error(key, "is required, a string");
  return *std::move(value);
}

Result<std::string> ObjectReader::required_name(std::string_view key) const {
  PS_TRY(std::string value, required_string(key));
  if (value.empty()) return error(key, "must not be empty");
  return value;
}

Result<std::optional<bool>> ObjectReader::boolean(std::string_view key) const {
  std::optional<bool> value;
  PS_RETURN_IF_ERROR(read(key, value));
  return value;
}

Result<std::optional<int64_t>> ObjectReader::integer(std::string_view key, int64_t low, int64_t high) const {
  const JsonValue* value = find(key);
  if (value == nullptr) return std::optional<int64_t>();
  const std::string legal = high == std::numeric_limits<int64_t>::max()
                                ? "must be an integer of at least " + std::to_string(low)
                                : "must be an integer from " + std::to_string(low) + " to " + std::to_string(high);
  if (!value->is_number()) return error(key, legal + ", found " + std::string(value->kind_name()));
  const Result<int64_t> number = value->integer();
  if (!number.ok() || number.value() < low || number.value() > high)
    return error(key, legal + ", found " + value->text());
  return std::optional(number.value());
}

Result<std::optional<double>> ObjectReader::number(std::string_view key, const NumberRange& range) const {
  const JsonValue* value = find(key);
  if (value == nullptr) return std::optional<double>();
  if (!value->is_number()) return error(key, range_text(range) + ", found " + std::string(value->kind_name()));
  const Result<double> number = value->real();
  const bool is_legal = number.ok() && number.value() <= range.high &&
                        (range.excludes_low ? number.value() > range.low : number.value() >= range.low);
  if (!is_legal) return error(key, range_text(range) + ", found " + value->text());
  return std::optional(number.value());
}

Result<std::span<const JsonValue>> ObjectReader::items(std::string_view key) const {
  PS_TRY(const JsonValue* const value, array(key));
  return value == nullptr ? std::span<const JsonValue>() : std::span<const JsonValue>(value->items());
}

Result<std::optional<ObjectReader>> ObjectReader::inner(std::string_view key) const {
  const JsonValue* value = find(key);
  if (value == nullptr) return std::optional<ObjectReader>();
  PS_TRY(ObjectReader fields, of(*value, path_of(key)));
  return std::optional(std::move(fields));
}

Result<std::vector<std::string>> ObjectReader::strings(std::string_view key, size_t most) const {
  std::vector<std::string> texts;
  PS_TRY(const std::span<const JsonValue> all, items(key));
  if (all.size() > most) {
    return error(key, "at most " + std::to_string(most) + " strings are allowed, found " + std::to_string(all.size()));
  }
  for (size_t i = 0; i < all.size(); ++i) {
    const JsonValue& item = all[i];
    if (!item.is_string()) return error(item_path(key, i), expected("a string", item));
    texts.push_back(item.text());
  }
  return texts;
}

Result<std::optional<std::string>> ObjectReader::choice(std::string_view key,
                                                        std::initializer_list<std::string_view> legal) const {
  if (!has(key)) return std::optional<std::string>();
  PS_TRY(std::string value, required_choice(key, legal));
  return std::optional(std::move(value));
}

Result<std::string> ObjectReader::required_choice(std::string_view key,
                                                  std::initializer_list<std::string_view> legal) const {
  if (!has(key)) return error(key, "is required; " + legal_values(legal));
  PS_TRY(std::string value, required_string(key));
  if (std::find(legal.begin(), legal.end(), value) != legal.end()) return value;
  return error(key, "\"" + value + "\" is not supported; " + legal_values(legal));
}

}  // namespace ps::server
