// Brings the weights into memory before the first request needs them.
#pragma once

#include "base/status.h"
#include "checkpoint/checkpoint.h"

namespace ps::apps {

// With a bar on a terminal. What no request reads often stays on disk: Engram tables, vision, drafts.
[[nodiscard]] Status load_weights(const checkpoint::Checkpoint& checkpoint);

}  // namespace ps::apps
