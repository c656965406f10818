#include "server/http_parser.h"

#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <string>
#include <utility>

namespace ps::server {
namespace {

namespace http = boost::beast::http;
using boost::beast::error_code;
using boost::beast::string_view;

// Unread bytes of the head, or of one line between chunks.
constexpr size_t kChunkLineBytes = 4096;

std::string_view view(string_view text) { return {text.data(), text.size()}; }

ApiError too_long_target(int64_t limit) {
  return ApiError::http(414, "the request target is longer than " + std::to_string(limit) + " bytes");
}

// A request through a proxy names the server once more, "http://host/path" (RFC 9112 3.2.2). There is one server here:
// who is named does not matter.
std::string_view without_origin(std::string_view target) {
  constexpr std::string_view kScheme = "http://";
  const bool has_origin =
      target.size() >= kScheme.size() && boost::beast::iequals(target.substr(0, kScheme.size()), kScheme);
  if (!has_origin) return target;
  const size_t path = target.find_first_of("/?", kScheme.size());
  return path == std::string_view::npos || target[path] == '?' ? "/" : target.substr(path);
}

bool has_bare_line_feed(std::string_view text) {
  const size_t feed = text.find('\n');
  return feed != std::string_view::npos && (feed == 0 || text[feed - 1] != '\r');
}

// Whether the request line ends as it must, with a version of HTTP: only then the version is what is wrong with it.
bool has_whole_version(std::string_view input) {
  const std::string_view line = input.substr(0, input.find("\r\n"));
  constexpr std::string_view kName = " HTTP/";
  constexpr size_t kLength = kName.size() + 3;  // and "1.1"
  if (line.size() == input.size() || line.size() < kLength || line.find('\n') != std::string_view::npos) return false;
  const std::string_view version = line.substr(line.size() - kLength);
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return version.starts_with(kName) && is_digit(version[kName.size()]) && version[kName.size() + 1] == '.' &&
         is_digit(version.back());
}

}  // namespace

class RequestParser::Grammar final : public http::basic_parser<true> {
 public:
  explicit Grammar(const HttpLimits& limits) : limits_(limits) {
    eager(true);
    header_limit(static_cast<uint32_t>(limits.header_bytes));
    body_limit(static_cast<uint64_t>(limits.body_bytes));
  }

  State state = State::kHeader;
  HttpRequest request;
  ApiError failure;
  bool expects_continue = false;

  size_t push(std::string_view bytes) {
    // Parts of a line stay in pending_ until the line is whole; bodies pass through without a copy.
    const size_t pending_before = pending_.size();
    if (pending_before > 0) {
      pending_.append(bytes.substr(0, room() - std::min(room(), pending_before)));
    }
    const std::string_view input = pending_before > 0 ? std::string_view(pending_) : bytes;
    error_code error;
    const size_t used = input.empty() ? 0 : put({input.data(), input.size()}, error);
    if (error == http::error::need_more) error = {};
    // The library would wait on for the end of such a line.
    if (!error && !has_request_line_ && has_bare_line_feed(input.substr(used))) error = http::error::bad_line_ending;
    if (error) {
      fail(error, input);
      return bytes.size();
    }
    if (is_done()) {
      state = State::kDone;
      pending_.clear();
      return used - std::min(used, pending_before);
    }
    if (pending_before > 0) {
      const size_t taken = pending_.size() - pending_before;
      pending_.erase(0, used);
      if (state == State::kBody && pending_.empty()) pending_.shrink_to_fit();
      if (pending_.size() >= room()) overflow(pending_);
      return taken;
    }
    pending_.assign(bytes.substr(used, room()));
    if (bytes.size() - used > pending_.size() || pending_.size() >= room()) overflow(pending_);
    return bytes.size();
  }

 private:
  [[nodiscard]] size_t room() const {
    return state == State::kHeader ? static_cast<size_t>(limits_.header_bytes) : kChunkLineBytes;
  }

  void fail(ApiError error) {
    if (state == State::kFailed) return;
    failure = std::move(error);
    state = State::kFailed;
  }

  void overflow(std::string_view unread) {
    if (state == State::kBody) return fail(ApiError::http(400, "a chunk header or trailer is too long"));
    if (state != State::kHeader) return;
    if (!has_request_line_ && unread.find('\n') == std::string_view::npos)
      return fail(too_long_target(limits_.target_bytes));
    fail(too_long_head());
  }

  [[nodiscard]] ApiError too_long_head() const {
    return ApiError::http(431, "the headers are longer than " + std::to_string(limits_.header_bytes) + " bytes");
  }

  void fail(error_code error, std::string_view input) {
    if (error == http::error::body_limit) {
      return fail(ApiError::http(413, "the body is longer than " + std::to_string(limits_.body_bytes) + " bytes"));
    }
    if (error == http::error::header_limit) return overflow(input);
    if (error == http::error::bad_version && has_whole_version(input)) {
      return fail(ApiError::http(505, "the HTTP version is not supported; legal values are HTTP/1.1 and HTTP/1.0"));
    }
    fail(ApiError::http(400, "malformed HTTP request: " + error.message()));
  }

