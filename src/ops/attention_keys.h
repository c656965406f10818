// Which keys a query of sparse_attention sees and where each one lies: the first half of the contract in attention.h,
// for every backend that runs on the host. Pure functions, any thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/attention.h"

namespace ps::ops {

// The keys of one query, in contract order: `window_count` window positions, then `selected_count` rows of the plane.
struct KeyList {
  int32_t request = 0;
  int32_t first_position = 0;  // of the request in this forward
  int32_t window_first = 0;    // oldest window position
  int64_t window_count = 0;
  int32_t ring_end = 0;  // window positions below it lie in the ring
  const int32_t* selected = nullptr;
  int64_t selected_count = 0;

  [[nodiscard]] int64_t size() const noexcept { return window_count + selected_count; }
};

[[nodiscard]] inline int32_t entry_or_zero(const int32_t* array, int32_t request) noexcept {
  return array == nullptr ? 0 : array[request];
}

// Of row `row` of the batch, which is no padding.
[[nodiscard]] inline KeyList keys_of(const SparseAttentionArgs& args, int32_t row) noexcept {
  const Batch& batch = *args.batch;
  KeyList keys;
  keys.request = batch.request_of_row[row];
  keys.first_position = batch.positions[batch.row_start[keys.request]];
  const int32_t position = batch.positions[row];
  const int32_t cached_until = entry_or_zero(batch.cached_until, keys.request);
  const bool recomputed = position < cached_until;
  keys.window_first = std::max({position - args.window + 1, entry_or_zero(batch.window_start, keys.request), 0});
  if (recomputed) keys.window_first = std::max(keys.window_first, keys.first_position);
  keys.window_count = std::max(position - keys.window_first + 1, 0);
  keys.ring_end = recomputed ? keys.first_position : std::max(keys.first_position, cached_until);
  if (args.selected != nullptr) {
    keys.selected = args.selected + static_cast<int64_t>(row) * args.top_k;
    while (keys.selected_count < args.top_k && keys.selected[keys.selected_count] >= 0) ++keys.selected_count;
  }
  return keys;
}

// Where key `index` of a list lies: a cache row, or a row of this forward's kv.
struct KeyPlace {
  const std::byte* row = nullptr;  // nullptr: row kv_row of kv
  RowFormat format = RowFormat::kBF16;
  int64_t kv_row = 0;
};

[[nodiscard]] inline KeyPlace key_place(const SparseAttentionArgs& args, const KeyList& keys, int64_t index) noexcept {
  const Batch& batch = *args.batch;
  if (index >= keys.window_count) {
    const int32_t* table = batch.block_tables + keys.request * batch.block_table_stride;
    return {args.plane.row(table, keys.selected[index - keys.window_count]), args.plane.format, 0};
  }
  const int32_t position = keys.window_first + static_cast<int32_t>(index);
  if (position < keys.ring_end) {
    return {args.ring.row(batch.slots[keys.request], position), args.ring.format, 0};
  }
  return {nullptr, RowFormat::kBF16, batch.row_start[keys.request] + (position - keys.first_position)};
}

}  // namespace ps::ops
