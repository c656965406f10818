#include "ops/elementwise.h"

#include <cmath>
#include <cstring>

#include "base/macros.h"
#include "ops/ref_rows.h"
#include "ops/ref_scratch.h"
#include "ops/rope_rotation.h"

namespace ps::ops::ref {
namespace {

constexpr int64_t kRowGrain = 4;

}  // namespace

// One row of the widest input per thread.
int64_t elementwise_scratch_bytes(const ScratchBounds& bounds) noexcept {
  return taken_bytes<float>(bounds.threads * bounds.columns);
}

void embed(const EmbedArgs& args, Exec& exec) {
  const ScratchScope scope(exec.scratch);
  const int64_t dim = args.w.columns;
  float* rows = exec.scratch.take<float>(exec.pool.threads() * dim);
  exec.pool.parallel_for(args.h.rows, kRowGrain, [&](int64_t begin, int64_t end, int worker) {
    float* row = rows + worker * dim;
    for (int64_t t = begin; t < end; ++t) {
      PS_DCHECK(args.ids[t] >= 0 && args.ids[t] < args.w.rows, args.ids[t], args.w.rows);
      decode_weights(args.w, args.ids[t], 0, dim, row);
      for (int64_t stream = 0; stream < args.streams; ++stream) store_values(args.h, t, stream * dim, dim, row);
    }
  });
}

void rms_norm(const RmsNormArgs& args, Exec& exec) {
  const ScratchScope scope(exec.scratch);
  const int64_t dim = args.x.columns;
  float* rows = exec.scratch.take<float>(exec.pool.threads() * dim);
  exec.pool.parallel_for(args.x.rows, kRowGrain, [&](int64_t begin, int64_t end, int worker) {
    float* row = rows + worker * dim;
    for (int64_t t = begin; t < end; ++t) {
      load_values(args.x, t, 0, dim, row);
      const float r = inverse_rms(row, dim, args.eps);
      for (int64_t k = 0; k < dim; ++k) store(args.y, t, k, load(args.w, k) * (row[k] * r));
    }
  });
}

void rope(const RopeArgs& args, Exec& exec) {
  const int64_t head_dim = args.x.columns / args.heads;
  exec.pool.parallel_for(args.x.rows, kRowGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t pair = 0; pair < args.pairs; ++pair) {
        const auto [cosine, sine] = rotation(args.positions[t], args.inverse_frequency[pair], args.inverse);
        for (int64_t head = 0; head < args.heads; ++head) {
          const int64_t column = (head + 1) * head_dim - 2 * (args.pairs - pair);
          const float a = load(args.x, t, column);
          const float b = load(args.x, t, column + 1);
          store(args.x, t, column, std::fma(a, cosine, -(b * sine)));
          store(args.x, t, column + 1, std::fma(a, sine, b * cosine));
        }
      }
    }
  });
}

void scale(const ScaleArgs& args, Exec& exec) {
  exec.pool.parallel_for(args.x.rows, kRowGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t k = 0; k < args.x.columns; ++k) store(args.y, t, k, load(args.x, t, k) * args.factor);
    }
  });
}

// Rows move towards the front, so in ascending order each is read before another lands on it. One thread, for that
// order.
void compact_rows(const CompactRowsArgs& args, Exec&) {
  auto* data = static_cast<std::byte*>(args.data);
  for (int64_t i = 0; i < args.count; ++i) {
    const int64_t from = args.rows[i];
    PS_DCHECK(from >= i && (i == 0 || from > args.rows[i - 1]), from, i);
    if (from != i)
      std::memcpy(data + i * args.row_bytes, data + from * args.row_bytes, static_cast<size_t>(args.row_bytes));
  }
}

}  // namespace ps::ops::ref
