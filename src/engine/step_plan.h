// StepPlan: everything that one forward is told, built on the host from what each request runs (design C5; runtime.md
// 4).
//
// build() is a pure function of its arguments; the arrays grow once to their capacity and are reused, so a step
// allocates nothing after the first of its size. The ForwardPlan views point into the StepPlan and live until the next
// build().
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/ids.h"
#include "checkpoint/engram.h"
#include "model/forward.h"

namespace ps::engine {

enum class LogitRows : uint8_t { kNone, kLast, kAll };

// The rows that one request runs in a step: positions [start, start + ids.size()).
struct SequenceRows {
  int32_t start = 0;
  std::span<const int32_t> ids;
  // Engram classes of positions [start - history, start + ids.size()); dead before the prompt. Empty without Engram.
  std::span<const int32_t> classes;
  std::span<const cache::PageId> pages;  // covers position start + ids.size() - 1
  cache::SlotId slot{};
  LogitRows logits = LogitRows::kLast;
  // Bounded replay; 0 for a plain forward. See ops::Batch.
  int32_t window_start = 0;
  int32_t cached_until = 0;
  int32_t write_from = 0;
  // Rows [decoder_start, end) run the decoder, and see no window position below decoder_window_start there;
  // kWholeDecoder: all rows.
  static constexpr int32_t kWholeDecoder = -1;
  int32_t decoder_start = kWholeDecoder;
  int32_t decoder_window_start = 0;
};

// What of the model the plan depends on.
struct PlanShape {
  std::vector<checkpoint::EngramLayer> engram;  // in the order of engram_layer_ids
  int32_t vocabulary = 0;
  int32_t spec_tokens = 0;
};

class StepPlan {
 public:
  // REQUIRES: rows is not empty and each request has at least one row.
  void build(const PlanShape& shape, std::span<const SequenceRows> rows);

  // Makes room for the largest step, so that no later build() allocates.
  void reserve(const PlanShape& shape, int64_t tokens, int64_t requests, int64_t pages_per_request);

  // `logits` must hold block_rows * vocabulary floats.
  [[nodiscard]] model::ForwardPlan forward_plan(float* logits, int32_t block_rows, model::LogitSink* sink) const;

  [[nodiscard]] int32_t tokens() const noexcept { return static_cast<int32_t>(ids_.size()); }
  [[nodiscard]] int32_t logit_row_count() const noexcept { return static_cast<int32_t>(logit_rows_.size()); }
  // Rows of the decoder's batch whose logits come out, in order.
  [[nodiscard]] std::span<const int32_t> logit_rows() const noexcept { return logit_rows_; }
  [[nodiscard]] std::span<const int32_t> decoder_rows() const noexcept { return decoder_rows_; }
  [[nodiscard]] bool is_narrowed() const noexcept { return is_narrowed_; }
  [[nodiscard]] std::span<const int32_t> logit_positions() const noexcept { return logit_positions_; }
  // Request, by its place in build()'s rows, of a wanted row.
  [[nodiscard]] int32_t logit_request(int32_t wanted) const noexcept {
    return decoder_request_of_row_[static_cast<size_t>(logit_rows_[static_cast<size_t>(wanted)])];
  }
  [[nodiscard]] std::span<const int32_t> positions() const noexcept { return positions_; }
  [[nodiscard]] std::span<const int32_t> row_start() const noexcept { return row_start_; }
  [[nodiscard]] std::span<const ops::CompressedGroup> groups(int ratio) const noexcept {
    return compression(ratio).groups;
  }
  [[nodiscard]] std::span<const ops::CompressorRingRow> ring_rows() const noexcept { return ratio2_.ring_rows; }

 private:
  struct Compression {
    std::vector<ops::CompressedGroup> groups;
    std::vector<int32_t> group_positions;
    std::vector<ops::CompressorRingRow> ring_rows;
  };
  [[nodiscard]] const Compression& compression(int ratio) const noexcept { return ratio == 1 ? ratio1_ : ratio2_; }

  void clear();
  void add(const PlanShape& shape, const SequenceRows& rows);
  void add_decoder_rows(const SequenceRows& rows, int32_t request, int32_t first_row);
  void add_groups(const SequenceRows& rows, int32_t request, int32_t first_row);
  void add_ring_rows(const PlanShape& shape, const SequenceRows& rows, int32_t request, int32_t first_row);
  void add_engram_rows(const PlanShape& shape, const SequenceRows& rows);

  std::vector<int32_t> ids_;
  std::vector<int32_t> positions_;
  std::vector<int32_t> request_of_row_;
  std::vector<int32_t> row_start_;
  std::vector<int32_t> slots_;
  std::vector<int32_t> block_tables_;
  std::vector<int32_t> window_start_;
  std::vector<int32_t> cached_until_;
  std::vector<int32_t> write_from_;
  std::vector<int32_t> logit_rows_;  // of the decoder's rows
  std::vector<int32_t> logit_positions_;
  // The rows that run the decoder; equal to all rows unless is_narrowed_.
  bool is_narrowed_ = false;
  std::vector<int32_t> decoder_rows_;
  std::vector<int32_t> decoder_positions_;
  std::vector<int32_t> decoder_request_of_row_;
  std::vector<int32_t> decoder_row_start_;
  std::vector<int32_t> decoder_window_start_;
  std::vector<int32_t> zeros_;  // [S]
  std::vector<std::vector<int64_t>> engram_rows_;
  std::vector<const int64_t*> engram_row_views_;
  Compression ratio1_;
  Compression ratio2_;
  int64_t block_table_stride_ = 0;  // PAGEs of the longest request in this step
};

}  // namespace ps::engine
