// Reading the fields of a request's JSON object. The first illegal field decides the error; reading on after it is
// harmless and gives defaults, so that a surface reads all its fields and asks once. JSON null counts as absent.
// Threading: one thread at a time; the object outlives the reader.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "server/api_error.h"

namespace ps::server {

class RequestFields {
 public:
  // REQUIRES: object.is_object().
  explicit RequestFields(const JsonValue& object) : object_(object) {}

  // The field's value, or nullptr when absent.
  [[nodiscard]] const JsonValue* find(std::string_view name) const;
  // `fallback` when absent. Out of [least, most] is an error that names both.
  [[nodiscard]] int64_t integer(std::string_view name, int64_t fallback, int64_t least, int64_t most);
  [[nodiscard]] double real(std::string_view name, double fallback, double least, double most);
  [[nodiscard]] bool boolean(std::string_view name, bool fallback);
  [[nodiscard]] std::string string(std::string_view name);

  // Keeps the first.
  void fail(ApiError error);
  [[nodiscard]] const std::optional<ApiError>& error() const noexcept { return error_; }

 private:
  const JsonValue& object_;
  std::optional<ApiError> error_;
};

// A request's body as a JSON object, or the 400 that says what is wrong with it.
[[nodiscard]] std::optional<ApiError> parse_object(std::string_view body, JsonValue& object);

}  // namespace ps::server
