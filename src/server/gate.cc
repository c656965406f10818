#include "server/gate.h"

#include <fmt/format.h>

#include <utility>

#include "base/json.h"
#include "base/log.h"
#include "server/page_files.h"
#include "text/utf8.h"

namespace ps::server {
namespace {

// Open to everybody: a load balancer has no key, and a browser that loads the page has none yet.
bool is_public(const HttpRequest& request) {
  return request.path == "/health" || find_page_file(request.path) != nullptr;
}

std::string quoted(std::string_view text) {
  std::string out;
  append_json_string(out, text::lossy_utf8(text));
  return out;
}

}  // namespace

bool equal_secrets(std::string_view a, std::string_view b) noexcept {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    const char other = b.empty() ? '\0' : b[i % b.size()];
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(other);
  }
  return difference == 0;
}

Gate::Gate(const Router& router, Metrics& metrics, GateOptions options)
    : router_(router), metrics_(metrics), options_(std::move(options)) {}

void Gate::add_headers(const HttpRequest&, std::vector<HttpHeader>& headers) {
  if (options_.cors_origin.empty()) return;
  headers.push_back({"Access-Control-Allow-Origin", options_.cors_origin});
  headers.push_back({"Access-Control-Expose-Headers", "X-Request-Id, Retry-After"});
  if (options_.cors_origin != "*") headers.push_back({"Vary", "Origin"});
}

bool Gate::is_authorized(const HttpRequest& request) const {
  if (options_.api_key.empty() || is_public(request)) return true;
  const std::string_view named = request.header("x-api-key");
  if (!named.empty() && equal_secrets(named, options_.api_key)) return true;
  const std::string_view authorization = request.header("authorization");
  constexpr std::string_view kBearer = "bearer ";
  return lower_ascii(authorization.substr(0, kBearer.size())) == kBearer &&
         equal_secrets(trim_spaces(authorization.substr(kBearer.size())), options_.api_key);
}

HttpReply Gate::preflight(const HttpRequest& request) const {
  HttpReply reply;
  reply.status = 204;
  reply.headers.push_back({"Access-Control-Allow-Methods", router_.allowed(request.path) + ", OPTIONS"});
  reply.headers.push_back(
      {"Access-Control-Allow-Headers", "Authorization, Content-Type, X-Api-Key, X-Request-Id, Anthropic-Version"});
  reply.headers.push_back({"Access-Control-Max-Age", "600"});
  return reply;
}

void Gate::handle(std::shared_ptr<HttpRequest> request, std::shared_ptr<Responder> responder) {
  // A browser sends no key with its preflight.
  if (request->method == "OPTIONS" && !options_.cors_origin.empty() && !router_.allowed(request->path).empty()) {
    return responder->reply(preflight(*request));
  }
  if (!is_authorized(*request)) {
    return responder->reply(error_reply(ApiError::http(
        401, "the API key is missing or wrong; send it as \"Authorization: Bearer KEY\" or \"x-api-key: KEY\"")));
  }
  const Router::Match match = router_.find(*request);
  if (match.handler == nullptr) return responder->reply(match.error);
  (*match.handler)({request, match.rest}, std::move(responder));
}

void Gate::finished(const AccessRecord& record) {
  if (record.request == nullptr) {
    metrics_.count_http("", record.status, record.seconds);
    log_info(fmt::format("event=request client={} status={} malformed=1", record.client, record.status));
    return;
  }
  const HttpRequest& request = *record.request;
  metrics_.count_http(router_.find(request).route, record.status, record.seconds);
  log_info(fmt::format("event=request id={} client={} method={} path={} status={} bytes={} seconds={:.3f}",
                       quoted(request.id), record.client, quoted(request.method), quoted(request.path), record.status,
                       record.sent_bytes, record.seconds));
}

}  // namespace ps::server
