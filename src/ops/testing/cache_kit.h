// What the tests of the cache ops share beyond op_fixture.h: rows of values, poisoned caches, and batches with their
// plans.
//
// Everything that an op must not read is filled with 0xFF, which every row format decodes to NaN.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "base/quantize.h"
#include "ops/cache_rows.h"
#include "ops/testing/op_fixture.h"

namespace ps::ops::test {

using Row = std::vector<float>;

inline constexpr std::byte kPoison{0xFF};

// Uniform in +-magnitude, a function of its arguments alone.
inline Row random_row(uint64_t seed, int64_t size, float magnitude = 1.0f) {
  Pcg64 random(seed);
  Row row(static_cast<size_t>(size));
  for (float& value : row) value = magnitude * static_cast<float>(2.0 * random.uniform() - 1.0);
  return row;
}
inline Row rounded(DType dtype, Row row) {
  for (float& value : row) value = round_to(dtype, value);
  return row;
}
inline Row on_mxfp8_grid(Row row) {
  fake_quantize_mxfp8(row.data(), static_cast<int64_t>(row.size()));
  return row;
}
inline Row on_compressed_grid(Row row) {
  fake_quantize_compressed(row.data(), static_cast<int64_t>(row.size()));
  return row;
}
inline Row on_index_grid(IndexFormat format, Row row) {
  fake_quantize_index(format, row.data(), static_cast<int64_t>(row.size()));
  return row;
}

inline void set_row(Rows& rows, int64_t row, const Row& values, int64_t first = 0) {
  for (size_t i = 0; i < values.size(); ++i) rows.set(row, first + static_cast<int64_t>(i), values[i]);
}
inline Row part(const Rows& rows, int64_t row, int64_t first, int64_t count) {
  Row values;
  for (int64_t i = 0; i < count; ++i) values.push_back(rows.at(row, first + i));
  return values;
}

struct CacheShape {
  RowFormat window_format = RowFormat::kBF16;
  RowFormat main_format = RowFormat::kBF16;
  IndexFormat index_format = IndexFormat::kFp4;
  int32_t dim = 32;
  int32_t index_dim = 32;
  int32_t ring_slots = 13;
  int32_t ratio = 2;
  int32_t page_tokens = 16;  // a multiple of 8 * ratio
  int32_t compressor_slots = 7;
  int32_t slots = 5;
  int32_t pages = 40;
};

// One layer's share of PAGEs and STATE slots, poisoned, with gaps between everything.
class TestCache {
 public:
  explicit TestCache(const CacheShape& shape) {
    const int32_t rows_per_page = shape.page_tokens / shape.ratio;
    const int64_t slot_bytes = shape.ring_slots * row_bytes(shape.window_format, shape.dim) + 192;
    windows_.assign(static_cast<size_t>(shape.slots * slot_bytes), kPoison);
    window = {windows_.data(), slot_bytes, shape.ring_slots, shape.dim, shape.window_format};
    const int64_t page_bytes = rows_per_page * row_bytes(shape.main_format, shape.dim) + 160;
    pages_.assign(static_cast<size_t>(shape.pages * page_bytes), kPoison);
    main = {pages_.data() + 96, page_bytes, rows_per_page, shape.ratio, shape.dim, shape.main_format};
    const int64_t keys = int64_t{shape.pages} * rows_per_page;
    const bool is_fp4 = shape.index_format == IndexFormat::kFp4;
    keys_.assign(static_cast<size_t>(keys * (is_fp4 ? shape.index_dim / 2 : shape.index_dim + 4)), kPoison);
    key_scales_.assign(static_cast<size_t>(keys * shape.index_dim / 32), kPoison);
    index = {keys_.data(),      is_fp4 ? key_scales_.data() : nullptr, rows_per_page, shape.ratio, shape.index_dim,
             shape.index_format};
    const int64_t field = int64_t{shape.compressor_slots} * shape.dim * 4;
    const int64_t pending_bytes = 2 * field + 64;
    pending_.assign(static_cast<size_t>(shape.slots * pending_bytes), kPoison);
    compressor = {pending_.data(), pending_.data() + field, pending_bytes, shape.compressor_slots, shape.dim};
  }
  TestCache(const TestCache&) = delete;
  TestCache& operator=(const TestCache&) = delete;

  // Copies of all bytes, to see what an op touched. Numbers, because the library compares std::byte one at a time.
  [[nodiscard]] std::array<std::vector<uint8_t>, 5> bytes() const {
    const auto numbers = [](const std::vector<std::byte>& plane) {
      const auto* first = reinterpret_cast<const uint8_t*>(plane.data());
      return std::vector<uint8_t>(first, first + plane.size());
    };
    return {numbers(windows_), numbers(pages_), numbers(keys_), numbers(key_scales_), numbers(pending_)};
  }

