// What is counted, and its text for Prometheus. Names begin with "pagestate_" and end in their unit.
//
// Owns the registry. Counts that the engine keeps itself (steps, rows, preemptions) are taken over from its figures
// when the text is asked for. Threading: every method from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "engine/planner.h"

namespace ps::server {

// The engine's figures after a step. All 64-bit: see status_board.h.
struct EngineStatus {
  int64_t waiting = 0;  // sequences
  int64_t running = 0;
  int64_t pages_vacant = 0;
  int64_t pages_cached = 0;
  int64_t pages_used = 0;
  int64_t pages_image = 0;  // holding images of STATE
  int64_t last_step_us = 0;
  // Totals.
  int64_t preemptions = 0;
  int64_t evictions = 0;  // PAGEs
  int64_t lookup_tokens = 0;
  int64_t hit_tokens = 0;
  int64_t steps = 0;
  int64_t prompt_rows = 0;
  int64_t answer_tokens = 0;
  [[nodiscard]] int64_t free_pages() const noexcept { return pages_vacant + pages_cached; }
};

class Metrics {
 public:
  Metrics();
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  void observe_first_token(double seconds);  // since the submission
  void observe_inter_token(double seconds);
  void observe_step(double seconds);
  // outcome: "stop", "length", "cancelled", "failed", ...
  void count_sequence(std::string_view outcome, int64_t prompt_tokens, int64_t cached_tokens);
  void count_refusal();  // the queue was full
  // route: as in the table of routes, so that the number of series stays small.
  void count_http(std::string_view route, int status, double seconds);

  struct Gauges {
    EngineStatus engine;
    engine::MemoryPlan memory;
    int64_t connections = 0;
    int64_t dropped_clients = 0;  // total
  };
  // The whole text, in Prometheus' format 0.0.4.
  [[nodiscard]] std::string text(const Gauges& gauges);

 private:
  struct Series;
  std::unique_ptr<Series> series_;
};

}  // namespace ps::server
