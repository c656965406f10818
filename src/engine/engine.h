// The engine: many sequences through one model, one step at a time (runtime.md 2).
//
// step() plans on the host, runs one forward over the ragged rows of all scheduled sequences, samples, and commits.
// What a sequence gets does not depend on who runs beside it, on chunking, on PAGE order, on preemption, or (encoder
// replay off) on a prefix hit: same tokens, same logits, bit for bit.
// Threading: one thread calls everything. After creation step() allocates nothing; add() does.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "cache/pool.h"
#include "checkpoint/checkpoint.h"
#include "engine/planner.h"
#include "engine/scheduler.h"
#include "engine/step_plan.h"
#include "engine/view.h"
#include "model/forward.h"

namespace ps::engine {

// Sees what steps run and what comes out, for tests and tools.
class StepTap {
 public:
  virtual ~StepTap() = default;
  // Before the forward: rows[i] are what scheduled[i] runs.
  virtual void planned(std::span<const ScheduledRows> scheduled, std::span<const SequenceRows> rows) {
    (void)scheduled, (void)rows;
  }
  // `position` of the row whose logits these are; they choose the token behind it.
  virtual void logits(SequenceId sequence, int64_t position, std::span<const float> values) = 0;
};

struct EngineCounters {
  SchedulerCounters scheduler;
  cache::PageCounters pages;
  int64_t steps = 0;
  int64_t prompt_rows = 0;  // computed, replayed ones included
  int64_t answer_tokens = 0;
};

class Engine final : private model::LogitSink {
 public:
  // token_classes: Engram class per id; empty for a model without Engram. never_sampled: ids that sampling masks.
  // REQUIRES: the checkpoint and the table outlive the engine.
  [[nodiscard]] static Result<std::unique_ptr<Engine>> create(const checkpoint::Checkpoint& checkpoint,
                                                              std::vector<int32_t> token_classes,
                                                              std::span<const int32_t> never_sampled,
                                                              const ops::OpTable& table, const EngineOptions& options);
  ~Engine() override;

  // Whether add() would take the request: invalid for illegal options or ids, exhausted with the number that would fit.
  // Any thread: looks at what never changes only.
  [[nodiscard]] Status check(const Request& request) const;
  // Queues a request, or refuses it as check() does.
  [[nodiscard]] Result<SequenceId> add(Request request);
  // The sequence ends in the next step with kAborted, wherever it stands; unknown and finished ids are ignored.
  void abort(SequenceId id);
  [[nodiscard]] bool has_work() const noexcept { return scheduler_->has_work(); }
  // Nothing for an unknown or finished sequence.
  [[nodiscard]] std::optional<PromptProgress> progress(SequenceId id) const;
  // For people who watch; allocates.
  [[nodiscard]] EngineView look() const;

  // One step. The events, in the order of admission, live until the next call.
  [[nodiscard]] std::span<const Event> step();

  void tap(StepTap* tap) noexcept { tap_ = tap; }
  [[nodiscard]] const MemoryPlan& memory() const noexcept { return plan_; }
  [[nodiscard]] EngineCounters counters() const noexcept;
  [[nodiscard]] const cache::PageManager& pages() const noexcept { return *pages_; }
  [[nodiscard]] Status check_integrity() const { return scheduler_->check_integrity(); }
  // As if memory had run out: the youngest running sequence is put back and computed again. For tests.
  bool preempt_youngest() { return scheduler_->preempt_youngest(); }

 private:
  Engine(MemoryPlan plan, const EngineOptions& options, cache::CachePool pool, HostBuffer scratch,
         const checkpoint::Config& config, std::span<const int32_t> never_sampled);

  void prepare_slots();
  void build_plan(std::span<const ScheduledRows> scheduled);
  void logits(int32_t first, int32_t rows, const float* values) override;
  void commit(std::span<const ScheduledRows> scheduled);
  void accept_token(Sequence& sequence, size_t index);
  void end(Sequence& sequence, const Event& last);
  [[nodiscard]] Event event_of(const Sequence& sequence) const;

  // What the logits of one scheduled sequence chose.
  struct Choice {
    int32_t token = -1;
    float logprob = 0;
  };

  MemoryPlan plan_;
  EngineOptions options_;
  int32_t eos_ = 0;
  int32_t vocabulary_ = 0;
  PlanShape shape_;
  std::vector<int32_t> token_classes_;
  std::unique_ptr<model::Model> model_;
  cache::CachePool pool_;
  Arena scratch_;
  ThreadPool threads_;
  model::CacheViews views_;
  std::unique_ptr<cache::PageManager> pages_;
  cache::StateSlots slots_;
  std::unique_ptr<cache::StateImages> images_;
  std::unique_ptr<Scheduler> scheduler_;
  Sampler sampler_;
  std::vector<float> logits_;

  std::unordered_map<int64_t, std::unique_ptr<Sequence>> sequences_;
  std::vector<std::unique_ptr<Sequence>> ended_;  // kept until the next step: events refer to them
  std::vector<Sequence*> aborted_;
  std::vector<SequenceRows> rows_;
  StepPlan step_plan_;
  std::span<const ScheduledRows> scheduled_;
  std::vector<Choice> choices_;    // [scheduled]
  std::vector<TokenLogprob> top_;  // [scheduled, kMaxTopLogprobs]
  std::vector<Event> events_;
  StepTap* tap_ = nullptr;
  int64_t next_id_ = 0;
  int64_t steps_ = 0;
  int64_t prompt_rows_ = 0;
  int64_t answer_tokens_ = 0;
};

}  // namespace ps::engine
