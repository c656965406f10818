// The table of (method, path, handler). Finds the handler of a request, or the error that says what would be found.
// Threading: built once, then read from any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/http_message.h"
#include "server/responder.h"

namespace ps::server {

struct RoutedRequest {
  std::shared_ptr<HttpRequest> http;
  std::string rest;  // what stands in the place of the route's {name}
};

using RouteHandler = std::function<void(const RoutedRequest&, std::shared_ptr<Responder>)>;

class Router {
 public:
  // `path` is literal, or ends in "{name}", which takes the rest of the path, slashes included, at least one character.
  void add(std::string method, std::string path, RouteHandler handler);

  struct Match {
    const RouteHandler* handler = nullptr;  // nullptr: `error`
    std::string route;                      // the path as it was added; for metrics. Empty without a route
    std::string rest;
    HttpReply error;  // 404, or 405 with Allow
  };
  // HEAD finds GET.
  [[nodiscard]] Match find(const HttpRequest& request) const;
  // "GET, HEAD, POST": what a path takes; empty for an unknown path.
  [[nodiscard]] std::string allowed(std::string_view path) const;

 private:
  struct Route {
    std::string method;
    std::string path;    // as added
    std::string prefix;  // before {name}
    bool takes_rest = false;
    RouteHandler handler;
    [[nodiscard]] bool matches(std::string_view path) const noexcept;
  };
  std::vector<Route> routes_;
};

}  // namespace ps::server
