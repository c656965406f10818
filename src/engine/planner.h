// The planner: what fits where, decided before weights are read (runtime.md 7.2). STATE first, then PAGEs, from one
// memory budget.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "cache/geometry.h"
#include "checkpoint/config.h"
#include "checkpoint/topology.h"
#include "ops/table.h"

namespace ps::engine {

struct EngineOptions {
  // Changes results: the two index formats select differently, replay truncates windows; all else gives equal bits.
  cache::CacheFormat format;
  DType compute = DType::kBF16;
  bool encoder_replay = true;  // false: exact checkpoint images of STATE
  bool decoder_replay = true;  // false: every prompt row runs every layer
  // Changes speed and memory only.
  int64_t page_tokens = 256;
  int64_t max_sequences = 8;        // running at once
  int64_t token_budget = 1024;      // rows of a step
  int64_t long_prefill_tokens = 0;  // most prompt tokens of one sequence in a step; 0 = no cap
  int64_t max_context = 0;          // tokens of one sequence; 0 = what the PAGEs hold, at most max_position_embeddings
  int64_t image_interval_tokens = 8192;
  bool prefix_cache = true;
  int64_t memory_bytes = 0;         // for PAGEs, STATE and scratch; 0 = as `pages` says
  int64_t pages = 0;                // used when memory_bytes is 0; 0 = one max_context per two running sequences
  int64_t copied_weight_bytes = 0;  // that the machine's memory holds besides; Engine::create() sets it
  int threads = 1;
  bool pin_threads = false;  // each to a physical core
  bool poison = false;       // tests: fills PAGEs and rings with NaN before they are used again
};

// Every persistent byte of an engine but the mapped checkpoint.
struct MemoryPlan {
  cache::CacheGeometry geometry;
  int64_t slots = 0;
  int64_t pages = 0;
  int64_t max_context = 0;    // of one sequence
  int64_t scratch_bytes = 0;  // activations and op scratch of the largest step
  int64_t logit_bytes = 0;
  int64_t state_bytes = 0;  // of all slots
  int64_t page_bytes = 0;   // of all PAGEs
  [[nodiscard]] int64_t total_bytes() const noexcept { return scratch_bytes + logit_bytes + state_bytes + page_bytes; }
  [[nodiscard]] int64_t page_tokens_total() const noexcept { return pages * geometry.options.page_tokens; }
};

// invalid or exhausted, with the setting to change and the value that would work.
[[nodiscard]] Result<MemoryPlan> plan_memory(const checkpoint::Config& config,
                                             const checkpoint::LayerTopology& topology, const ops::OpTable& table,
                                             const EngineOptions& options);

// A table of bytes per purpose, the most tokens, and how many sequences of a few context lengths fit.
[[nodiscard]] std::string describe(const MemoryPlan& plan);

}  // namespace ps::engine
