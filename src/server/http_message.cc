#include "server/http_message.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <random>
#include <utility>

namespace ps::server {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string http_date() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[40];
  const size_t length = std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &parts);
  return {text, length};
}

}  // namespace

std::string_view HttpRequest::header(std::string_view name) const noexcept {
  for (const HttpHeader& header : headers) {
    if (header.name == name) return header.value;
  }
  return {};
}

HttpReply json_reply(std::string body, int status) {
  HttpReply reply;
  reply.status = status;
  reply.body = std::move(body);
  return reply;
}

HttpReply error_reply(const ApiError& error) {
  HttpReply reply = json_reply(error_body(error), error.status);
  if (error.status == 503) reply.headers.push_back({"Retry-After", "1"});
  if (error.status == 401) reply.headers.push_back({"WWW-Authenticate", "Bearer"});
  return reply;
}

std::string reply_head(int status, std::span<const HttpHeader> headers) {
  std::string head = fmt::format("HTTP/1.1 {} {}\r\nDate: {}\r\n", status, reason_phrase(status), http_date());
  for (const HttpHeader& header : headers) head.append(header.name).append(": ").append(header.value).append("\r\n");
  return head;
}

std::string make_request_id() {
  thread_local std::mt19937_64 random{std::random_device{}()};
  return fmt::format("req-{:016x}{:016x}", random(), random());
}

std::span<const HttpStatus> http_statuses() noexcept {
  static constexpr HttpStatus kStatuses[] = {{200, "OK"},
                                             {204, "No Content"},
                                             {304, "Not Modified"},
                                             {400, "Bad Request"},
                                             {401, "Unauthorized"},
                                             {404, "Not Found"},
                                             {405, "Method Not Allowed"},
                                             {408, "Request Timeout"},
                                             {411, "Length Required"},
                                             {413, "Content Too Large"},
                                             {414, "URI Too Long"},
                                             {415, "Unsupported Media Type"},
                                             {417, "Expectation Failed"},
                                             {431, "Request Header Fields Too Large"},
                                             {500, "Internal Server Error"},
                                             {501, "Not Implemented"},
                                             {503, "Service Unavailable"},
                                             {505, "HTTP Version Not Supported"}};
  return kStatuses;
}

std::string_view reason_phrase(int status) noexcept {
  for (const HttpStatus& known : http_statuses()) {
    if (known.status == status) return known.phrase;
  }
  return "Status";
}

bool is_echoable_id(std::string_view text) noexcept {
  return !text.empty() && text.size() <= 128 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f; });
}

bool percent_decode(std::string_view text, std::string& out) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return false;
    const int high = hex_digit(text[i + 1]);
    const int low = hex_digit(text[i + 2]);
    if (high < 0 || low < 0 || high + low == 0) return false;
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return true;
}

std::string lower_ascii(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

std::string_view trim_spaces(std::string_view text) noexcept {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

}  // namespace ps::server
