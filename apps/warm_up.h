// The first request is not to pay for what is done once: page tables of the weights, memory that is touched for the
// first time, threads that sleep (pitfalls.md G11).
#pragma once

#include "base/status.h"
#include "engine/engine.h"

namespace ps::apps {

// Answers one short prompt with two tokens and forgets it; nothing of it gets into the prefix cache. The engine's
// counters count its rows and steps. REQUIRES: nothing runs.
[[nodiscard]] Status warm_up(engine::Engine& engine, int64_t vocabulary);

}  // namespace ps::apps
