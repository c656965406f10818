// One pool, one model, forwards of one sequence each with every field of the plan in the test's hand.
#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "engine/setup.h"
#include "tests/engine/engine_fixture.h"

namespace ps::tests {

class ForwardBench : private model::LogitSink {
 public:
  ForwardBench(cache::CacheFormat format, int32_t page_tokens, int32_t pages, int32_t slots, int64_t most_rows)
      : geometry_(cache::CacheGeometry::create(small_model().checkpoint().config().text_config,
                                               small_model().checkpoint().topology(), {format, page_tokens, 0})
                      .value()),
        pool_(cache::CachePool::allocate(geometry_, pages, slots).value()),
        model_(small_model().checkpoint(), cpu::table(), {}),
        scratch_(HostBuffer::allocate(
                     model::forward_scratch_bytes(model_.dims(), model_.table(), DType::kBF16, most_rows, most_rows, 1))
                     .value()),
        views_(engine::make_views(pool_, small_model().checkpoint().topology())),
        shape_(engine::make_plan_shape(small_model().checkpoint().config(), small_model().token_classes()).value()),
        block_(static_cast<size_t>(small_model().checkpoint().config().text_config.vocab_size)) {}

  // -> logits by position of the wanted rows.
  const std::map<int64_t, std::vector<float>>& run(const engine::SequenceRows& rows) {
    plan_.build(shape_, std::span(&rows, 1));
    wanted_.clear();
    ops::Exec exec{threads_, scratch_};
    model_.forward(plan_.forward_plan(block_.data(), 1, this), views_, exec);
    return wanted_;
  }

  // The same with every row in every layer: nothing is narrowed, windows stay cut as they are.
  const std::map<int64_t, std::vector<float>>& run_dense(engine::SequenceRows rows) {
    rows.decoder_start = rows.start;
    return run(rows);
  }

  [[nodiscard]] const cache::CacheGeometry& geometry() const noexcept { return geometry_; }
  [[nodiscard]] cache::CachePool& pool() noexcept { return pool_; }

 private:
  void logits(int32_t first, int32_t rows, const float* values) override {
    for (int32_t i = 0; i < rows; ++i) {
      const float* row = values + static_cast<size_t>(i) * block_.size();
      wanted_[plan_.logit_positions()[static_cast<size_t>(first + i)]].assign(row, row + block_.size());
    }
  }

  cache::CacheGeometry geometry_;
  cache::CachePool pool_;
  model::Model model_;
  Arena scratch_;
  ThreadPool threads_{1};
  model::CacheViews views_;
  engine::PlanShape shape_;
  engine::StepPlan plan_;
  std::vector<float> block_;
  std::map<int64_t, std::vector<float>> wanted_;
};

}  // namespace ps::tests
