// One HTTP request and one complete reply as plain data (RFC 9112); no sockets, no routes.
// Threading: plain values; of a parsed request only the body may still be moved out, by its handler.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/api_error.h"

namespace ps::server {

struct HttpHeader {
  std::string name;  // lower case in a request
  std::string value;
};

struct HttpRequest {
  std::string method;  // as spelled: "GET"
  std::string path;    // percent-decoded, without the query; begins with '/', or is "*"
  std::string query;   // raw, without '?'
  int version_minor = 1;
  std::vector<HttpHeader> headers;
  std::string body;
  bool keeps_alive = true;  // the client lets the connection live on
  // Set by the server, not by the parser.
  std::string id;      // X-Request-Id, echoed or made
  std::string client;  // address

  // The first header of that lower-case name; empty when there is none.
  [[nodiscard]] std::string_view header(std::string_view name) const noexcept;
};

struct HttpReply {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<HttpHeader> headers;  // further ones
  std::string body;
};

[[nodiscard]] HttpReply json_reply(std::string body, int status = 200);
// Adds Retry-After to a 503.
[[nodiscard]] HttpReply error_reply(const ApiError& error);

// A reply up to its last header: status line, Date, and `headers` in this order. The empty line is still to come.
[[nodiscard]] std::string reply_head(int status, std::span<const HttpHeader> headers);
// "req-" and 32 random hexadecimal digits.
[[nodiscard]] std::string make_request_id();

struct HttpStatus {
  int status = 0;
  std::string_view phrase;
};
// Every status that is ever sent, ascending; docs/serve.md has them all.
[[nodiscard]] std::span<const HttpStatus> http_statuses() noexcept;
// "Not Found"; "Status" for a number without a phrase.
[[nodiscard]] std::string_view reason_phrase(int status) noexcept;

// The value of an X-Request-Id that may be echoed: 1 to 128 visible ASCII characters. Otherwise false.
[[nodiscard]] bool is_echoable_id(std::string_view text) noexcept;

// Percent-decodes `text` onto `out`; false for a broken escape or an encoded zero byte.
[[nodiscard]] bool percent_decode(std::string_view text, std::string& out);

[[nodiscard]] std::string lower_ascii(std::string_view text);
[[nodiscard]] std::string_view trim_spaces(std::string_view text) noexcept;

}  // namespace ps::server
