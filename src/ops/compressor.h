// The compressor of FULL layers: pooling of token pairs, its ring of pending rows, and the stores of compressed rows
// and index keys. model.md 2.6, 2.7; runtime.md 4.1, 5.
#pragma once

#include "base/status.h"
#include "ops/batch.h"
#include "ops/cache_views.h"
#include "ops/exec.h"
#include "ops/views.h"

namespace ps::ops {

// latent[g] = per-channel softmax-weighted sum of a group's two kv rows (ratio 2 only):
//   m = max(s0, s1), e_i = exp(s_i - m), z = e0 + e1, pooled = fma(e1 / z, v1, (e0 / z) * v0), stored in latent's
// dtype. The first row of a group comes from the ring when from_ring == 1. Reads before compressor_ring_write of the
// same forward.
struct CompressorPoolArgs {
  ConstActivations kv;     // [T, dim] F32
  ConstActivations score;  // [T, dim] F32
  const Batch* batch = nullptr;
  const CompressedGroup* groups = nullptr;  // [G]
  int32_t group_count = 0;
  CompressorRing ring;
  Activations latent;  // [G, dim]; rows of padding groups stay untouched
};
[[nodiscard]] Status check(const CompressorPoolArgs& args);

// Keeps (kv, score) of the planned rows at position mod ring_slots.
struct CompressorRingWriteArgs {
  ConstActivations kv;     // [T, dim] F32
  ConstActivations score;  // [T, dim] F32
  const Batch* batch = nullptr;
  const CompressorRingRow* rows = nullptr;  // [count]
  int32_t row_count = 0;
  CompressorRing ring;
};
[[nodiscard]] Status check(const CompressorRingWriteArgs& args);

// Appends rotated latents as compressed rows position / ratio: Q4k over all channels, kept as BF16 values or packed;
// both decode to equal values.
struct CompressedStoreArgs {
  ConstActivations latent;  // [G, dim], rotated
  const Batch* batch = nullptr;
  const CompressedGroup* groups = nullptr;  // [G]
  int32_t group_count = 0;
  MainPlane plane;
};
[[nodiscard]] Status check(const CompressedStoreArgs& args);

// Appends rotated index keys as rows position / ratio of the index plane. kFp4: Q4e per 32 dims. kFp8: E4M3 with one
// scale 2^ceil(log2(max(amax, 1e-4) / 448)) per key.
struct IndexKeyStoreArgs {
  ConstActivations key;  // [G, dim], rotated
  const Batch* batch = nullptr;
  const CompressedGroup* groups = nullptr;  // [G]
  int32_t group_count = 0;
  IndexPlane plane;
};
[[nodiscard]] Status check(const IndexKeyStoreArgs& args);

namespace ref {
void compressor_pool(const CompressorPoolArgs& args, Exec& exec);
void compressor_ring_write(const CompressorRingWriteArgs& args, Exec& exec);
void compressed_store(const CompressedStoreArgs& args, Exec& exec);
void index_key_store(const IndexKeyStoreArgs& args, Exec& exec);
}  // namespace ref

}  // namespace ps::ops
