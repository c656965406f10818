// One log for the whole program: "key=value" lines on standard error, one event per line.
// PS_LOG sets the level (debug, info, warning, error, off); nothing logs in kernels or per token.
// Threading: callable from any thread.
#pragma once

#include <string_view>

namespace ps {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

// false, and no change, for an unknown name.
bool set_log_level(std::string_view name) noexcept;
void log(LogLevel level, std::string_view line);

inline void log_debug(std::string_view line) { log(LogLevel::kDebug, line); }
inline void log_info(std::string_view line) { log(LogLevel::kInfo, line); }
inline void log_warning(std::string_view line) { log(LogLevel::kWarning, line); }
inline void log_error(std::string_view line) { log(LogLevel::kError, line); }

}  // namespace ps
