#include "server/api_error.h"

#include <utility>

#include "base/json.h"
#include "text/utf8.h"

namespace ps::server {
namespace {

constexpr const char* kInvalidRequest = "invalid_request_error";

std::string_view http_code(int status) {
  switch (status) {
    case 401: return "invalid_api_key";
    case 404: return "not_found";
    case 405: return "method_not_allowed";
    case 408: return "request_timeout";
    case 411: return "length_required";
    case 413: return "body_too_large";
    case 414: return "target_too_long";
    case 415: return "unsupported_media_type";
    case 417: return "expectation_failed";
    case 431: return "header_too_large";
    case 501: return "not_implemented";
    case 505: return "http_version_not_supported";
    default: return "bad_request";
  }
}

}  // namespace

ApiError ApiError::invalid(std::string message, std::string param) {
  return {400, kInvalidRequest, kInvalidRequest, std::move(message), std::move(param)};
}

ApiError ApiError::not_found(std::string message, std::string code, std::string param) {
  return {404, kInvalidRequest, std::move(code), std::move(message), std::move(param)};
}

ApiError ApiError::unavailable(std::string message, std::string code) {
  return {503, "server_error", std::move(code), std::move(message), {}};
}

ApiError ApiError::internal(std::string message) {
  return {500, "internal_error", "internal_error", std::move(message), {}};
}

ApiError ApiError::http(int status, std::string message) {
  if (status == 401) return {401, "authentication_error", std::string(http_code(401)), std::move(message), {}};
  if (status == 503) return unavailable(std::move(message), "overloaded");
  return {status, kInvalidRequest, std::string(http_code(status)), std::move(message), {}};
}

ApiError from_status(const Status& status, std::string param) {
  std::string message(status.message());
  switch (status.code()) {
    case Code::kInvalid:
    case Code::kUnsupported: return ApiError::invalid(std::move(message), std::move(param));
    case Code::kExhausted: {
      ApiError error = ApiError::invalid(std::move(message), std::move(param));
      error.code = kContextLengthExceeded;
      return error;
    }
    case Code::kNotFound: return ApiError::not_found(std::move(message), "not_found", std::move(param));
    case Code::kUnavailable:
    case Code::kCancelled: return ApiError::unavailable(std::move(message), "unavailable");
    case Code::kCorrupt:
    case Code::kInternal: break;
  }
  return ApiError::internal(std::move(message));
}

std::string error_body(const ApiError& error) {
  JsonWriter json(JsonWriter::Style::kCompact);
  const auto text_or_null = [&](std::string_view key, const std::string& text) {
    json.key(key);
    text.empty() ? json.null() : json.string(text);
  };
  json.begin_object().key("error").begin_object().key("message");
  json.string(text::lossy_utf8(error.message));  // it may repeat what a client sent
  text_or_null("type", error.type);
  text_or_null("param", error.param);
  text_or_null("code", error.code);
  json.end_object().end_object();
  return std::move(json).text();
}

}  // namespace ps::server
