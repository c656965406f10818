// One HTTP/1.x request out of bytes that arrive in any pieces, within limits. The grammar is Beast's; this file's .cc
// is the only one that sees that library. No sockets: the connection feeds bytes, fuzzers do too.
// Threading: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "server/http_message.h"

namespace ps::server {

struct HttpLimits {
  int64_t header_bytes = 32 << 10;  // request line and headers together
  int64_t target_bytes = 8 << 10;
  int64_t body_bytes = 64 << 20;
};

class RequestParser {
 public:
  enum class State {
    kNothing,  // no byte of a request yet
    kHeader,   // inside the request line or the headers
    kBody,     // the headers are complete
    kDone,     // take() the request
    kFailed,   // error() says why; the connection cannot go on
  };

  explicit RequestParser(const HttpLimits& limits);
  ~RequestParser();
  RequestParser(RequestParser&&) noexcept;
  RequestParser& operator=(RequestParser&&) noexcept;

  // Takes bytes up to the end of the request and returns how many: those behind it belong to the next request.
  // REQUIRES: neither done nor failed.
  size_t push(std::string_view bytes);

  [[nodiscard]] State state() const noexcept;
  // The client waits for "100 Continue" before it sends the body. True once.
  [[nodiscard]] bool take_expectation() noexcept;
  // REQUIRES: kFailed.
  [[nodiscard]] const ApiError& error() const noexcept;
  // Moves the request out; the parser stands before the next one. REQUIRES: kDone.
  [[nodiscard]] HttpRequest take();

 private:
  class Grammar;
  HttpLimits limits_;
  std::unique_ptr<Grammar> grammar_;  // nullptr before the first byte
};

}  // namespace ps::server
