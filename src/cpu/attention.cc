// Attention: rows x groups of heads are cut over threads, so that one row of a decode step keeps them all busy; the
// groups share nothing, whatever their size.
#include "ops/attention.h"

#include <algorithm>

#include "base/macros.h"
#include "cpu/drivers.h"
#include "ops/attention_keys.h"
#include "ops/ref_scratch.h"

namespace ps::cpu {
namespace {

using ops::ref::taken_bytes;

constexpr int64_t kLeastHeads = 16;  // of a group: what the matrix units take at once

// Whole multiples of kLeastHeads, as large as gives every thread two groups.
int64_t heads_per_group(int64_t rows, int64_t heads, int threads) noexcept {
  int64_t group = heads;
  while (group > kLeastHeads && rows * ((heads + group - 1) / group) < 2 * int64_t{threads}) {
    group = (group / 2 + kLeastHeads - 1) / kLeastHeads * kLeastHeads;
  }
  return group;
}

KeyFormat key_format(ops::RowFormat format) noexcept {
  switch (format) {
    case ops::RowFormat::kBF16: return KeyFormat::kBF16;
    case ops::RowFormat::kMxfp8: return KeyFormat::kMxfp8;
    case ops::RowFormat::kCompressed: return KeyFormat::kCompressed;
  }
  return KeyFormat::kBF16;
}

int64_t find_keys(const ops::SparseAttentionArgs& args, int32_t row, Key* keys) noexcept {
  const ops::KeyList list = ops::keys_of(args, row);
  for (int64_t i = 0; i < list.size(); ++i) {
    const ops::KeyPlace place = ops::key_place(args, list, i);
    if (place.row != nullptr) {
      keys[i] = {place.row, key_format(place.format)};
    } else {
      const auto* kv = static_cast<const std::byte*>(args.kv.data);
      keys[i] = {kv + place.kv_row * args.kv.stride * dtype_bytes(args.kv.dtype),
                 args.kv.dtype == DType::kF32 ? KeyFormat::kF32 : KeyFormat::kBF16};
    }
  }
  return list.size();
}

}  // namespace

int64_t attention_scratch_bytes(const Kernels& kernels, const ops::ScratchBounds& bounds) noexcept {
  return taken_bytes<std::byte>(bounds.threads * kernels.attend_bytes(bounds.heads, bounds.head_dim)) +
         taken_bytes<Key>(bounds.threads * (bounds.window + bounds.top_k)) + taken_bytes<float>(bounds.heads);
}

void sparse_attention(const Kernels& kernels, const ops::SparseAttentionArgs& args, ops::Exec& exec) {
  const ops::ScratchScope scope(exec.scratch);
  const int threads = exec.pool.threads();
  const int64_t dim = args.kv.columns;
  const int64_t group = heads_per_group(args.q.rows, args.heads, threads);
  const int64_t groups = (args.heads + group - 1) / group;
  const int64_t work_bytes = kernels.attend_bytes(group, dim);
  const int64_t most_keys = args.window + args.top_k;
  std::byte* work = exec.scratch.take_bytes(threads * work_bytes);
  Key* keys = exec.scratch.take<Key>(threads * most_keys);
  float* sink = exec.scratch.take<float>(args.heads);
  for (int64_t h = 0; h < args.heads; ++h) sink[h] = load(args.sink, h);
  exec.pool.parallel_for(args.q.rows * groups, 1, [&](int64_t begin, int64_t end, int worker) {
    for (int64_t at = begin; at < end; ++at) {
      const int64_t r = at / groups;
      const int64_t head = at % groups * group;
      const int64_t heads = std::min(group, args.heads - head);
      const int64_t bytes = dtype_bytes(args.q.dtype);
      std::byte* o = static_cast<std::byte*>(args.o.data) + (r * args.o.stride + head * dim) * bytes;
      const int32_t row = args.query_rows == nullptr ? static_cast<int32_t>(r) : args.query_rows[r];
      if (row < 0 || args.batch->request_of_row[row] < 0) {
        std::fill_n(o, heads * dim * bytes, std::byte{0});
        continue;
      }
      AttendArgs attend;
      attend.keys = keys + worker * most_keys;
      attend.count = find_keys(args, row, keys + worker * most_keys);
      attend.q = static_cast<const std::byte*>(args.q.data) + (r * args.q.stride + head * dim) * bytes;
      attend.o = o;
      attend.is_f32 = args.q.dtype == DType::kF32;
      attend.heads = heads;
      attend.dim = dim;
      attend.scale = args.scale;
      attend.sink = sink + head;
      attend.work = work + worker * work_bytes;
      kernels.attend(attend);
    }
  });
}

}  // namespace ps::cpu
