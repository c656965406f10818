#include "ops/hyper_connection_finish.h"

#include <array>

#include "ops/ref_rows.h"
#include "ops/ref_scratch.h"

namespace ps::ops::ref {
namespace {

using Four = std::array<float, kStreams>;
using Matrix = std::array<Four, kStreams>;  // [old stream][new stream]

constexpr int64_t kRowGrain = 1;

float sum(const Four& values) noexcept { return ((values[0] + values[1]) + values[2]) + values[3]; }

void softmax(Four& row) noexcept {
  const float largest = std::max(std::max(row[0], row[1]), std::max(row[2], row[3]));
  for (float& value : row) value = exp_f32(value - largest);
  const float total = sum(row);
  for (float& value : row) value = value / total;
}

void normalize_rows(Matrix& matrix, float eps) noexcept {
  for (Four& row : matrix) {
    const float divisor = sum(row) + eps;
    for (float& value : row) value = value / divisor;
  }
}

void normalize_columns(Matrix& matrix, float eps) noexcept {
  for (size_t j = 0; j < kStreams; ++j) {
    const float divisor = sum({matrix[0][j], matrix[1][j], matrix[2][j], matrix[3][j]}) + eps;
    for (Four& row : matrix) row[j] = row[j] / divisor;
  }
}

// Makes the matrix almost doubly stochastic: `iterations` column passes with row passes between them.
void balance(Matrix& matrix, int32_t iterations, float eps) noexcept {
  for (Four& row : matrix) {
    softmax(row);
    for (float& value : row) value = value + eps;
  }
  normalize_columns(matrix, eps);
  for (int32_t iteration = 1; iteration < iterations; ++iteration) {
    normalize_rows(matrix, eps);
    normalize_columns(matrix, eps);
  }
}

}  // namespace

}  // namespace ps::ops::ref

namespace ps::ops {

void finish_mixes(const HcMixArgs& args, int64_t t, const float* z) noexcept {
  const auto scaled = [&](int64_t index, int64_t kind) {
    return z[index] * load(args.scale, kind) + load(args.base, index);
  };
  ref::Matrix matrix;
  for (int64_t c = 0; c < kStreams; ++c) {
    args.pre[t * kStreams + c] = sigmoid(scaled(c, 0)) + args.eps;
    args.post[t * kStreams + c] = 2.0f * sigmoid(scaled(kStreams + c, 1));
    for (int64_t j = 0; j < kStreams; ++j) {
      matrix[static_cast<size_t>(c)][static_cast<size_t>(j)] = scaled(2 * kStreams + c * kStreams + j, 2);
    }
  }
  ref::balance(matrix, args.iterations, args.eps);
  float* combine = args.combine + t * kStreams * kStreams;
  for (const ref::Four& row : matrix) combine = std::copy(row.begin(), row.end(), combine);
}

}  // namespace ps::ops

namespace ps::ops::ref {

// All streams of one row per thread, and one row of fn.
int64_t hyper_connection_scratch_bytes(const ScratchBounds& bounds) noexcept {
  return 2 * taken_bytes<float>(bounds.threads * kStreams * bounds.columns);
}

void hc_mix(const HcMixArgs& args, Exec& exec) {
  const ScratchScope scope(exec.scratch);
  const int64_t columns = args.h.columns;
  float* rows = exec.scratch.take<float>(exec.pool.threads() * columns);
  float* functions = exec.scratch.take<float>(exec.pool.threads() * columns);
  exec.pool.parallel_for(args.h.rows, kRowGrain, [&](int64_t begin, int64_t end, int worker) {
    float* row = rows + worker * columns;
    float* function = functions + worker * columns;
    for (int64_t t = begin; t < end; ++t) {
      load_values(args.h, t, 0, columns, row);
      const float rho = inverse_rms(row, columns, args.norm_eps);
      std::array<float, kMixes> z;
      for (int64_t n = 0; n < kMixes; ++n) {
        decode_weights(args.fn, n, 0, columns, function);
        z[static_cast<size_t>(n)] = canonical_dot(row, function, columns) * rho;
      }
      finish_mixes(args, t, z.data());
    }
  });
}

void hc_collapse(const HcCollapseArgs& args, Exec& exec) {
  const int64_t dim = args.x.columns;
  exec.pool.parallel_for(args.x.rows, kRowGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t t = args.rows != nullptr ? args.rows[r] : r;
      const float* pre = args.pre + t * kStreams;
      for (int64_t k = 0; k < dim; ++k) {
        float value = pre[0] * load(args.h, t, k);
        for (int64_t c = 1; c < kStreams; ++c) value = std::fma(pre[c], load(args.h, t, c * dim + k), value);
        store(args.x, r, k, value);
      }
    }
  });
}

void hc_expand(const HcExpandArgs& args, Exec& exec) {
  const int64_t dim = args.y.columns;
  exec.pool.parallel_for(args.y.rows, kRowGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      const float* post = args.post + t * kStreams;
      const float* combine = args.combine + t * kStreams * kStreams;
      for (int64_t k = 0; k < dim; ++k) {
        Four old;
        for (int64_t i = 0; i < kStreams; ++i) old[static_cast<size_t>(i)] = load(args.h, t, i * dim + k);
        const float y = load(args.y, t, k);
        for (int64_t j = 0; j < kStreams; ++j) {
          float value = post[j] * y;
          for (int64_t i = 0; i < kStreams; ++i) {
            value = std::fma(combine[i * kStreams + j], old[static_cast<size_t>(i)], value);
          }
          store(args.h, t, j * dim + k, value);
        }
      }
    }
  });
}

}  // namespace ps::ops::ref
