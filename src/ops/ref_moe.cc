#include <algorithm>

#include "base/macros.h"
#include "base/quantize.h"
#include "ops/expert_rows.h"
#include "ops/expert_scores.h"
#include "ops/ref_rows.h"
#include "ops/ref_scratch.h"

namespace ps::ops::ref {
namespace {

// One thread's room for a row of the router.
struct RouterRow {
  float* scores;    // [E] s_e
  float* biased;    // [E] what is ranked
  uint8_t* picked;  // [E]
};

void route(const RouterArgs& args, int64_t t, const RouterRow& row) noexcept {
  const int64_t experts = args.logits.columns;
  const bool is_image = args.is_image != nullptr && args.is_image[t] != 0;
  const Vector& bias = is_image ? args.bias_image : args.bias;
  for (int64_t e = 0; e < experts; ++e) {
    row.scores[e] = expert_score(load(args.logits, t, e));
    row.biased[e] = expert_rank(row.scores[e], load(bias, e));
    row.picked[e] = 0;
  }
  for (int32_t pick = 0; pick < args.top_k; ++pick) {
    int64_t best = -1;
    for (int64_t e = 0; e < experts; ++e) {
      if (row.picked[e] == 0 && (best < 0 || row.biased[e] > row.biased[best])) best = e;
    }
    row.picked[best] = 1;
  }
  float total = 0.0f;
  for (int64_t e = 0; e < experts; ++e) {
    if (row.picked[e] != 0) total += row.scores[e];
  }
  int64_t at = t * args.top_k;
  for (int64_t e = 0; e < experts; ++e) {
    if (row.picked[e] == 0) continue;
    args.ids[at] = static_cast<int32_t>(e);
    args.weights[at] = expert_weight(row.scores[e], total, args.scaling);
    ++at;
  }
}

// Room for kChunkRows rows going through one expert.
struct ExpertScratch {
  float* x;       // [chunk, padded(D)]
  float* gate;    // [chunk, padded(I)] W1 x, then t
  float* up;      // [chunk, padded(I)] W3 x
  float* panels;  // [threads]
  float* total;   // [T, D] the sum so far
};

// t = rd(g * (silu(a) * u)) of one row, over `gate`.
void activate(const MoeArgs& args, const Expert& expert, float g, float* gate, const float* up) noexcept {
  const int64_t size = expert.w1.rows;
  for (int64_t i = 0; i < size; ++i) {
    const float a = std::min(round_to(args.y.dtype, gate[i]), args.limit);
    const float u = std::clamp(round_to(args.y.dtype, up[i]), -args.limit, args.limit);
    gate[i] = round_to(args.y.dtype, g * (silu(a) * u));
  }
  if (is_quantized(expert.w2.format)) fake_quantize_mxfp8(gate, size);
  std::fill(gate + size, gate + padded(size), 0.0f);
}

// Rows of x that one expert serves: rows[i] with weight weights[i], or, without rows, row first + i with weight 1.
struct ServedRows {
  const ConstActivations& x;
  int64_t count = 0;  // at most kChunkRows
  int64_t first = 0;
  const int32_t* rows = nullptr;
  const float* weights = nullptr;

  [[nodiscard]] int64_t row(int64_t i) const noexcept { return rows != nullptr ? int64_t{rows[i]} : first + i; }
  [[nodiscard]] float weight(int64_t i) const noexcept { return weights != nullptr ? weights[i] : 1.0f; }
};

// Adds the expert's output for these rows to total.
void add_expert(const MoeArgs& args, const Expert& expert, const ServedRows& served, const ExpertScratch& scratch,
                Exec& exec) {
  const int64_t dim = args.y.columns;
  const int64_t inputs = padded(dim);
  const int64_t inner = padded(expert.w1.rows);
  const int64_t count = served.count;
  exec.pool.parallel_for(count, 8, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) load_padded_row(served.x, served.row(i), scratch.x + i * inputs);
  });
  multiply(scratch.x, count, expert.w1, scratch.panels, exec,
           [&](int64_t i, int64_t n, float dot) { scratch.gate[i * inner + n] = dot; });
  multiply(scratch.x, count, expert.w3, scratch.panels, exec,
           [&](int64_t i, int64_t n, float dot) { scratch.up[i * inner + n] = dot; });
  exec.pool.parallel_for(count, 8, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      activate(args, expert, served.weight(i), scratch.gate + i * inner, scratch.up + i * inner);
    }
  });
  multiply(scratch.gate, count, expert.w2, scratch.panels, exec, [&](int64_t i, int64_t n, float dot) {
    scratch.total[served.row(i) * dim + n] += round_to(args.y.dtype, dot);
  });
}

}  // namespace

