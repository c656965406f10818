// The scheduler: who runs which rows in the next step, and what that takes of the cache (runtime.md 2). Pure host
// logic: it knows ids, counts and tokens, no bytes, no model.
//
// A pass: finish aborted sequences; one row for every decoding sequence, oldest first, preempting the youngest when
// PAGEs run out; go on with unfinished prompts; admit from the head of the queue. Prompt rows and answer rows share a
// step. Why that is safe: PAGEs are held by reference counts from the moment they are claimed, a hit is claimed and an
// image pinned before the same admission allocates anything, and a sequence that already has rows in the step is older
// than every possible victim. Chunks end on PAGE boundaries or at the prompt's end, so no cut is odd.
// Threading: one thread. Allocates only in add().
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "cache/page_manager.h"
#include "cache/state_images.h"
#include "cache/state_slots.h"
#include "engine/sequence.h"

namespace ps::engine {

struct SchedulerOptions {
  ReplayRules replay;               // window and PAGE size included
  int64_t max_sequences = 0;        // running at once
  int64_t token_budget = 0;         // rows of a step, prompts and answers together
  int64_t long_prefill_tokens = 0;  // most prompt tokens of one sequence in a step; 0 = no cap
  int64_t max_context = 0;          // tokens of one sequence, prompt and answer
  int64_t image_interval_tokens =
      8192;  // checkpoint mode: distance of images while a long prompt is computed; 0 = only its end
  bool prefix_cache = true;
};
// invalid, naming the option and the value that would work.
[[nodiscard]] Status check(const SchedulerOptions& options);

// The rows that one sequence runs in a step.
struct ScheduledRows {
  Sequence* sequence = nullptr;
  PrefillRows rows;
  bool samples = false;  // its last row's logits choose a token
};

struct SchedulerCounters {
  int64_t waiting = 0;
  int64_t running = 0;
  int64_t preemptions = 0;  // total
};

class Scheduler {
 public:
  // images: checkpoint mode, i.e. encoder replay off with a prefix cache; nullptr otherwise. All outlive the scheduler.
  Scheduler(const SchedulerOptions& options, cache::PageManager& pages, cache::StateSlots& slots,
            cache::StateImages* images, std::string layout_id);

  // Refuses at once what can never run, with the number that would fit.
  [[nodiscard]] Status check_fits(int64_t prompt_tokens, int64_t max_tokens) const;
  // Queues the sequence. REQUIRES: check_fits().
  void add(Sequence& sequence);

  // Plans one step. The rows stay valid until the next call; sequences that ended without rows are in `aborted`.
  [[nodiscard]] std::span<const ScheduledRows> schedule(std::vector<Sequence*>& aborted);

  // PAGEs handed out by the latest schedule(): nobody has written them yet.
  [[nodiscard]] std::span<const cache::PageId> fresh_pages() const noexcept { return fresh_pages_; }

  // After the forward of the scheduled rows: moves the committed positions, publishes PAGEs, queues images.
  void complete();

  // Takes a running sequence out and gives everything back.
  void finish(Sequence& sequence);

  [[nodiscard]] bool has_work() const noexcept { return !waiting_.empty() || !running_.empty(); }
  [[nodiscard]] SchedulerCounters counters() const noexcept;
  [[nodiscard]] const SchedulerOptions& options() const noexcept { return options_; }
  // I1-I6 of runtime.md 2.9 that can be seen from here. internal.
  [[nodiscard]] Status check_integrity() const;
  // Preempts the youngest running sequence, as if memory had run out: for tests. false when none runs.
  bool preempt_youngest();

 private:
  void drop_aborted(std::vector<Sequence*>& aborted);
  void schedule_decodes();
  void schedule_prefills();
  void schedule_admissions();
  [[nodiscard]] bool admit(Sequence& sequence);
  // With the prefix in hits_; `matched` tokens were found, whether they can be resumed from or not.
  [[nodiscard]] bool admit_with_hits(Sequence& sequence, int64_t matched);
  [[nodiscard]] bool may_hit(const Sequence& sequence) const noexcept {
    return options_.prefix_cache && !sequence.request.prompt_logprobs;
  }
  void add_prefill(Sequence& sequence, int64_t end);

  // Where the sequence's chunk from its resume position ends under the budget that is left; its resume position:
  // nothing fits.
  [[nodiscard]] int64_t chunk_end(const Sequence& sequence, int64_t resume, Resume how) const;
  [[nodiscard]] int64_t next_image_boundary(const Sequence& sequence, int64_t resume) const;
  [[nodiscard]] ReplayRules rules_for(const Sequence& sequence, int64_t position) const noexcept;
  [[nodiscard]] bool take_pages(Sequence& sequence, int64_t count);
  void release(Sequence& sequence);
  void preempt(Sequence& sequence);
  void keep_image(Sequence& sequence);

  SchedulerOptions options_;
  cache::PageManager& pages_;
  cache::StateSlots& slots_;
  cache::StateImages* images_;
  std::string layout_id_;
  std::vector<Sequence*> waiting_;  // head first
  std::vector<Sequence*> running_;  // oldest admission first
  std::vector<ScheduledRows> step_;
  std::vector<cache::PageId> hits_;
  std::vector<cache::PageId> fresh_pages_;
  bool has_preempted_ = false;  // in this pass
  int64_t budget_ = 0;
  int64_t preemptions_ = 0;
};

}  // namespace ps::engine
