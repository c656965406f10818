// How ops see the cache: strided views and pure address arithmetic (runtime.md 1.2, 1.5-1.7).
//
// cache/ lays the bytes out and hands these views down; ops read and write rows through them. All products are 64-bit.
// PAGE planes are addressed by (block table, row); STATE rings by (slot, position).
#pragma once

#include <cstddef>
#include <cstdint>

namespace ps::ops {

enum class RowFormat : uint8_t {
  kBF16,        // dim * 2 bytes
  kMxfp8,       // window rows of a packed pool: dim E4M3 codes, then dim/32 E8M0 scales
  kCompressed,  // main rows of a packed pool: dim/2 bytes of E2M1, then dim/16 E4M3 scales
};

// Bytes of one row of `dim` values.
[[nodiscard]] constexpr int64_t row_bytes(RowFormat format, int64_t dim) noexcept {
  switch (format) {
    case RowFormat::kBF16: return dim * 2;
    case RowFormat::kMxfp8: return dim + dim / 32;
    case RowFormat::kCompressed: return dim / 2 + dim / 16;
  }
  return 0;
}

// One layer's window ring over all STATE slots: the row of (slot, position) lies at position mod ring_slots.
struct WindowRing {
  std::byte* base = nullptr;  // of slot 0
  int64_t slot_stride_bytes = 0;
  int32_t ring_slots = 0;
  int32_t dim = 0;
  RowFormat format = RowFormat::kBF16;  // kBF16 or kMxfp8

  [[nodiscard]] std::byte* row(int32_t slot, int32_t position) const noexcept {
    return base + slot * slot_stride_bytes + (position % ring_slots) * row_bytes(format, dim);
  }
};

// One owner's compressed rows in the main plane.
struct MainPlane {
  std::byte* base = nullptr;  // of this owner's rows in PAGE 0
  int64_t page_stride_bytes = 0;
  int32_t rows_per_page = 0;
  int32_t ratio = 1;
  int32_t dim = 0;
  RowFormat format = RowFormat::kBF16;  // kBF16 or kCompressed

  [[nodiscard]] std::byte* row(const int32_t* block_table, int64_t index) const noexcept {
    return base + block_table[index / rows_per_page] * page_stride_bytes +
           (index % rows_per_page) * row_bytes(format, dim);
  }
};

enum class IndexFormat : uint8_t {
  kFp4,  // E2M1, one E8M0 scale per 32 dims: the official arithmetic
  kFp8,  // E4M3, one power-of-two F32 scale per key: an approximation of it
};

inline constexpr int32_t kIndexBlockRows = 8;

// One owner's index keys: dense blocks of 8 rows over all PAGEs.
struct IndexPlane {
  std::byte* values = nullptr;  // kFp4: 8 rows * dim/2 bytes a block; kFp8: 8 * dim + 32 bytes a block, scales appended
  std::byte* scales = nullptr;  // kFp4: 8 rows * dim/32 bytes a block; kFp8: nullptr
  int32_t rows_per_page = 0;
  int32_t ratio = 1;
  int32_t dim = 0;
  IndexFormat format = IndexFormat::kFp4;

  // Row number over the whole plane; block = flat / 8, row in block = flat % 8.
  [[nodiscard]] int64_t flat_row(const int32_t* block_table, int64_t index) const noexcept {
    return static_cast<int64_t>(block_table[index / rows_per_page]) * rows_per_page + index % rows_per_page;
  }
};

// Bytes of one index key, scales included: 68 (FP4) or 132 (FP8) at 128 dims.
[[nodiscard]] constexpr int64_t index_row_bytes(IndexFormat format, int64_t dim) noexcept {
  return format == IndexFormat::kFp4 ? dim / 2 + dim / 32 : dim + 4;
}

// Byte of (row in block, dim) inside an FP8 block: 16-byte chunks interleaved over the 8 rows (runtime.md 1.5).
[[nodiscard]] constexpr int64_t fp8_index_offset(int64_t row, int64_t d) noexcept {
  return d / 16 * 128 + row * 16 + d % 16;
}
// Byte of (row in block, byte of the packed key) inside an FP4 block (runtime.md 1.6). `dim` is the key's.
[[nodiscard]] constexpr int64_t fp4_index_offset(int64_t row, int64_t byte, int64_t dim) noexcept {
  return row % 4 * dim + byte / 16 * 32 + row / 4 * 16 + byte % 16;
}
// Byte of (row in block, 32-group) inside an FP4 scale block.
[[nodiscard]] constexpr int64_t fp4_index_scale_offset(int64_t row, int64_t group) noexcept {
  return group * kIndexBlockRows + row;
}

// One owner's pending (kv, score) rows, F32 [ring_slots, dim] each, over all STATE slots.
struct CompressorRing {
  std::byte* kv = nullptr;     // of slot 0
  std::byte* score = nullptr;  // of slot 0
  int64_t slot_stride_bytes = 0;
  int32_t ring_slots = 0;
  int32_t dim = 0;

  [[nodiscard]] float* kv_row(int32_t slot, int32_t position) const noexcept { return row(kv, slot, position); }
  [[nodiscard]] float* score_row(int32_t slot, int32_t position) const noexcept { return row(score, slot, position); }

 private:
  [[nodiscard]] float* row(std::byte* field, int32_t slot, int32_t position) const noexcept {
    return reinterpret_cast<float*>(field + slot * slot_stride_bytes) +
           static_cast<int64_t>(position % ring_slots) * dim;
  }
};

}  // namespace ps::ops
