// What every request passes before its route: the API key, CORS, the router; and after its answer: the access log and
// the metrics. Threading: the I/O thread.
#pragma once

#include <string>

#include "server/http_server.h"
#include "server/metrics.h"
#include "server/router.h"

namespace ps::server {

struct GateOptions {
  std::string api_key;      // empty: none is asked for
  std::string cors_origin;  // empty: no CORS headers; "*", or one origin
};

class Gate final : public HttpHandler {
 public:
  // REQUIRES: router and metrics outlive it.
  Gate(const Router& router, Metrics& metrics, GateOptions options);

  void add_headers(const HttpRequest& request, std::vector<HttpHeader>& headers) override;
  void handle(std::shared_ptr<HttpRequest> request, std::shared_ptr<Responder> responder) override;
  void finished(const AccessRecord& record) override;

 private:
  [[nodiscard]] bool is_authorized(const HttpRequest& request) const;
  [[nodiscard]] HttpReply preflight(const HttpRequest& request) const;

  const Router& router_;
  Metrics& metrics_;
  GateOptions options_;
};

// Equal, in a time that does not depend on where they differ.
[[nodiscard]] bool equal_secrets(std::string_view a, std::string_view b) noexcept;

}  // namespace ps::server
