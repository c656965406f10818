// Scalar references of the compressor. Parallel over groups or planned rows; each writes its own row only.
#include <algorithm>

#include "base/quantize.h"
#include "ops/cache_rows.h"
#include "ops/compressor.h"
#include "ops/numerics.h"
#include "ops/ref_rows.h"
#include "ops/ref_scratch.h"

namespace ps::ops::ref {
namespace {

// The group is one that a store writes: no padding, and it ends at or past the request's write_from.
bool is_written(const Batch& batch, const CompressedGroup& group) noexcept {
  return group.row >= 0 && (batch.write_from == nullptr || group.position >= batch.write_from[group.request]);
}

const int32_t* block_table(const Batch& batch, int32_t request) noexcept {
  return batch.block_tables + request * batch.block_table_stride;
}

void pool_group(const CompressorPoolArgs& args, int64_t index) noexcept {
  const CompressedGroup& group = args.groups[index];
  if (group.row < 0) return;
  const bool from_ring = group.from_ring > 0;
  const int32_t slot = args.batch->slots[group.request];
  const float* ring_kv = from_ring ? args.ring.kv_row(slot, group.position - 1) : nullptr;
  const float* ring_score = from_ring ? args.ring.score_row(slot, group.position - 1) : nullptr;
  for (int64_t d = 0; d < args.latent.columns; ++d) {
    const float v0 = from_ring ? ring_kv[d] : load(args.kv, group.row - 1, d);
    const float s0 = from_ring ? ring_score[d] : load(args.score, group.row - 1, d);
    const float v1 = load(args.kv, group.row, d);
    const float s1 = load(args.score, group.row, d);
    const float max = std::max(s0, s1);
    const float e0 = exp_f32(s0 - max);
    const float e1 = exp_f32(s1 - max);
    const float z = e0 + e1;
    store(args.latent, index, d, std::fma(e1 / z, v1, (e0 / z) * v0));
  }
}

}  // namespace

// One row of values per thread.
int64_t compressor_scratch_bytes(const ScratchBounds& bounds) noexcept {
  return taken_bytes<float>(bounds.threads * std::max<int64_t>(bounds.head_dim, kMaxIndexDim));
}

void compressor_pool(const CompressorPoolArgs& args, Exec& exec) {
  exec.pool.parallel_for(args.group_count, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t g = begin; g < end; ++g) pool_group(args, g);
  });
}

void compressor_ring_write(const CompressorRingWriteArgs& args, Exec& exec) {
  exec.pool.parallel_for(args.row_count, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const CompressorRingRow& planned = args.rows[i];
      if (planned.row < 0) continue;
      const int32_t slot = args.batch->slots[planned.request];
      load_values(args.kv, planned.row, 0, args.ring.dim, args.ring.kv_row(slot, planned.position));
      load_values(args.score, planned.row, 0, args.ring.dim, args.ring.score_row(slot, planned.position));
    }
  });
}

void compressed_store(const CompressedStoreArgs& args, Exec& exec) {
  const ScratchScope scope(exec.scratch);
  const int64_t dim = args.plane.dim;
  auto* scratch = exec.scratch.take<float>(exec.pool.threads() * dim);
  exec.pool.parallel_for(args.group_count, 1, [&](int64_t begin, int64_t end, int worker) {
    float* values = scratch + worker * dim;
    for (int64_t g = begin; g < end; ++g) {
      const CompressedGroup& group = args.groups[g];
      if (!is_written(*args.batch, group)) continue;
      load_values(args.latent, g, 0, dim, values);
      if (args.plane.format == RowFormat::kBF16) fake_quantize_compressed(values, dim);
      std::byte* row = args.plane.row(block_table(*args.batch, group.request), group.position / args.plane.ratio);
      encode_row(args.plane.format, values, dim, row);
    }
  });
}

void index_key_store(const IndexKeyStoreArgs& args, Exec& exec) {
  const ScratchScope scope(exec.scratch);
  const int64_t dim = args.plane.dim;
  auto* scratch = exec.scratch.take<float>(exec.pool.threads() * dim);
  exec.pool.parallel_for(args.group_count, 1, [&](int64_t begin, int64_t end, int worker) {
    float* key = scratch + worker * dim;
    for (int64_t g = begin; g < end; ++g) {
      const CompressedGroup& group = args.groups[g];
      if (!is_written(*args.batch, group)) continue;
      load_values(args.key, g, 0, dim, key);
      const int32_t* table = block_table(*args.batch, group.request);
      encode_index_key(args.plane, args.plane.flat_row(table, group.position / args.plane.ratio), key);
    }
  });
}

}  // namespace ps::ops::ref