int64_t moe_scratch_bytes(const ScratchBounds& bounds) noexcept {
  const int64_t router =
      taken_bytes<float>(bounds.threads * bounds.experts) * 2 + taken_bytes<uint8_t>(bounds.threads * bounds.experts);
  const int64_t chunk = std::min(bounds.tokens, kChunkRows);
  const int64_t widest = padded(std::max(bounds.hidden, bounds.intermediate));
  const int64_t experts =
      expert_rows_bytes(bounds.tokens, bounds.experts, bounds.experts_per_token) +
      taken_bytes<float>(chunk * padded(bounds.hidden)) + taken_bytes<float>(chunk * padded(bounds.intermediate)) * 2 +
      taken_bytes<float>(bounds.threads * kPanelRows * widest) + taken_bytes<float>(bounds.tokens * bounds.hidden);
  return std::max(router, experts);
}

void router(const RouterArgs& args, Exec& exec) {
  const ScratchScope scope(exec.scratch);
  const int64_t experts = args.logits.columns;
  float* scores = exec.scratch.take<float>(exec.pool.threads() * experts);
  float* biased = exec.scratch.take<float>(exec.pool.threads() * experts);
  uint8_t* picked = exec.scratch.take<uint8_t>(exec.pool.threads() * experts);
  exec.pool.parallel_for(args.logits.rows, 4, [&](int64_t begin, int64_t end, int worker) {
    const int64_t at = worker * experts;
    for (int64_t t = begin; t < end; ++t) route(args, t, {scores + at, biased + at, picked + at});
  });
}

void moe(const MoeArgs& args, Exec& exec) {
  const ScratchScope scope(exec.scratch);
  const int64_t tokens = args.y.rows;
  const int64_t dim = args.y.columns;
  const ExpertRows assignment = sort_by_expert(args, exec.scratch);
  const int64_t chunk = std::min(tokens, kChunkRows);
  int64_t inner = args.shared.w1.rows;
  for (int32_t e = 0; e < args.expert_count; ++e) inner = std::max(inner, args.experts[e].w1.rows);
  const ExpertScratch scratch{exec.scratch.take<float>(chunk * padded(dim)),
                              exec.scratch.take<float>(chunk * padded(inner)),
                              exec.scratch.take<float>(chunk * padded(inner)),
                              exec.scratch.take<float>(exec.pool.threads() * kPanelRows * padded(std::max(dim, inner))),
                              exec.scratch.take<float>(tokens * dim)};
  std::fill(scratch.total, scratch.total + tokens * dim, 0.0f);
  // One expert after the other, the shared one last: every row sums its experts in ascending id.
  for (int32_t e = 0; e < args.expert_count; ++e) {
    for (int64_t first = assignment.start[e]; first < assignment.start[e + 1]; first += kChunkRows) {
      const ServedRows served{.x = args.x,
                              .count = std::min(kChunkRows, assignment.start[e + 1] - first),
                              .rows = assignment.row + first,
                              .weights = assignment.weight + first};
      add_expert(args, args.experts[e], served, scratch, exec);
    }
  }
  for (int64_t first = 0; first < tokens; first += kChunkRows) {
    const ServedRows served{.x = args.x_shared, .count = std::min(kChunkRows, tokens - first), .first = first};
    add_expert(args, args.shared, served, scratch, exec);
  }
  exec.pool.parallel_for(tokens, 8, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) store_values(args.y, t, 0, dim, scratch.total + t * dim);
  });
}

}  // namespace ps::ops::ref
