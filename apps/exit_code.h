// What the process says when it ends. Pure.
#pragma once

#include "base/status.h"

namespace ps::apps {

// A fault of the program itself (EX_SOFTWARE of sysexits.h): a supervisor may start it anew, the same input may work.
inline constexpr int kInternalExit = 70;

// 0 done, 2 bad usage or input (the message names the legal values), kInternalExit, 1 anything else.
[[nodiscard]] int exit_code(const Status& status) noexcept;

}  // namespace ps::apps