  // Any code ends the parse; the failure says the rest.
  void refuse(ApiError why, error_code& error) {
    fail(std::move(why));
    error = http::error::bad_field;
  }

  void on_request_impl(http::verb, string_view method, string_view target, int version, error_code& error) override {
    has_request_line_ = true;
    request.method = view(method);
    request.version_minor = version - 10;
    if (static_cast<int64_t>(target.size()) > limits_.target_bytes) {
      return refuse(too_long_target(limits_.target_bytes), error);
    }
    const std::string_view whole = without_origin(view(target));
    const size_t mark = whole.find('?');
    if (mark != std::string_view::npos) request.query = whole.substr(mark + 1);
    const bool is_decoded = percent_decode(whole.substr(0, mark), request.path);
    if (!is_decoded || (request.path != "*" && !request.path.starts_with('/'))) {
      refuse(ApiError::http(400, "the request target is no path"), error);
    }
  }

  void on_field_impl(http::field, string_view name, string_view value, error_code& error) override {
    if (state == State::kBody) return;  // a trailer
    request.headers.push_back({lower_ascii(view(name)), std::string(view(value))});
    const HttpHeader& header = request.headers.back();
    if (header.name == "host") ++hosts_;
    if (header.name == "transfer-encoding" && lower_ascii(header.value) != "chunked") {
      refuse(ApiError::http(501, "Transfer-Encoding is " + header.value + "; the legal value is chunked"), error);
    }
  }

  void on_header_impl(error_code& error) override {
    const bool is_new = request.version_minor >= 1;
    if (hosts_ > 1 || (is_new && hosts_ == 0)) {
      return refuse(ApiError::http(400, "exactly one Host header is needed"), error);
    }
    const std::string method = request.method;
    const bool has_length = chunked() || !request.header("content-length").empty();
    if (!has_length && (method == "POST" || method == "PUT" || method == "PATCH")) {
      return refuse(ApiError::http(411, "a " + method + " needs Content-Length or Transfer-Encoding: chunked"), error);
    }
    request.keeps_alive = keep_alive();
    const std::string expectation = lower_ascii(request.header("expect"));
    if (!expectation.empty() && expectation != "100-continue") {
      return refuse(ApiError::http(417, "Expect is " + expectation + "; the legal value is 100-continue"), error);
    }
    expects_continue = is_new && !expectation.empty();
    state = State::kBody;
  }

  // NOTE: nothing is reserved from Content-Length: it is a claim, and memory follows what arrives.
  void on_body_init_impl(const boost::optional<std::uint64_t>&, error_code&) override {}
  std::size_t on_body_impl(string_view body, error_code&) override {
    request.body.append(view(body));
    return body.size();
  }
  void on_chunk_header_impl(std::uint64_t, string_view, error_code&) override {}
  std::size_t on_chunk_body_impl(std::uint64_t, string_view body, error_code& error) override {
    if (static_cast<int64_t>(request.body.size() + body.size()) > limits_.body_bytes) {
      error = http::error::body_limit;
      return 0;
    }
    request.body.append(view(body));
    return body.size();
  }
  void on_finish_impl(error_code&) override {}
  void on_response_impl(int, string_view, int, error_code&) override {}

  HttpLimits limits_;
  std::string pending_;
  int hosts_ = 0;
  bool has_request_line_ = false;
};

RequestParser::RequestParser(const HttpLimits& limits) : limits_(limits) {}
RequestParser::~RequestParser() = default;
RequestParser::RequestParser(RequestParser&&) noexcept = default;
RequestParser& RequestParser::operator=(RequestParser&&) noexcept = default;

size_t RequestParser::push(std::string_view bytes) {
  size_t skipped = 0;
  if (grammar_ == nullptr) {
    // Empty lines before a request are legal (RFC 9112 2.2).
    while (skipped < bytes.size() && (bytes[skipped] == '\r' || bytes[skipped] == '\n')) ++skipped;
    if (skipped == bytes.size()) return skipped;
    grammar_ = std::make_unique<Grammar>(limits_);
  }
  return skipped + grammar_->push(bytes.substr(skipped));
}

RequestParser::State RequestParser::state() const noexcept {
  return grammar_ == nullptr ? State::kNothing : grammar_->state;
}

bool RequestParser::take_expectation() noexcept {
  return grammar_ != nullptr && std::exchange(grammar_->expects_continue, false);
}

const ApiError& RequestParser::error() const noexcept { return grammar_->failure; }

HttpRequest RequestParser::take() {
  HttpRequest request = std::move(grammar_->request);
  grammar_.reset();
  return request;
}

}  // namespace ps::server
