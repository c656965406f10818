#include "ops/engram.h"

#include <array>
#include <cmath>

#include "base/macros.h"
#include "base/quantize.h"
#include "ops/hyper_connection.h"
#include "ops/ref_rows.h"
#include "ops/ref_scratch.h"

namespace ps::ops::ref {
namespace {

// Row `row` of the table as floats; an E4M3 row is exact in BF16, a subnormal product counts as zero.
void load_table_row(const EngramTable& table, int64_t row, float* out) noexcept {
  if (table.dtype != DType::kF8E4M3) {
    const Weight plain{table.dtype == DType::kF32 ? WeightFormat::kF32 : WeightFormat::kBF16, table.rows, table.dim,
                       table.data, nullptr};
    decode_weights(plain, row, 0, table.dim, out);
    return;
  }
  const int64_t groups = table.dim / kMxGroup;
  const uint8_t* codes = reinterpret_cast<const uint8_t*>(table.data) + row * table.dim;
  for (int64_t group = 0; group < groups; ++group) {
    dequantize_mxfp8(codes + group * kMxGroup, table.scale[row * groups + group], out + group * kMxGroup);
  }
}

// sigmoid(copysign(sqrt(max(|dot|, 1e-6)), dot)); the sign of a zero counts.
float gate(float dot) noexcept { return sigmoid(std::copysign(std::sqrt(std::max(std::fabs(dot), 1e-6f)), dot)); }

// Room for one stream of one row.
struct StreamScratch {
  float* h;    // [D]
  float* key;  // [D]
  float* q;    // [D] q weights, then t
  float* k;    // [D] k weights
};

void mix_stream(const EngramMixArgs& args, int64_t t, int64_t stream, const StreamScratch& row) noexcept {
  const int64_t dim = args.q_weight.columns;
  load_values(args.h, t, stream * dim, dim, row.h);
  load_values(args.u, t, stream * dim, dim, row.key);
  decode_weights(args.q_weight, stream, 0, dim, row.q);
  decode_weights(args.k_weight, stream, 0, dim, row.k);
  for (int64_t i = 0; i < dim; ++i) row.q[i] = row.h[i] * (row.q[i] * row.k[i]);
  const float rho = inverse_rms(row.h, dim, args.eps) * inverse_rms(row.key, dim, args.eps);
  const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim)));
  const float gamma = gate(lane_dot(row.q, row.key, dim) * rho * scale);
  for (int64_t i = 0; i < dim; ++i) {
    store(args.h, t, stream * dim + i, std::fma(gamma, load(args.u, t, kStreams * dim + i), row.h[i]));
  }
}

}  // namespace

// A gathered row, or four vectors of one stream, per thread.
int64_t engram_scratch_bytes(const ScratchBounds& bounds) noexcept {
  return 4 * taken_bytes<float>(bounds.threads * bounds.columns);
}

void engram_gather(const EngramGatherArgs& args, Exec& exec) {
  const ScratchScope scope(exec.scratch);
  const int64_t dim = args.table.dim;
  float* rows = exec.scratch.take<float>(exec.pool.threads() * dim);
  exec.pool.parallel_for(args.e.rows, 4, [&](int64_t begin, int64_t end, int worker) {
    float* row = rows + worker * dim;
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t column = 0; column < args.columns; ++column) {
        const int64_t id = args.row_ids[t * args.columns + column];
        PS_DCHECK(id >= 0 && id < args.table.rows, id, args.table.rows);
        load_table_row(args.table, id, row);
        store_values(args.e, t, column * dim, dim, row);
      }
    }
  });
}

void engram_mix(const EngramMixArgs& args, Exec& exec) {
  const ScratchScope scope(exec.scratch);
  const int64_t dim = args.q_weight.columns;
  const int64_t threads = exec.pool.threads();
  std::array<float*, 4> pieces;
  for (float*& piece : pieces) piece = exec.scratch.take<float>(threads * dim);
  exec.pool.parallel_for(args.h.rows, 1, [&](int64_t begin, int64_t end, int worker) {
    const int64_t at = worker * dim;
    for (int64_t t = begin; t < end; ++t) {
      if (args.alive != nullptr && args.alive[t] == 0) continue;
      for (int64_t stream = 0; stream < kStreams; ++stream) {
        mix_stream(args, t, stream, {pieces[0] + at, pieces[1] + at, pieces[2] + at, pieces[3] + at});
      }
    }
  });
}

}  // namespace ps::ops::ref
