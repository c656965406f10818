// What the router makes of a logit (moe.h), for every backend that runs on the host. REQUIRES: subnormals count as zero
// (inside ThreadPool::parallel_for).
#pragma once

#include <cmath>
#include <limits>

#include "ops/numerics.h"

namespace ps::ops {

// sqrt(softplus(z)).
[[nodiscard]] inline float expert_score(float z) noexcept {
  const float softplus = z > 20.0f ? z : static_cast<float>(std::log1p(static_cast<double>(exp_f32(z))));
  return std::sqrt(softplus);
}

// NaN ranks below every number, so that a row always has top_k distinct experts.
[[nodiscard]] inline float expert_rank(float score, float bias) noexcept {
  const float rank = score + bias;
  return rank == rank ? rank : -std::numeric_limits<float>::infinity();
}

// `total` is the sum of the scores of a row's experts.
[[nodiscard]] inline float expert_weight(float score, float total, float scaling) noexcept {
  return score / (total + 1e-20f) * scaling;
}

}  // namespace ps::ops
