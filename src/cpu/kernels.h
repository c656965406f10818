// The contract between the drivers of the CPU backend (baseline code) and its instruction-set files: plain structs and
// function pointers. An instruction-set file is compiled with wider flags than the rest, so it calls no inline function
// of a shared header; from ops/ it uses the POD types only.
//
// Everything is cut into panels of 32 rows of W and blocks of 32 of K. A panel is decoded block by block into memory of
// the thread (never a second copy of the model) and multiplied with packed rows of x, in the canonical order of
// linear.h, so all kernels give the bits of the reference for any number of rows. REQUIRES: called inside
// ThreadPool::parallel_for.
#pragma once

#include <cstdint>

#include "cpu/row_kernels.h"
#include "ops/views.h"

namespace ps::cpu {

inline constexpr int64_t kPanel = 32;       // rows of W that are multiplied together
inline constexpr int64_t kBlock = 32;       // of K; the canonical order's block
inline constexpr int64_t kChunk = 8;        // blocks of K that the matrix units' packed rows hold together
inline constexpr int64_t kPackUnit = 16;    // threads pack whole units of rows
inline constexpr int64_t kPanelGroup = 8;   // panels that share one pass over packed rows, at most
inline constexpr int64_t kFewPanels = 31;   // the same where there are at most kPackUnit rows
inline constexpr int64_t kTileRows = 4096;  // panels x packed rows of one pass: their sums stay in the second cache
inline constexpr int64_t kPrefetchRows = 32;
inline constexpr int64_t kCacheLine = 64;
inline constexpr int64_t kIntegerColumns = 128;  // what Kernels::integer takes at once
inline constexpr int64_t kMostIntegerRows = 8;
inline constexpr int64_t kKeyBlock = 64;  // keys of an attention that are weighed together

// Rows of x into a kernel's own layout, zeros up to a multiple of kBlock columns.
struct PackArgs {
  const void* x = nullptr;  // row 0
  bool is_f32 = false;      // else BF16
  int64_t stride = 0;       // elements
  int64_t columns = 0;
  const int32_t* rows = nullptr;  // packed row i is row rows[i] of x, or row i
  int64_t count = 0;              // packed rows
  int64_t begin = 0;              // which of them to pack: [begin, end); begin is a multiple of kPackUnit
  int64_t end = 0;
  void* packed = nullptr;
};

// tile[p][i][n] = dot(packed row i, row `first` + p * kPanel + n of W); rows past the end of W give zeros.
struct MultiplyArgs {
  ops::Weight w;
  int64_t first = 0;  // multiple of kPanel
  const void* packed = nullptr;
  int64_t count = 0;      // packed rows, at least 1
  float* tile = nullptr;  // [panels][count][kPanel], 64-byte aligned
  int64_t panels = 1;     // at most kPanelGroup, or kFewPanels of up to kPackUnit rows, all with a row of W
};

// t = rd(g * (silu(min(rd(gate), limit)) * clamp(rd(up), -limit, limit))) of moe.h, over the gate tile; then Q8 if
// `quantize`.
struct ActivateArgs {
  float* gate = nullptr;          // [count][kPanel]
  const float* up = nullptr;      // [count][kPanel]
  const float* weight = nullptr;  // [count] g, or nullptr for 1
  int64_t count = 0;
  int64_t outputs = 0;  // columns that exist; the others become zero
  float limit = 0;
  bool round = false;  // rd() rounds to BF16
  bool quantize = false;
};

// y[i][p * kPanel + n] = tile[p][i][n] up to column `outputs`, rounded to the dtype.
struct StoreArgs {
  const float* tile = nullptr;  // [panels][count][kPanel]
  int64_t count = 0;
  int64_t outputs = 0;
  void* y = nullptr;  // row 0, column `first`
  bool is_f32 = false;
  int64_t stride = 0;
};

// total[rows[i]][n] += rd(tile[i][n]).
struct AddArgs {
  const float* tile = nullptr;
  int64_t count = 0;
  int64_t outputs = 0;
  float* total = nullptr;  // row 0, column `first`
  int64_t stride = 0;
  const int32_t* rows = nullptr;  // or nullptr: row i
  bool round = false;
};

// One row of quantize_mxfp8. y may be x.
struct QuantizeArgs {
  const void* x = nullptr;
  void* y = nullptr;
  int64_t columns = 0;
  bool x_is_f32 = false;
  bool y_is_f32 = false;
};

// One key of an attention, as it is stored: a BF16 or F32 activation row, or a cache row.
enum class KeyFormat : uint8_t { kF32, kBF16, kMxfp8, kCompressed };
struct Key {
  const std::byte* row = nullptr;
  KeyFormat format = KeyFormat::kBF16;
};

// sparse_attention of `heads` heads of one query row over its keys, in the order of attention.h.
struct AttendArgs {
  const Key* keys = nullptr;
  int64_t count = 0;
  const void* q = nullptr;  // of the first head; heads follow each other
  void* o = nullptr;
  bool is_f32 = false;  // q, o and the compute dtype; else BF16
  int64_t heads = 0;
  int64_t dim = 0;
  float scale = 0;
  const float* sink = nullptr;  // [heads]
  std::byte* work = nullptr;    // attend_bytes(), 64-byte aligned
};

// Scores of index keys against BF16 queries, in the order of indexer.h, up to the last rounding. What belongs to query
// r lies r strides further on.
struct ScoreKeysArgs {
  ops::IndexPlane plane;               // of at most kChunk * kBlock dims
  const int64_t* blocks = nullptr;     // [count] of 8 keys, over the whole plane
  int64_t count = 0;                   // at most kPanelGroup * kPanel keys
  const std::byte* queries = nullptr;  // heads as rows that Kernels::matrix packed
  int64_t query_stride = 0;            // bytes
  const float* weights = nullptr;      // [heads]
  int64_t weight_stride = 0;
  int64_t query_count = 1;
  int64_t heads = 0;          // a multiple of kScoreHeads
  float* scores = nullptr;    // [8 * count] up to a multiple of kPanel, 64-byte aligned
  int64_t score_stride = 0;   // a multiple of 16
  std::byte* work = nullptr;  // 2 * kPanel * dim BF16 values, 64-byte aligned
};
inline constexpr int64_t kScoreHeads = 32;

// A way to multiply: a layout of packed rows and the function that reads it.
struct Multiplier {
  int64_t (*packed_bytes)(int64_t count, int64_t columns) = nullptr;
  void (*pack)(const PackArgs& args) = nullptr;
  // tile [count][kPanel] as block `block` of packed rows of `columns` columns.
  void (*pack_tile)(const float* tile, int64_t count, int64_t columns, int64_t block, void* packed) = nullptr;
  void (*multiply)(const MultiplyArgs& args) = nullptr;
  // Or nullptr: multiply(), then what Kernels::store does; args.tile is lost. REQUIRES: `out` is about that tile.
  void (*multiply_store)(const MultiplyArgs& args, const StoreArgs& out) = nullptr;
};

struct Kernels {
  Multiplier exact;   // any input
  Multiplier matrix;  // BF16 inputs and FP8, FP4 or BF16 weights; members nullptr where the matrix units are missing
  // Values on the MXFP8 grid and FP4 weights of whole kIntegerColumns columns, the fastest for up to integer_rows rows.
  Multiplier integer;
  int64_t integer_rows = 0;  // at most kMostIntegerRows; 0: `integer` has no members
  void (*activate)(const ActivateArgs& args) = nullptr;
  void (*store)(const StoreArgs& args) = nullptr;
  void (*add)(const AddArgs& args) = nullptr;
  void (*quantize)(const QuantizeArgs& args) = nullptr;
  int64_t (*attend_bytes)(int64_t heads, int64_t dim) = nullptr;
  void (*attend)(const AttendArgs& args) = nullptr;
  // Or nullptr: keys are decoded, multiplied and weighed one after the other.
  void (*score_keys)(const ScoreKeysArgs& args) = nullptr;
  RowKernels rows;
};

// One per instruction-set file. REQUIRES: the machine has the set.
[[nodiscard]] const Kernels& avx2_kernels();
[[nodiscard]] const Kernels& avx512_kernels();
[[nodiscard]] const Kernels& amx_kernels();

}  // namespace ps::cpu
