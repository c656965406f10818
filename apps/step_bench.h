// The measuring part of `pagestate bench decode` and `bench prefill`: forwards of B sequences against the floor that
// the machine's read bandwidth and matrix peak, measured in the same run, put under them.
//
// Token ids are random. The context of a decode run is synthetic: window rows, compressed rows and index keys hold
// encoded random values instead of a prompt's, so that a long context costs no prefill; a step reads and computes what
// it would after one. Threading: one caller.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "cache/geometry.h"
#include "checkpoint/checkpoint.h"
#include "ops/table.h"

namespace ps::apps {

struct StepBenchOptions {
  int64_t context = 1024;  // tokens before a decode step; of a prompt
  int64_t batch = 1;       // sequences
  int64_t chunk = 1024;    // rows of one prefill forward, over all sequences
  int64_t page_tokens = 256;
  cache::CacheFormat format;
  int threads = 1;
  bool pin_threads = false;
  int64_t repeats = 5;  // the median counts; a step, or a prompt's first forward, warms up
  bool profile_ops = false;
};

struct StepBenchResult {
  double seconds = 0;  // median of a decode step, or of all prompts
  std::vector<double> all_seconds;
  double tokens = 0;  // per run, over all sequences
  // Medians over the runs of each one's mean ceilings; flops of the unit that the backend multiplies on.
  double read_bytes_per_second = 0;
  double flops_per_second = 0;
  std::string peak_unit;
  double needed_bytes = 0;
  double needed_flops = 0;
  double floor_seconds = 0;     // median
  double ratio = 0;             // median of floor to time, each run against its own means
  double distinct_experts = 0;  // mean of a layer and run
  std::string op_table;         // of profile_ops, all runs together

  [[nodiscard]] double tokens_per_second() const noexcept { return tokens / seconds; }
  [[nodiscard]] double floor_tokens_per_second() const noexcept { return tokens / floor_seconds; }
};

// token_classes: Engram class per token id, empty for a model without Engram. invalid names an option and its legal
// values.
[[nodiscard]] Result<StepBenchResult> bench_decode(const checkpoint::Checkpoint& checkpoint,
                                                   const std::vector<int32_t>& token_classes, const ops::OpTable& table,
                                                   const StepBenchOptions& options);
[[nodiscard]] Result<StepBenchResult> bench_prefill(const checkpoint::Checkpoint& checkpoint,
                                                    const std::vector<int32_t>& token_classes,
                                                    const ops::OpTable& table, const StepBenchOptions& options);

}  // namespace ps::apps
