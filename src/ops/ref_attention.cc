// Scalar reference of sparse attention and of the window ring's writer. Parallel over query rows; a key is decoded once
// per query row and block, and serves all heads.
#include <algorithm>
#include <array>
#include <cmath>

#include "ops/attention_keys.h"
#include "ops/cache_rows.h"
#include "ops/numerics.h"
#include "ops/ref_rows.h"
#include "ops/ref_scratch.h"

namespace ps::ops::ref {
namespace {

constexpr int64_t kKeyBlock = 64;
constexpr float kLowestMax = -1e30f;

void read_key(const SparseAttentionArgs& args, const KeyList& keys, int64_t index, float* key) noexcept {
  const KeyPlace place = key_place(args, keys, index);
  if (place.row != nullptr) decode_row(place.format, place.row, args.kv.columns, key);
  else load_values(args.kv, place.kv_row, 0, args.kv.columns, key);
}

// One head's running softmax.
struct Softmax {
  float max = kLowestMax;
  float denominator = 0;
};

// acc = acc + (even chain + odd chain) of P * v over 32 keys; the chains run over keys, so channels are independent.
void add_values(const float* weights, const float* keys, int64_t dim, float* accumulator) noexcept {
  for (int64_t at = 0; at < dim; at += kDotBlock) {
    std::array<float, kDotBlock> even{};
    std::array<float, kDotBlock> odd{};
    for (int64_t n = 0; n < kDotBlock; n += 2) {
      const float* even_key = keys + n * dim + at;
      const float* odd_key = even_key + dim;
      for (size_t d = 0; d < kDotBlock; ++d) {
        even[d] = std::fma(weights[n], even_key[d], even[d]);
        odd[d] = std::fma(weights[n + 1], odd_key[d], odd[d]);
      }
    }
    for (size_t d = 0; d < kDotBlock; ++d) accumulator[at + static_cast<int64_t>(d)] += even[d] + odd[d];
  }
}

// `keys` holds `count` keys and zeros behind them up to the next multiple of 32.
void attend_block(const SparseAttentionArgs& args, const float* query, const float* keys, int64_t count, Softmax& state,
                  float* accumulator) noexcept {
  const int64_t dim = args.kv.columns;
  std::array<float, kKeyBlock> scores{};
  float max = state.max;
  for (int64_t n = 0; n < count; ++n) {
    const float score = canonical_dot(query, keys + n * dim, dim) * args.scale;
    scores[static_cast<size_t>(n)] = score;
    max = std::max(max, score);
  }
  std::array<float, kKeyBlock> weights{};
  for (size_t n = 0; n < static_cast<size_t>(count); ++n) weights[n] = exp_f32(scores[n] - max);
  const float decay = exp_f32(state.max - max);
  state.denominator = state.denominator * decay + lane_sum(weights.data(), kKeyBlock);
  state.max = max;
  for (float& weight : weights) weight = round_to(args.q.dtype, weight);
  for (int64_t d = 0; d < dim; ++d) accumulator[d] *= decay;
  for (int64_t n = 0; n < count; n += kDotBlock) add_values(weights.data() + n, keys + n * dim, dim, accumulator);
}

// Per-worker scratch.
struct Workspace {
  float* query = nullptr;        // [H, dim]
  float* accumulator = nullptr;  // [H, dim]
  Softmax* softmax = nullptr;    // [H]
  float* keys = nullptr;         // [64, dim]
};

void attend_row(const SparseAttentionArgs& args, int64_t out_row, int32_t row, const Workspace& work) noexcept {
  const int64_t dim = args.kv.columns;
  const int64_t width = args.heads * dim;
  const KeyList keys = keys_of(args, row);
  load_values(args.q, out_row, 0, width, work.query);
  std::fill_n(work.accumulator, width, 0.0f);
  std::fill_n(work.softmax, args.heads, Softmax{});
  for (int64_t first = 0; first < keys.size(); first += kKeyBlock) {
    const int64_t count = std::min(kKeyBlock, keys.size() - first);
    for (int64_t n = 0; n < count; ++n) read_key(args, keys, first + n, work.keys + n * dim);
    std::fill(work.keys + count * dim, work.keys + (count + kDotBlock - 1) / kDotBlock * kDotBlock * dim, 0.0f);
    for (int64_t h = 0; h < args.heads; ++h) {
      attend_block(args, work.query + h * dim, work.keys, count, work.softmax[h], work.accumulator + h * dim);
    }
  }
  for (int64_t h = 0; h < args.heads; ++h) {
    const Softmax& state = work.softmax[h];
    const float denominator = state.denominator + exp_f32(load(args.sink, h) - state.max);
    for (int64_t d = 0; d < dim; ++d) {
      const float value = keys.size() == 0 ? 0.0f : work.accumulator[h * dim + d] / denominator;
      store(args.o, out_row, h * dim + d, value);
    }
  }
}

void write_request(const WindowWriteArgs& args, int32_t request, float* values) noexcept {
  const Batch& batch = *args.batch;
  const int32_t end = batch.row_start[request + 1];
  const int32_t begin = std::max(batch.row_start[request], end - args.ring.ring_slots);
  const int32_t cached_until = entry_or_zero(batch.cached_until, request);
  for (int32_t row = begin; row < end; ++row) {
    const int32_t position = batch.positions[row];
    if (batch.request_of_row[row] < 0 || position < cached_until) continue;
    load_values(args.kv, row, 0, args.kv.columns, values);
    encode_row(args.ring.format, values, args.ring.dim, args.ring.row(batch.slots[request], position));
  }
}

}  // namespace

int64_t attention_scratch_bytes(const ScratchBounds& bounds) noexcept {
  const int64_t threads = bounds.threads;
  return 2 * taken_bytes<float>(threads * bounds.heads * bounds.head_dim) +
         taken_bytes<Softmax>(threads * bounds.heads) + taken_bytes<float>(threads * kKeyBlock * bounds.head_dim);
}

void sparse_attention(const SparseAttentionArgs& args, Exec& exec) {
  const ScratchScope scope(exec.scratch);
  const int64_t threads = exec.pool.threads();
  const int64_t dim = args.kv.columns;
  const int64_t width = args.heads * dim;
  auto* query = exec.scratch.take<float>(threads * width);
  auto* accumulator = exec.scratch.take<float>(threads * width);
  auto* softmax = exec.scratch.take<Softmax>(threads * args.heads);
  auto* keys = exec.scratch.take<float>(threads * kKeyBlock * dim);
  exec.pool.parallel_for(args.q.rows, 1, [&](int64_t begin, int64_t end, int worker) {
    const Workspace work{query + worker * width, accumulator + worker * width, softmax + worker * args.heads,
                         keys + worker * kKeyBlock * dim};
    for (int64_t r = begin; r < end; ++r) {
      const int32_t row = args.query_rows == nullptr ? static_cast<int32_t>(r) : args.query_rows[r];
      if (row < 0 || args.batch->request_of_row[row] < 0) {
        for (int64_t i = 0; i < width; ++i) store(args.o, r, i, 0.0f);
      } else {
        attend_row(args, r, row, work);
      }
    }
  });
}

void window_write(const WindowWriteArgs& args, Exec& exec) {
  const ScratchScope scope(exec.scratch);
  auto* values = exec.scratch.take<float>(exec.pool.threads() * args.kv.columns);
  exec.pool.parallel_for(args.batch->requests, 1, [&](int64_t begin, int64_t end, int worker) {
    for (int64_t request = begin; request < end; ++request) {
      write_request(args, static_cast<int32_t>(request), values + worker * args.kv.columns);
    }
  });
}

}  // namespace ps::ops::ref
