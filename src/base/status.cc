#include "base/status.h"

#include <execinfo.h>

#include <cstdio>
#include <cstdlib>

#include "base/macros.h"

namespace ps {

std::string_view code_name(Code code) noexcept {
  switch (code) {
    case Code::kInvalid: return "invalid";
    case Code::kNotFound: return "not found";
    case Code::kCorrupt: return "corrupt";
    case Code::kUnsupported: return "unsupported";
    case Code::kExhausted: return "exhausted";
    case Code::kCancelled: return "cancelled";
    case Code::kUnavailable: return "unavailable";
    case Code::kInternal: return "internal";
  }
  return "unknown";
}

Status::Status(Code code, std::string message) : state_(new State{code, std::move(message)}) {}

std::string Status::to_string() const {
  if (ok()) return "ok";
  return std::string(code_name(state_->code)) + ": " + state_->message;
}

Status Status::with(std::string_view context) && {
  if (state_) state_->message = std::string(context) + ": " + state_->message;
  return std::move(*this);
}

void check_failed(const char* file, int line, const char* expression, const std::string& detail) {
  std::fprintf(stderr, "%s:%d: check failed: %s%s%s\n", file, line, expression, detail.empty() ? "" : ": ",
               detail.c_str());
  void* frames[64];
  backtrace_symbols_fd(frames, backtrace(frames, 64), 2);
  std::abort();
}

}  // namespace ps
