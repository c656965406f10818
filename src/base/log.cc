#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <iterator>

namespace ps {
namespace {

constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                                                 spdlog::level::err, spdlog::level::off};
constexpr std::string_view kNames[] = {"debug", "info", "warning", "error", "off"};

spdlog::logger& logger() {
  static spdlog::logger instance = [] {
    spdlog::logger made("pagestate", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made.set_pattern("%Y-%m-%dT%H:%M:%S.%e level=%l %v");
    made.set_level(spdlog::level::warn);
    return made;
  }();
  return instance;
}

}  // namespace

bool set_log_level(std::string_view name) noexcept {
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (kNames[i] == name) {
      logger().set_level(kLevels[i]);
      return true;
    }
  }
  return false;
}

void log(LogLevel level, std::string_view line) { logger().log(kLevels[static_cast<int>(level)], line); }

}  // namespace ps
