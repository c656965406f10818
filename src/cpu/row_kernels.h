// The row-wise half of the contract between the drivers of the CPU backend and its instruction-set files (see
// kernels.h): one row of activations at a time, in the orders of elementwise.h, hyper_connection.h and engram.h.
#pragma once

#include <cstdint>

#include "ops/cache_views.h"
#include "ops/views.h"

namespace ps::cpu {

// BF16 or F32 values in a row.
struct RowView {
  const void* data = nullptr;
  bool is_f32 = false;
};
struct MutableRow {
  void* data = nullptr;
  bool is_f32 = false;
};

// y = w * (x * r). y may be x.
struct NormArgs {
  RowView x;
  RowView w;
  MutableRow y;
  int64_t size = 0;
  float eps = 0;
};

// y = x * factor. y may be x.
struct ScaleRowArgs {
  RowView x;
  MutableRow y;
  int64_t size = 0;
  float factor = 1;
};

// Rotates `channels` channels of every head; heads lie `stride` values apart.
struct RotateArgs {
  MutableRow x;  // first rotated channel of head 0
  int64_t heads = 0;
  int64_t stride = 0;
  int64_t channels = 0;  // even
  // [channels]: cos, sin of each pair, and -sin, cos.
  const float* first = nullptr;
  const float* second = nullptr;
};

// x = sum of pre[c] * h[c] over 4 streams, `size` values apart.
struct CollapseArgs {
  RowView h;
  const float* pre = nullptr;
  MutableRow x;
  int64_t size = 0;
};

// h'[j] = post[j] * y + sum over i of combine[4 * i + j] * h[i], in place.
struct ExpandArgs {
  RowView y;
  const float* post = nullptr;
  const float* combine = nullptr;
  MutableRow h;
  int64_t size = 0;
};

// Blocks [begin, end) of K of the products of `count` rows of h with fn. With `apart` every block's even and odd chains
// land in sums[block][count][kPanel], else they are added to sums[count][kPanel] in ascending order.
struct MixArgs {
  ops::Weight fn;
  RowView h;
  int64_t stride = 0;  // of h, in values
  int64_t count = 0;   // at most kMixRows
  int64_t begin = 0;
  int64_t end = 0;
  bool apart = false;
  float* sums = nullptr;
};
inline constexpr int64_t kMixRows = 96;

// The three sums of one Engram stream: h * h, key * key, (h * (q * k)) * key, in lane-16 order.
struct GateArgs {
  RowView h;
  RowView key;
  RowView q;
  RowView k;
  int64_t size = 0;
};
struct GateSums {
  float h = 0;
  float key = 0;
  float dot = 0;
};

// h = fma(gamma, value, h), in place.
struct AddScaledArgs {
  MutableRow h;
  RowView value;
  float gamma = 0;
  int64_t size = 0;
};

// One E4M3 row with a scale per 32 values, decoded.
struct DecodeRowArgs {
  const std::byte* codes = nullptr;
  const uint8_t* scales = nullptr;
  int64_t size = 0;
  MutableRow y;
};

// Rounds to the MXFP4 grid of index keys, 32 values at a time, in place.
struct FakeQuantizeArgs {
  MutableRow x;
  int64_t size = 0;
};

// Blocks of 8 index keys as BF16 rows [8 * count][dim]; exact.
struct DecodeKeysArgs {
  ops::IndexPlane plane;
  const int64_t* blocks = nullptr;  // [count], over the whole plane
  int64_t count = 0;
  uint16_t* keys = nullptr;  // 64-byte aligned
};

// scores[n] += rd(relu(rd(tile[h][n])) * weights[h]) over heads ascending, for the kPanel keys of a tile.
struct WeighScoresArgs {
  const float* tile = nullptr;     // [heads][kPanel]
  const float* weights = nullptr;  // [heads]
  int64_t heads = 0;
  bool round = false;       // rd() rounds to BF16
  float* scores = nullptr;  // [kPanel], 64-byte aligned
};

// encode_row of cache_rows.h for the window formats, or, as compress_row, for those of the main plane: a row that
// kBF16 stores is rounded to the compressed grid first.
struct EncodeRowArgs {
  RowView x;
  int64_t size = 0;  // a multiple of 32
  ops::RowFormat format = ops::RowFormat::kBF16;
  std::byte* row = nullptr;
};

// encode_index_key of cache_rows.h.
struct EncodeKeyArgs {
  RowView x;  // [plane.dim]
  ops::IndexPlane plane;
  int64_t flat_row = 0;
};

// The pooled row of compressor.h from two F32 rows.
struct PoolArgs {
  const float* kv[2] = {};
  const float* score[2] = {};
  int64_t size = 0;
  MutableRow y;
};

// lower[e] <= what the router ranks expert e by <= upper[e], close to it; both -inf where it is NaN.
struct BoundExpertsArgs {
  RowView logits;
  RowView bias;
  int64_t size = 0;
  float* lower = nullptr;
  float* upper = nullptr;
};

struct RowKernels {
  void (*norm)(const NormArgs& args) = nullptr;
  // 1 / sqrt(mean square + eps) of a row.
  float (*inverse_rms)(RowView x, int64_t size, float eps) = nullptr;
  void (*scale)(const ScaleRowArgs& args) = nullptr;
  void (*rotate)(const RotateArgs& args) = nullptr;
  void (*collapse)(const CollapseArgs& args) = nullptr;
  void (*expand)(const ExpandArgs& args) = nullptr;
  void (*mix)(const MixArgs& args) = nullptr;
  GateSums (*gate_sums)(const GateArgs& args) = nullptr;
  void (*add_scaled)(const AddScaledArgs& args) = nullptr;
  void (*decode_row)(const DecodeRowArgs& args) = nullptr;
  void (*quantize_mxfp4)(const FakeQuantizeArgs& args) = nullptr;
  void (*decode_keys)(const DecodeKeysArgs& args) = nullptr;
  void (*weigh_scores)(const WeighScoresArgs& args) = nullptr;
  void (*encode_row)(const EncodeRowArgs& args) = nullptr;
  void (*compress_row)(const EncodeRowArgs& args) = nullptr;
  void (*encode_key)(const EncodeKeyArgs& args) = nullptr;
  void (*quantize_fp8_key)(const FakeQuantizeArgs& args) = nullptr;  // one head
  void (*pool)(const PoolArgs& args) = nullptr;
  void (*bound_experts)(const BoundExpertsArgs& args) = nullptr;
};

}  // namespace ps::cpu
