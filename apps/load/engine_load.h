// A load against an engine in process.
#pragma once

#include "apps/load/workload.h"
#include "engine/engine.h"

namespace ps::apps {

[[nodiscard]] Result<LoadResult> run_load(engine::Engine& engine, int64_t vocabulary, const LoadOptions& options);

}  // namespace ps::apps
