#include "server/http_options.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace ps::server {

Status check(const HttpOptions& options) {
  const auto refuse = [](std::string_view name, auto value, std::string_view legal) {
    return Status::invalid(fmt::format("{} is {}; legal values are {}", name, value, legal));
  };
  if (options.port < 0 || options.port > 65535) return refuse("port", options.port, "0 (any free one) to 65535");
  constexpr int64_t kMostConnections = int64_t{1} << 32;
  if (options.max_connections < 1 || options.max_connections > kMostConnections) {
    return refuse("max-connections", options.max_connections, "1 to 2^32");
  }
  if (options.limits.body_bytes < 1) return refuse("max-body", options.limits.body_bytes, "1 or more");
  if (options.limits.header_bytes < 1024 || options.limits.header_bytes > (1 << 20)) {
    return refuse("max-header", options.limits.header_bytes, "1024 to 1048576");
  }
  if (options.max_pending_bytes < 1) return refuse("max-pending", options.max_pending_bytes, "1 or more");
  if (!(options.body_rate >= 1 && options.body_rate <= 1e12)) {
    return refuse("body-rate", options.body_rate, "1 to 1e12");
  }
  const std::pair<const char*, double> times[] = {{"header-seconds", options.header_seconds},
                                                  {"body-seconds", options.body_seconds},
                                                  {"idle-seconds", options.idle_seconds},
                                                  {"write-seconds", options.write_seconds},
                                                  {"keep-alive-seconds", options.keep_alive_seconds}};
  for (const auto& [name, seconds] : times) {
    if (!(seconds > 0 && seconds <= 86400)) return refuse(name, seconds, "above 0, at most 86400");
  }
  return {};
}

}  // namespace ps::server
