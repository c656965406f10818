// What the HTTP server is told: address, limits, times. Plain values.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "server/http_parser.h"

namespace ps::server {

struct HttpOptions {
  std::string host = "127.0.0.1";
  int port = 0;  // 0: any free one
  HttpLimits limits;
  int64_t max_connections = 4096;
  int64_t max_pending_bytes = 4 << 20;  // queued for one stream; beyond it the client is dropped
  double header_seconds = 15;           // from the first byte of a request to the end of its headers
  double body_seconds = 30;             // without a byte of the body, and in sum beyond what body_rate allows
  double body_rate = 1024;              // bytes per second that a body comes with at least
  double idle_seconds = 90;             // between requests
  double write_seconds = 60;            // without progress while bytes wait to be sent
  double keep_alive_seconds = 5;        // of silence in a stream before a comment is sent
};
// invalid, naming the option and its legal values.
[[nodiscard]] Status check(const HttpOptions& options);

}  // namespace ps::server
