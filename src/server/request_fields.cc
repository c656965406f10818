#include "server/request_fields.h"

#include <fmt/format.h>

#include <utility>

namespace ps::server {
namespace {

constexpr int kJsonDepth = 64;

ApiError wrong_kind(std::string_view name, const JsonValue& value, std::string_view wanted) {
  return ApiError::invalid(fmt::format("{} is {}; it must be {}", name, value.kind_name(), wanted), std::string(name));
}

}  // namespace

std::optional<ApiError> parse_object(std::string_view body, JsonValue& object) {
  auto parsed = JsonValue::parse(body, {.bytes = std::ssize(body), .depth = kJsonDepth});
  if (!parsed.ok()) return ApiError::invalid("the body is no JSON: " + std::string(parsed.status().message()));
  object = std::move(parsed).value();
  if (object.is_object()) return std::nullopt;
  return ApiError::invalid(fmt::format("the body is {}; it must be an object", object.kind_name()));
}

const JsonValue* RequestFields::find(std::string_view name) const {
  const JsonValue* value = object_.find(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

int64_t RequestFields::integer(std::string_view name, int64_t fallback, int64_t least, int64_t most) {
  const JsonValue* value = find(name);
  if (value == nullptr) return fallback;
  const std::string legal = fmt::format("an integer, {} to {}", least, most);
  if (!value->is_number()) {
    fail(wrong_kind(name, *value, legal));
    return fallback;
  }
  const auto number = value->integer();
  if (number.ok() && number.value() >= least && number.value() <= most) return number.value();
  fail(ApiError::invalid(fmt::format("{} is {}; it must be {}", name, value->text(), legal), std::string(name)));
  return fallback;
}

double RequestFields::real(std::string_view name, double fallback, double least, double most) {
  const JsonValue* value = find(name);
  if (value == nullptr) return fallback;
  const std::string legal = fmt::format("a number, {} to {}", least, most);
  if (!value->is_number()) {
    fail(wrong_kind(name, *value, legal));
    return fallback;
  }
  const auto number = value->real();
  if (number.ok() && number.value() >= least && number.value() <= most) return number.value();
  fail(ApiError::invalid(fmt::format("{} is {}; it must be {}", name, value->text(), legal), std::string(name)));
  return fallback;
}

bool RequestFields::boolean(std::string_view name, bool fallback) {
  const JsonValue* value = find(name);
  if (value == nullptr) return fallback;
  if (value->is_bool()) return value->boolean();
  fail(wrong_kind(name, *value, "true or false"));
  return fallback;
}

std::string RequestFields::string(std::string_view name) {
  const JsonValue* value = find(name);
  if (value == nullptr) return {};
  if (value->is_string()) return value->text();
  fail(wrong_kind(name, *value, "a string"));
  return {};
}

void RequestFields::fail(ApiError error) {
  if (!error_) error_ = std::move(error);
}

}  // namespace ps::server
