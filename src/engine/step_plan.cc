#include "engine/step_plan.h"

#include <algorithm>

#include "base/macros.h"

namespace ps::engine {

void StepPlan::build(const PlanShape& shape, std::span<const SequenceRows> rows) {
  clear();
  engram_rows_.resize(shape.engram.size());
  block_table_stride_ = 0;
  for (const SequenceRows& request : rows)
    block_table_stride_ = std::max(block_table_stride_, std::ssize(request.pages));
  for (const SequenceRows& request : rows) add(shape, request);
  engram_row_views_.clear();
  for (const auto& ids : engram_rows_) engram_row_views_.push_back(ids.data());
}

void StepPlan::reserve(const PlanShape& shape, int64_t tokens, int64_t requests, int64_t pages_per_request) {
  const auto rows = static_cast<size_t>(tokens);
  for (auto* array : {&ids_, &positions_, &request_of_row_, &logit_rows_, &logit_positions_, &decoder_rows_,
                      &decoder_positions_, &decoder_request_of_row_}) {
    array->reserve(rows);
  }
  for (auto* array : {&row_start_, &slots_, &window_start_, &cached_until_, &write_from_, &decoder_row_start_,
                      &decoder_window_start_, &zeros_}) {
    array->reserve(static_cast<size_t>(requests) + 1);
  }
  block_tables_.reserve(static_cast<size_t>(requests * pages_per_request));
  engram_rows_.resize(shape.engram.size());
  engram_row_views_.reserve(shape.engram.size());
  for (size_t e = 0; e < shape.engram.size(); ++e) {
    engram_rows_[e].reserve(rows * static_cast<size_t>(shape.engram[e].columns()));
  }
  for (Compression* compression : {&ratio1_, &ratio2_}) {
    compression->groups.reserve(rows);
    compression->group_positions.reserve(rows);
    compression->ring_rows.reserve(rows);
  }
}

void StepPlan::clear() {
  for (auto* array :
       {&ids_, &positions_, &request_of_row_, &row_start_, &slots_, &block_tables_, &window_start_, &cached_until_,
        &write_from_, &logit_rows_, &logit_positions_, &decoder_rows_, &decoder_positions_, &decoder_request_of_row_,
        &decoder_row_start_, &decoder_window_start_, &zeros_}) {
    array->clear();
  }
  for (auto& rows : engram_rows_) rows.clear();
  for (Compression* compression : {&ratio1_, &ratio2_}) {
    compression->groups.clear();
    compression->group_positions.clear();
    compression->ring_rows.clear();
  }
  is_narrowed_ = false;
  logit_rows_.reserve(1);  // a step that wants no row says so with an empty array; nullptr would mean all rows
  row_start_.push_back(0);
  decoder_row_start_.push_back(0);
}

void StepPlan::add(const PlanShape& shape, const SequenceRows& rows) {
  const auto request = static_cast<int32_t>(slots_.size());
  const int32_t first_row = tokens();
  const auto count = static_cast<int32_t>(rows.ids.size());
  PS_CHECK(count > 0, "request without rows at position", rows.start);
  ids_.insert(ids_.end(), rows.ids.begin(), rows.ids.end());
  for (int32_t j = 0; j < count; ++j) {
    positions_.push_back(rows.start + j);
    request_of_row_.push_back(request);
  }
  row_start_.push_back(first_row + count);
  slots_.push_back(cache::ordinal(rows.slot));
  for (const cache::PageId page : rows.pages) block_tables_.push_back(cache::ordinal(page));
  block_tables_.resize(slots_.size() * static_cast<size_t>(block_table_stride_), 0);
  window_start_.push_back(rows.window_start);
  cached_until_.push_back(rows.cached_until);
  write_from_.push_back(rows.write_from);
  zeros_.push_back(0);
  add_decoder_rows(rows, request, first_row);
  add_groups(rows, request, first_row);
  add_ring_rows(shape, rows, request, first_row);
  add_engram_rows(shape, rows);
}

void StepPlan::add_decoder_rows(const SequenceRows& rows, int32_t request, int32_t first_row) {
  const int32_t end = rows.start + static_cast<int32_t>(rows.ids.size());
  const int32_t start = rows.decoder_start == SequenceRows::kWholeDecoder ? rows.start : rows.decoder_start;
  PS_CHECK(start >= rows.start && start <= end, start, rows.start, end);
  // Decoder rings keep nothing below the resume position: a chunk that did not finish the prompt never wrote them.
  if (start > rows.start || rows.decoder_window_start > rows.window_start || rows.cached_until > 0) is_narrowed_ = true;
  for (int32_t position = start; position < end; ++position) {
    if (rows.logits == LogitRows::kAll || (rows.logits == LogitRows::kLast && position == end - 1)) {
      logit_rows_.push_back(static_cast<int32_t>(decoder_rows_.size()));
      logit_positions_.push_back(position);
    }
    decoder_rows_.push_back(first_row + position - rows.start);
    decoder_positions_.push_back(position);
    decoder_request_of_row_.push_back(request);
  }
  decoder_row_start_.push_back(static_cast<int32_t>(decoder_rows_.size()));
  decoder_window_start_.push_back(std::max(rows.window_start, rows.decoder_window_start));
}

void StepPlan::add_groups(const SequenceRows& rows, int32_t request, int32_t first_row) {
  const auto count = static_cast<int32_t>(rows.ids.size());
  // Inputs below this position come from the compressor ring: an earlier forward computed them exactly.
  const int32_t from_ring_below = std::max(rows.start, rows.cached_until);
  for (int32_t j = 0; j < count; ++j) {
    const int32_t position = rows.start + j;
    const bool is_written = position >= rows.write_from;
    // Ratio 1 keeps one entry per row, so that latents line up with the batch.
    ratio1_.groups.push_back({is_written ? first_row + j : -1, request, position, 0});
    ratio1_.group_positions.push_back(position);
    if (position % 2 == 1 && is_written) {
      ratio2_.groups.push_back({first_row + j, request, position, position - 1 < from_ring_below ? 1 : 0});
      ratio2_.group_positions.push_back(position - 1);
    }
  }
}

void StepPlan::add_ring_rows(const PlanShape& shape, const SequenceRows& rows, int32_t request, int32_t first_row) {
  const auto count = static_cast<int32_t>(rows.ids.size());
  const int32_t end = rows.start + count;
  const int32_t retained = std::max<int32_t>(2, 1 + shape.spec_tokens);
  const int32_t first = std::max({end - retained, rows.start, rows.cached_until});
  for (int32_t position = first; position < end; ++position) {
    ratio2_.ring_rows.push_back({first_row + position - rows.start, request, position});
  }
}

void StepPlan::add_engram_rows(const PlanShape& shape, const SequenceRows& rows) {
  for (size_t e = 0; e < shape.engram.size(); ++e) {
    const checkpoint::EngramLayer& layer = shape.engram[e];
    const auto history = static_cast<size_t>(layer.max_ngram) - 1;
    PS_CHECK(rows.classes.size() == rows.ids.size() + history, rows.classes.size(), rows.ids.size());
    std::vector<int64_t>& out = engram_rows_[e];
    const auto columns = static_cast<size_t>(layer.columns());
    for (size_t j = 0; j < rows.ids.size(); ++j) {
      int32_t lookback[checkpoint::kMaxEngramNgram];
      for (size_t s = 0; s <= history; ++s) lookback[s] = rows.classes[j + history - s];
      out.resize(out.size() + columns);
      checkpoint::hash_rows(layer, {lookback, history + 1}, {out.data() + out.size() - columns, columns});
    }
  }
}

model::ForwardPlan StepPlan::forward_plan(float* logits, int32_t block_rows, model::LogitSink* sink) const {
  const auto view = [](const Compression& compression) {
    return model::CompressionPlan{compression.groups.data(), compression.group_positions.data(),
                                  static_cast<int32_t>(compression.groups.size()), compression.ring_rows.data(),
                                  static_cast<int32_t>(compression.ring_rows.size())};
  };
  model::ForwardPlan plan;
  plan.batch.tokens = tokens();
  plan.batch.requests = static_cast<int32_t>(slots_.size());
  plan.batch.positions = positions_.data();
  plan.batch.request_of_row = request_of_row_.data();
  plan.batch.row_start = row_start_.data();
  plan.batch.slots = slots_.data();
  plan.batch.block_tables = block_tables_.data();
  plan.batch.block_table_stride = block_table_stride_;
  plan.batch.window_start = window_start_.data();
  plan.batch.cached_until = cached_until_.data();
  plan.batch.write_from = write_from_.data();
  plan.ids = ids_.data();
  plan.engram_rows = engram_row_views_.data();
  plan.ratio1 = view(ratio1_);
  plan.ratio2 = view(ratio2_);
  plan.decoder.is_narrowed = is_narrowed_;
  plan.decoder.batch = plan.batch;
  plan.decoder.batch.tokens = static_cast<int32_t>(decoder_rows_.size());
  plan.decoder.batch.positions = decoder_positions_.data();
  plan.decoder.batch.request_of_row = decoder_request_of_row_.data();
  plan.decoder.batch.row_start = decoder_row_start_.data();
  plan.decoder.batch.window_start = decoder_window_start_.data();
  plan.decoder.batch.cached_until = zeros_.data();
  plan.decoder.batch.write_from = zeros_.data();
  plan.decoder.rows = decoder_rows_.data();
  plan.logit_rows = logit_rows_.data();
  plan.logit_positions = logit_positions_.data();
  plan.logit_row_count = logit_row_count();
  plan.logits = logits;
  plan.logit_block_rows = block_rows;
  plan.sink = sink;
  return plan;
}

}  // namespace ps::engine