  WindowRing window;
  MainPlane main;
  IndexPlane index;
  CompressorRing compressor;

 private:
  std::vector<std::byte> windows_;
  std::vector<std::byte> pages_;
  std::vector<std::byte> keys_;
  std::vector<std::byte> key_scales_;
  std::vector<std::byte> pending_;
};

// The rows [start, start + count) of one request.
struct RequestRows {
  int32_t start = 0;
  int32_t count = 0;
  int32_t slot = 0;
  std::vector<int32_t> pages;
  int32_t window_start = 0;
  int32_t cached_until = 0;
  int32_t write_from = 0;
};

// `count` PAGE ids out of order, different for different `salt` below 8. REQUIRES: count <= 5; ids are below 40.
inline std::vector<int32_t> scattered_pages(int32_t salt, int32_t count) {
  std::vector<int32_t> pages;
  for (int32_t i = 0; i < count; ++i) pages.push_back((salt * 5 + (count - 1 - i)) * 7 % 40);
  return pages;
}

// A batch with its arrays, and padding rows and empty padding requests behind them.
class TestBatch {
 public:
  explicit TestBatch(std::vector<RequestRows> requests, int32_t padding_rows = 0, int32_t padding_requests = 0)
      : requests_(std::move(requests)) {
    row_start_.push_back(0);
    for (size_t s = 0; s < requests_.size(); ++s) add(static_cast<int32_t>(s), requests_[s]);
    positions_.resize(positions_.size() + static_cast<size_t>(padding_rows), 0);
    request_of_row_.resize(positions_.size(), -1);
    for (int32_t i = 0; i < padding_requests; ++i) add(0, {});
    batch_.tokens = static_cast<int32_t>(positions_.size());
    batch_.requests = static_cast<int32_t>(slots_.size());
    batch_.positions = positions_.data();
    batch_.request_of_row = request_of_row_.data();
    batch_.row_start = row_start_.data();
    batch_.slots = slots_.data();
    batch_.block_tables = tables_.data();
    batch_.block_table_stride = kTableStride;
    batch_.window_start = window_start_.data();
    batch_.cached_until = cached_until_.data();
    batch_.write_from = write_from_.data();
  }
  TestBatch(const TestBatch&) = delete;
  TestBatch& operator=(const TestBatch&) = delete;

  [[nodiscard]] Batch* operator->() { return &batch_; }
  [[nodiscard]] const Batch* operator->() const { return &batch_; }
  [[nodiscard]] const Batch* get() const { return &batch_; }
  [[nodiscard]] const std::vector<RequestRows>& requests() const { return requests_; }
  [[nodiscard]] const RequestRows& request_of(int32_t row) const {
    return requests_[static_cast<size_t>(request_of_row_[static_cast<size_t>(row)])];
  }

  // The closed groups of runtime.md 4.1, with a padding group in front.
  [[nodiscard]] std::vector<CompressedGroup> groups(int32_t ratio) const {
    std::vector<CompressedGroup> plan(1);
    for (int32_t row = 0; row < batch_.tokens; ++row) {
      const int32_t s = batch_.request_of_row[row];
      const int32_t position = batch_.positions[row];
      if (s < 0 || (position + 1) % ratio != 0) continue;
      const int32_t in_chunk = row - batch_.row_start[s];
      plan.push_back({row, s, position, ratio - std::min(in_chunk + 1, ratio)});
    }
    return plan;
  }
  // The rows that the compressor ring keeps, with a padding row in front.
  [[nodiscard]] std::vector<CompressorRingRow> ring_rows(int32_t retained) const {
    std::vector<CompressorRingRow> plan = {{-1, 0, 4}};
    for (int32_t row = 0; row < batch_.tokens; ++row) {
      const int32_t s = batch_.request_of_row[row];
      if (s >= 0 && row >= batch_.row_start[s + 1] - retained) plan.push_back({row, s, batch_.positions[row]});
    }
    return plan;
  }

 private:
  static constexpr int64_t kTableStride = 11;

  void add(int32_t request, const RequestRows& rows) {
    for (int32_t i = 0; i < rows.count; ++i) {
      positions_.push_back(rows.start + i);
      request_of_row_.push_back(request);
    }
    row_start_.push_back(row_start_.back() + rows.count);
    slots_.push_back(rows.slot);
    tables_.insert(tables_.end(), rows.pages.begin(), rows.pages.end());
    tables_.resize(slots_.size() * kTableStride, 0);
    window_start_.push_back(rows.window_start);
    cached_until_.push_back(rows.cached_until);
    write_from_.push_back(rows.write_from);
  }

  std::vector<RequestRows> requests_;
  std::vector<int32_t> positions_, request_of_row_, row_start_, slots_, tables_;
  std::vector<int32_t> window_start_, cached_until_, write_from_;
  Batch batch_;
};

}  // namespace ps::ops::test
