#include "server/router.h"

#include <utility>

namespace ps::server {

bool Router::Route::matches(std::string_view asked) const noexcept {
  return takes_rest ? asked.size() > prefix.size() && asked.starts_with(prefix) : asked == prefix;
}

void Router::add(std::string method, std::string path, RouteHandler handler) {
  const size_t brace = path.find('{');
  const bool takes_rest = brace != std::string::npos;
  std::string prefix = path.substr(0, brace);
  routes_.push_back({std::move(method), std::move(path), std::move(prefix), takes_rest, std::move(handler)});
}

Router::Match Router::find(const HttpRequest& request) const {
  const std::string_view method = request.method == "HEAD" ? "GET" : std::string_view(request.method);
  for (const Route& route : routes_) {
    if (route.method != method || !route.matches(request.path)) continue;
    return {&route.handler, route.path, request.path.substr(route.prefix.size()), {}};
  }
  Match none;
  const std::string legal = allowed(request.path);
  if (legal.empty()) {
    none.error = error_reply(ApiError::http(404, "there is nothing at " + request.path));
  } else {
    none.error = error_reply(
        ApiError::http(405, request.path + " does not take " + request.method + "; legal methods are " + legal));
    none.error.headers.push_back({"Allow", legal});
  }
  return none;
}

std::string Router::allowed(std::string_view path) const {
  std::string list;
  for (const Route& route : routes_) {
    if (!route.matches(path)) continue;
    if (!list.empty()) list += ", ";
    list += route.method == "GET" ? "GET, HEAD" : route.method;
  }
  return list;
}

}  // namespace ps::server
