// What every runner of a model needs once: the model's views of a pool, and what plans depend on.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "cache/pool.h"
#include "checkpoint/config.h"
#include "checkpoint/topology.h"
#include "engine/step_plan.h"
#include "model/forward.h"

namespace ps::engine {

[[nodiscard]] model::CacheViews make_views(cache::CachePool& pool, const checkpoint::LayerTopology& topology);

// token_classes: Engram class per id; ignored for a model without Engram. invalid when it contradicts the config.
[[nodiscard]] Result<PlanShape> make_plan_shape(const checkpoint::Config& config,
                                                std::span<const int32_t> token_classes);

}  // namespace ps::engine
