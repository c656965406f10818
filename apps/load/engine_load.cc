#include "apps/load/engine_load.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <thread>

#include "base/macros.h"
#include "base/process.h"

namespace ps::apps {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

Result<LoadResult> run_load(engine::Engine& engine, int64_t vocabulary, const LoadOptions& options) {
  PS_RETURN_IF_ERROR(check(options, engine.memory().max_context));
  const std::vector<Arrival> arrivals = draw_arrivals(options, vocabulary);
  const int64_t limit = options.concurrency > 0 ? options.concurrency : std::numeric_limits<int64_t>::max();
  std::map<engine::SequenceId, Timeline> under_way;
  Latencies latencies;
  LoadResult result;
  PageUse& pages = result.pages.emplace();
  double page_steps = 0;
  const double processor_before = processor_seconds();
  const Clock::time_point start = Clock::now();
  size_t next = 0;
  while (next < arrivals.size() || engine.has_work()) {
    while (next < arrivals.size() && std::ssize(under_way) < limit &&
           arrivals[next].at_seconds <= seconds_since(start)) {
      PS_TRY(const engine::SequenceId id, engine.add(arrivals[next].request));
      under_way[id].began = begin_of(options, arrivals[next], seconds_since(start));
      result.prompt_tokens += std::ssize(arrivals[next].request.prompt);
      ++next;
    }
    if (!engine.has_work()) {
      const double wait = arrivals[next].at_seconds - seconds_since(start);
      std::this_thread::sleep_for(std::chrono::duration<double>(std::max(0.0, wait)));
      continue;
    }
    const Clock::time_point step_start = Clock::now();
    const std::span<const engine::Event> events = engine.step();
    result.step_seconds += seconds_since(step_start);
    for (const engine::Event& event : events) {
      if (event.token >= 0) latencies.add(under_way[event.sequence], seconds_since(start));
      if (event.finish == engine::FinishReason::kNone) continue;
      result.cached_tokens += event.cached_tokens;
      under_way.erase(event.sequence);
    }
    const int64_t used = engine.counters().pages.used;
    page_steps += static_cast<double>(used);
    pages.most = std::max(pages.most, used);
    ++result.steps;
  }
  result.seconds = seconds_since(start);
  result.processor_seconds = processor_seconds() - processor_before;
  result.requests = options.requests;
  result.computed_rows = engine.counters().prompt_rows;
  result.answer_tokens = engine.counters().answer_tokens;
  result.preemptions = engine.counters().scheduler.preemptions;
  pages.mean = page_steps / static_cast<double>(std::max<int64_t>(result.steps, 1));
  pages.total = engine.memory().pages;
  latencies.report(result);
  return result;
}

}  // namespace ps::apps
