// A synthetic load: what arrives when, and what is kept of the answers. The same for an engine in process
// (engine_load.h) and for a server (http_load.h), so that both can be compared (runtime.md 2; style: bench).
// Threading: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/request.h"

namespace ps::apps {

struct LoadOptions {
  int64_t requests = 200;
  double rate = 0;             // arrivals per second, exponentially distributed gaps; 0 = all at once
  int64_t concurrency = 0;     // requests under way at most; 0 = any number
  int64_t prompt_tokens = 96;  // mean; lengths are uniform in [half, one and a half]
  int64_t answer_tokens = 12;  // mean, likewise
  double shared_share = 0.5;   // of the requests begin with one of `prefixes` common prefixes
  int64_t prefixes = 4;
  int64_t prefix_tokens = 64;  // of a common prefix
  uint64_t seed = 1;
};
// invalid, naming the option and its legal values.
[[nodiscard]] Status check(const LoadOptions& options, int64_t max_context);

struct Arrival {
  engine::Request request;  // greedy, and as long as max_tokens says
  double at_seconds = 0;    // after the start
};
// Equal options give equal arrivals. In the order of their times.
[[nodiscard]] std::vector<Arrival> draw_arrivals(const LoadOptions& options, int64_t vocabulary);

struct Percentiles {
  double p50 = 0;
  double p95 = 0;
  double p99 = 0;
};

struct PageUse {
  double mean = 0;  // over the steps
  int64_t most = 0;
  int64_t total = 0;
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
  double step_seconds = 0;       // the sum over all steps
  double processor_seconds = 0;  // of the process that holds the engine
  Percentiles time_to_first_token_ms;
  Percentiles inter_token_ms;
  std::optional<PageUse> pages;  // in process only

  [[nodiscard]] double hit_rate() const noexcept {
    return prompt_tokens == 0 ? 0 : static_cast<double>(cached_tokens) / static_cast<double>(prompt_tokens);
  }
};

// Times of one request, in seconds since the start.
struct Timeline {
  double began = 0;  // when it was due, or sent where nothing is due at a time
  double last_token = -1;
};
// When the request began that is sent now.
[[nodiscard]] inline double begin_of(const LoadOptions& options, const Arrival& arrival, double now) noexcept {
  return options.rate > 0 ? arrival.at_seconds : now;
}

// Collects the waits of all requests.
class Latencies {
 public:
  // A token, or what came together with it.
  void add(Timeline& timeline, double now);
  void report(LoadResult& result);

 private:
  std::vector<double> first_token_ms_;
  std::vector<double> inter_token_ms_;
};

}  // namespace ps::apps
