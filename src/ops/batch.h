// The rows of one forward, as every op that knows positions sees them (runtime.md 4). Built by the host, read-only.
//
// T rows, flat over S requests. Row t of request s sits at absolute position positions[t]; the rows of a request are
// consecutive positions. A padding row has request -1 and is skipped by every op; a padding request is empty.
#pragma once

#include <cstdint>

namespace ps::ops {

struct Batch {
  int32_t tokens = 0;                       // T
  int32_t requests = 0;                     // S
  const int32_t* positions = nullptr;       // [T]
  const int32_t* request_of_row = nullptr;  // [T], -1 for padding
  const int32_t* row_start = nullptr;       // [S + 1]
  const int32_t* slots = nullptr;           // [S] STATE slot
  const int32_t* block_tables = nullptr;    // [S, block_table_stride] PAGE ids
  int64_t block_table_stride = 0;
  // Bounded replay (runtime.md 3); all zero for a plain forward.
  const int32_t* window_start = nullptr;  // [S] lowest position that a window may read (swa_replay_start)
  const int32_t* cached_until = nullptr;  // [S] ring rows below this position are kept, and read by rows at or above it
  const int32_t* write_from = nullptr;    // [S] compressed groups that end below this position are not written
};

// Visible compressed rows of ratio `ratio` for a query at `position`: groups fully past, its own token included.
[[nodiscard]] constexpr int32_t visible_rows(int32_t position, int32_t ratio) noexcept {
  return (position + 1) / ratio;
}

// One closed group of a compressor: the row that closes it and how many of its inputs come from the compressor ring.
struct CompressedGroup {
  int32_t row = -1;  // row of the batch that holds the group's last token; -1 = padding
  int32_t request = -1;
  int32_t position = 0;   // of the last token; the compressed row is position / ratio, rotated at position + 1 - ratio
  int32_t from_ring = 0;  // leading inputs read from the ring (window_len of runtime.md 4.1)
};

// One row whose (kv, score) is kept in the compressor ring for a later forward.
struct CompressorRingRow {
  int32_t row = -1;  // -1 = padding
  int32_t request = -1;
  int32_t position = 0;
};

}  // namespace ps::ops
