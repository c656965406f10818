// A synthetic open-loop load against an engine in process: arrivals do not wait for answers (runtime.md 2; style:
// bench).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"

namespace ps::apps {

struct LoadOptions {
  int64_t requests = 200;
  double rate = 0;             // arrivals per second, exponentially distributed gaps; 0 = all at once
  int64_t prompt_tokens = 96;  // mean; lengths are uniform in [half, one and a half]
  int64_t answer_tokens = 12;  // mean, likewise
  double shared_share = 0.5;   // of the requests begin with one of `prefixes` common prefixes
  int64_t prefixes = 4;
  int64_t prefix_tokens = 64;  // of a common prefix
  uint64_t seed = 1;
};
// invalid, naming the option and its legal values.
[[nodiscard]] Status check(const LoadOptions& options, int64_t max_context);

struct Percentiles {
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
};

struct LoadResult {
  int64_t requests = 0;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t computed_rows = 0;  // of prompts, recomputed ones included
  int64_t answer_tokens = 0;
  int64_t steps = 0;
  int64_t preemptions = 0;
  double seconds = 0;
  Percentiles time_to_first_token_ms;
  Percentiles inter_token_ms;
  double mean_pages_used = 0;
  int64_t most_pages_used = 0;
  int64_t pages = 0;

  [[nodiscard]] double hit_rate() const noexcept {
    return prompt_tokens == 0 ? 0 : static_cast<double>(cached_tokens) / static_cast<double>(prompt_tokens);
  }
};

[[nodiscard]] Result<LoadResult> run_load(engine::Engine& engine, int64_t vocabulary, const LoadOptions& options);

}  // namespace ps::apps
