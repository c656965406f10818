// What a client is told when its request fails, in the shape that OpenAI clients read:
//   {"error": {"message", "type", "param", "code"}}
// Made only in this module; lower modules speak in Status. Threading: plain values.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace ps::server {

// Code of a prompt and an answer that the context does not hold.
inline constexpr std::string_view kContextLengthExceeded = "context_length_exceeded";

struct ApiError {
  int status = 500;  // of HTTP
  std::string type;  // class of the error: "invalid_request_error", ...
  std::string code;  // the particular one; empty: null
  std::string message;
  std::string param;  // the offending field; empty: null

  // 400. `param` names the field.
  [[nodiscard]] static ApiError invalid(std::string message, std::string param = {});
  [[nodiscard]] static ApiError not_found(std::string message, std::string code, std::string param = {});
  // 503: try again later.
  [[nodiscard]] static ApiError unavailable(std::string message, std::string code);
  [[nodiscard]] static ApiError internal(std::string message);
  // Faults of the HTTP layer, with the type and code that go with the status.
  [[nodiscard]] static ApiError http(int status, std::string message);
};

// A refusal of a lower module. `param` names the field that it concerns.
[[nodiscard]] ApiError from_status(const Status& status, std::string param = {});

// The body, one line of JSON.
[[nodiscard]] std::string error_body(const ApiError& error);

}  // namespace ps::server
