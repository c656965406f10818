// The ops that write the caches: the window ring, the compressor with its ring, compressed rows and index keys. Every
// thread writes rows of its own.
#include <algorithm>
#include <cstring>

#include "cpu/drivers.h"
#include "cpu/row_views.h"

namespace ps::cpu {
namespace {

int32_t entry_or_zero(const int32_t* list, int32_t index) noexcept { return list == nullptr ? 0 : list[index]; }

// No padding, and it ends at or past the request's write_from.
bool is_written(const ops::Batch& batch, const ops::CompressedGroup& group) noexcept {
  return group.row >= 0 && group.position >= entry_or_zero(batch.write_from, group.request);
}

const int32_t* block_table(const ops::Batch& batch, int32_t request) noexcept {
  return batch.block_tables + request * batch.block_table_stride;
}

// The first row of a request that its ring keeps.
int32_t first_kept(const ops::WindowWriteArgs& args, int32_t request) noexcept {
  return std::max(args.batch->row_start[request], args.batch->row_start[request + 1] - args.ring.ring_slots);
}

void write_window_row(const Kernels& kernels, const ops::WindowWriteArgs& args, int32_t row) noexcept {
  const ops::Batch& batch = *args.batch;
  const int32_t request = batch.request_of_row[row];
  if (request < 0 || row < first_kept(args, request)) return;
  const int32_t position = batch.positions[row];
  if (position < entry_or_zero(batch.cached_until, request)) return;
  kernels.rows.encode_row(
      {row_of(args.kv, row), args.ring.dim, args.ring.format, args.ring.row(batch.slots[request], position)});
}

}  // namespace

void window_write(const Kernels& kernels, const ops::WindowWriteArgs& args, ops::Exec& exec) {
  exec.pool.parallel_for(args.kv.rows, row_grain(args.kv.columns), [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) write_window_row(kernels, args, static_cast<int32_t>(row));
  });
}

void compressor_pool(const Kernels& kernels, const ops::CompressorPoolArgs& args, ops::Exec& exec) {
  exec.pool.parallel_for(args.group_count, row_grain(4 * args.latent.columns), [&](int64_t begin, int64_t end, int) {
    for (int64_t g = begin; g < end; ++g) {
      const ops::CompressedGroup& group = args.groups[g];
      if (group.row < 0) continue;
      PoolArgs pool{.size = args.latent.columns, .y = row_of(args.latent, g)};
      if (group.from_ring > 0) {
        const int32_t slot = args.batch->slots[group.request];
        pool.kv[0] = args.ring.kv_row(slot, group.position - 1);
        pool.score[0] = args.ring.score_row(slot, group.position - 1);
      } else {
        pool.kv[0] = static_cast<const float*>(row_of(args.kv, group.row - 1).data);
        pool.score[0] = static_cast<const float*>(row_of(args.score, group.row - 1).data);
      }
      pool.kv[1] = static_cast<const float*>(row_of(args.kv, group.row).data);
      pool.score[1] = static_cast<const float*>(row_of(args.score, group.row).data);
      kernels.rows.pool(pool);
    }
  });
}

void compressor_ring_write(const Kernels&, const ops::CompressorRingWriteArgs& args, ops::Exec& exec) {
  const int64_t size = args.ring.dim;
  exec.pool.parallel_for(args.row_count, row_grain(size), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const ops::CompressorRingRow& planned = args.rows[i];
      if (planned.row < 0) continue;
      const int32_t slot = args.batch->slots[planned.request];
      const auto keep = [&](const ops::ConstActivations& x, float* to) {
        std::memcpy(to, row_of(x, planned.row).data, static_cast<size_t>(size) * sizeof(float));
      };
      keep(args.kv, args.ring.kv_row(slot, planned.position));
      keep(args.score, args.ring.score_row(slot, planned.position));
    }
  });
}

void compressed_store(const Kernels& kernels, const ops::CompressedStoreArgs& args, ops::Exec& exec) {
  const int64_t size = args.plane.dim;
  exec.pool.parallel_for(args.group_count, row_grain(2 * size), [&](int64_t begin, int64_t end, int) {
    for (int64_t g = begin; g < end; ++g) {
      const ops::CompressedGroup& group = args.groups[g];
      if (!is_written(*args.batch, group)) continue;
      std::byte* row = args.plane.row(block_table(*args.batch, group.request), group.position / args.plane.ratio);
      kernels.rows.compress_row({row_of(args.latent, g), size, args.plane.format, row});
    }
  });
}

void index_key_store(const Kernels& kernels, const ops::IndexKeyStoreArgs& args, ops::Exec& exec) {
  exec.pool.parallel_for(args.group_count, row_grain(2 * args.plane.dim), [&](int64_t begin, int64_t end, int) {
    for (int64_t g = begin; g < end; ++g) {
      const ops::CompressedGroup& group = args.groups[g];
      if (!is_written(*args.batch, group)) continue;
      const int32_t* table = block_table(*args.batch, group.request);
      kernels.rows.encode_key(
          {row_of(args.key, g), args.plane, args.plane.flat_row(table, group.position / args.plane.ratio)});
    }
  });
}

}  // namespace ps::cpu
