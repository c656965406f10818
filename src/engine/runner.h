// Runner: one request at a time through block table, STATE slot and rings, exactly as many would go.
//
// It owns the cache pool, the scratch arena and the threads of one model, and feeds tokens in any split. Threading: one
// caller.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "cache/pool.h"
#include "checkpoint/checkpoint.h"
#include "engine/step_plan.h"
#include "model/forward.h"

namespace ps::engine {

struct RunnerOptions {
  // Changes results (the two index formats select differently; everything else gives equal bits).
  cache::CacheFormat format;
  DType compute = DType::kBF16;  // kF32 for comparisons
  // Changes speed and memory only.
  int64_t page_tokens = 256;
  int64_t max_tokens = 0;       // context that the pool holds; prompt and answer together
  int64_t prefill_chunk = 512;  // rows of one forward
  int threads = 1;
  bool pin_threads = false;  // each to a physical core
};

class Runner {
 public:
  // token_classes: Engram class per token id (text/token_map.h); empty for a model without Engram.
  // REQUIRES: the checkpoint and the table outlive the runner.
  [[nodiscard]] static Result<std::unique_ptr<Runner>> create(const checkpoint::Checkpoint& checkpoint,
                                                              std::vector<int32_t> token_classes,
                                                              const ops::OpTable& table, const RunnerOptions& options);

  // Forgets the request: position 0, a zeroed slot.
  void reset();

  // Sees `logits` [rows, vocabulary] of the positions [first, first + rows), in blocks; returns false to stop the feed.
  using LogitSink = std::function<bool(int64_t first, std::span<const float> logits)>;

  // Appends tokens in forwards of at most prefill_chunk rows. `which` says whose logits reach the sink: the last
  // token's of the whole feed, every token's, or none's. `progress(done, total)` runs after each forward; empty
  // functions are allowed. invalid when an id is outside the vocabulary or the context would exceed max_tokens;
  // cancelled when a callback says so.
  [[nodiscard]] Status feed(std::span<const int32_t> ids, LogitRows which, const LogitSink& sink,
                            const std::function<bool(int64_t done, int64_t total)>& progress = {});

  // Sees every rounding point of the following forwards; nullptr stops it.
  void observe(model::Observer* observer) noexcept { observer_ = observer; }

  [[nodiscard]] int64_t position() const noexcept { return static_cast<int64_t>(tokens_.size()); }
  [[nodiscard]] const model::Model& model() const noexcept { return *model_; }
  [[nodiscard]] cache::CachePool& pool() noexcept { return pool_; }
  [[nodiscard]] std::span<const cache::PageId> pages() const noexcept { return pages_; }
  [[nodiscard]] int64_t scratch_bytes() const noexcept { return scratch_.capacity_bytes(); }
  // Cache and scratch.
  [[nodiscard]] int64_t memory_bytes() const noexcept { return pool_.size_bytes() + scratch_.capacity_bytes(); }

 private:
  Runner(cache::CachePool pool, HostBuffer scratch, const RunnerOptions& options);
  [[nodiscard]] Status check_ids(std::span<const int32_t> ids) const;
  void forward(std::span<const int32_t> ids, LogitRows which, model::LogitSink& sink);

  RunnerOptions options_;
  std::unique_ptr<model::Model> model_;
  cache::CachePool pool_;
  Arena scratch_;
  ThreadPool threads_;
  model::CacheViews views_;
  PlanShape shape_;
  StepPlan plan_;
  std::vector<cache::PageId> pages_;
  std::vector<int32_t> token_classes_;
  std::vector<int32_t> tokens_;   // fed so far
  std::vector<int32_t> classes_;  // `history` dead entries, then one per fed token
  std::vector<float> logits_;
  model::Observer* observer_ = nullptr;
};

}  // namespace ps::engine
