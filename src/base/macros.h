// Checks and early returns. These are the project's only macros.
//
// PS_CHECK   guards our own invariants: always on, prints the values, aborts with a backtrace.
// PS_DCHECK  is the same in debug and sanitizer builds only, for per-row work.
// PS_TRY / PS_RETURN_IF_ERROR carry bad data or a bad environment upward as a Status.
// Input of a user, a file or a peer must never reach a check: it is answered with a Status.
#pragma once

#include "base/status.h"

namespace ps {
[[noreturn]] void check_failed(const char* file, int line, const char* expression, const std::string& detail);
}  // namespace ps

#define PS_CHECK(condition, ...)                                                           \
  do {                                                                                     \
    if (!(condition)) [[unlikely]]                                                         \
      ::ps::check_failed(__FILE__, __LINE__, #condition, ::ps::check_detail(__VA_ARGS__)); \
  } while (false)

#ifdef PAGESTATE_DCHECKS
#define PS_DCHECK(condition, ...) PS_CHECK(condition __VA_OPT__(, ) __VA_ARGS__)
#else
#define PS_DCHECK(condition, ...) \
  do {                            \
  } while (false)
#endif

#define PS_CONCAT_INNER(a, b) a##b
#define PS_CONCAT(a, b) PS_CONCAT_INNER(a, b)

// NOLINTBEGIN(bugprone-macro-parentheses): declarations cannot stand in parentheses
// PS_RETURN_IF_ERROR(expression of type Status)
#define PS_RETURN_IF_ERROR(expression)                                            \
  do {                                                                            \
    if (::ps::Status ps_status = (expression); !ps_status.ok()) return ps_status; \
  } while (false)

// PS_TRY(declaration, expression of type Result<T>): declares and moves the value in, or returns the error.
#define PS_TRY(declaration, expression) PS_TRY_INNER(PS_CONCAT(ps_result_, __LINE__), declaration, expression)
#define PS_TRY_INNER(result, declaration, expression)  \
  auto result = (expression);                          \
  if (!result.ok()) return std::move(result).status(); \
  declaration = std::move(result).value()
// NOLINTEND(bugprone-macro-parentheses)
