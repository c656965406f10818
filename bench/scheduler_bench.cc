// Host cost of a step: 256 running sequences of 100k tokens, and admission over a prefix hit of 100k tokens. No model
// runs.
#include <benchmark/benchmark.h>

#include <memory>

#include "engine/scheduler.h"
#include "engine/step_plan.h"

namespace ps::engine {
namespace {

constexpr int64_t kPageTokens = 256;
constexpr int64_t kContext = 100'096;  // whole PAGEs, and a little more than 100k
constexpr int64_t kSequences = 256;

SchedulerOptions options(int64_t sequences) {
  SchedulerOptions made;
  made.replay = {128, kPageTokens, true, true};
  made.max_sequences = sequences;
  made.token_budget = 200'000;
  made.max_context = 2 * kContext;
  return made;
}

std::unique_ptr<Sequence> make_sequence(int64_t id, int32_t first_token) {
  auto sequence = std::make_unique<Sequence>();
  sequence->id = SequenceId{id};
  sequence->request.max_tokens = 50'000;
  sequence->prompt_tokens = kContext;
  sequence->tokens.reserve(static_cast<size_t>(kContext + 50'000));
  for (int64_t i = 0; i < kContext; ++i)
    sequence->tokens.push_back(static_cast<int32_t>((first_token + i * 7) % 50'000));
  return sequence;
}

// Scheduling and plan building of one decode step.
void decode_step(benchmark::State& state) {
  const int64_t pages = kSequences * (kContext / kPageTokens + 200);
  cache::PageManager manager(
      {.pages = static_cast<int32_t>(pages), .page_tokens = kPageTokens, .layout_id = "bench", .name_space = ""});
  cache::StateSlots slots(kSequences);
  Scheduler scheduler(options(kSequences), manager, slots, nullptr, "bench");
  std::vector<std::unique_ptr<Sequence>> sequences;
  std::vector<Sequence*> aborted;
  for (int64_t i = 0; i < kSequences; ++i) {
    sequences.push_back(make_sequence(i, static_cast<int32_t>(i * 101)));
    scheduler.add(*sequences.back());
    const auto scheduled = scheduler.schedule(aborted);
    scheduler.complete();
    for (const ScheduledRows& work : scheduled) work.sequence->tokens.push_back(3);
  }
  PlanShape shape;
  StepPlan plan;
  plan.reserve(shape, 4096, kSequences, 2 * kContext / kPageTokens);
  std::vector<SequenceRows> rows;
  rows.reserve(kSequences);
  for (auto _ : state) {
    const auto scheduled = scheduler.schedule(aborted);
    rows.clear();
    for (const ScheduledRows& work : scheduled) {
      SequenceRows row;
      row.start = work.rows.start;
      row.ids = std::span(work.sequence->tokens).subspan(static_cast<size_t>(row.start), 1);
      row.pages = work.sequence->pages;
      row.slot = *work.sequence->slot;
      row.decoder_start = row.start;
      rows.push_back(row);
    }
    plan.build(shape, rows);
    scheduler.complete();
    for (const ScheduledRows& work : scheduled) work.sequence->tokens.push_back(3);
    if (std::ssize(scheduled) != kSequences) state.SkipWithError("not everyone runs");
  }
}
BENCHMARK(decode_step)->Unit(benchmark::kMicrosecond)->Iterations(2000);

// A resend of 100k tokens, all but the last PAGE of it cached.
void admit_prefix_hit(benchmark::State& state) {
  cache::PageManager manager({.pages = 2000, .page_tokens = kPageTokens, .layout_id = "bench", .name_space = ""});
  cache::StateSlots slots(1);
  Scheduler scheduler(options(1), manager, slots, nullptr, "bench");
  std::vector<Sequence*> aborted;
  const auto run_one = [&](Sequence& sequence) {
    scheduler.add(sequence);
    (void)scheduler.schedule(aborted);
    scheduler.complete();
    scheduler.finish(sequence);
  };
  const auto first = make_sequence(0, 11);
  run_one(*first);
  for (auto _ : state) {
    state.PauseTiming();
    const auto sequence = make_sequence(1, 11);
    state.ResumeTiming();
    run_one(*sequence);
    if (sequence->cached_tokens < kContext - kPageTokens) state.SkipWithError("no hit");
  }
}
BENCHMARK(admit_prefix_hit)->Unit(benchmark::kMicrosecond)->Iterations(200);

}  // namespace
}  // namespace ps::engine

BENCHMARK_MAIN();
