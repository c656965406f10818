// Two restatements of sparse attention for one head of one query, made from nothing but its list of keys: the contract
// of attention.h written out a second time, step by step, and the softmax it stands for, in double with an error bound.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/numerics.h"
#include "ops/testing/cache_kit.h"

namespace ps::ops::test {

inline float literal_lane_sum(const std::vector<float>& values) {
  float lane[16] = {};
  for (size_t i = 0; i < values.size(); ++i) lane[i % 16] = lane[i % 16] + values[i];
  float eight[8];
  for (int i = 0; i < 8; ++i) eight[i] = lane[i] + lane[i + 8];
  float four[4];
  for (int i = 0; i < 4; ++i) four[i] = eight[i] + eight[i + 4];
  const float two[2] = {four[0] + four[2], four[1] + four[3]};
  return two[0] + two[1];
}

inline Row literal_attention(const Row& q, const std::vector<Row>& keys, float sink, float scale, DType compute) {
  const FlushSubnormals flush;
  Row acc(q.size(), 0.0f);
  if (keys.empty()) return acc;
  float m = -1e30f;
  float den = 0;
  for (size_t first = 0; first < keys.size(); first += 64) {
    const size_t count = std::min<size_t>(64, keys.size() - first);
    std::vector<float> s(count);
    float next = m;
    for (size_t n = 0; n < count; ++n) {
      s[n] = contract_dot(q, keys[first + n]) * scale;
      if (s[n] > next) next = s[n];
    }
    const float a = ops::exp_f32(m - next);
    std::vector<float> p(64, 0.0f);
    for (size_t n = 0; n < count; ++n) p[n] = ops::exp_f32(s[n] - next);
    den = den * a + literal_lane_sum(p);
    m = next;
    for (size_t d = 0; d < q.size(); ++d) {
      acc[d] = acc[d] * a;
      for (size_t group = 0; group < count; group += 32) {
        float e = 0;
        float o = 0;
        for (size_t n = group; n < group + 32; n += 2) {
          e = std::fma(round_to(compute, p[n]), n < count ? keys[first + n][d] : 0.0f, e);
          o = std::fma(round_to(compute, p[n + 1]), n + 1 < count ? keys[first + n + 1][d] : 0.0f, o);
        }
        acc[d] = acc[d] + (e + o);
      }
    }
  }
  den = den + ops::exp_f32(sink - m);
  for (float& value : acc) value = round_to(compute, value / den);
  return acc;
}

struct DenseAttention {
  std::vector<double> value;
  std::vector<double> bound;
};

// Errors, u = 2^-24: a score is off by delta <= (20 + dim/32) u sum|q k| scale (16 steps of fma, two adds, one add per
// block, one product). A weight exp(s - m) is then off by 2 delta + 4 u relative (s and m each by delta, exp by 2 ulp),
// a rescaling by as much per block; P is rounded to BF16, 2^-8 relative, in the numerator alone. Sums of n terms add (n
// + 8) u. The output is rounded once.
inline DenseAttention dense_attention(const Row& q, const std::vector<Row>& keys, float sink, float scale,
                                      DType compute) {
  const double u = 0x1p-24;
  const size_t dim = q.size();
  DenseAttention result{std::vector<double>(dim, 0.0), std::vector<double>(dim, 0.0)};
  if (keys.empty()) return result;
  std::vector<double> score;
  double delta = 0;
  for (const Row& key : keys) {
    double dot = 0;
    double magnitude = 0;
    for (size_t d = 0; d < dim; ++d) {
      dot += double{q[d]} * key[d];
      magnitude += std::fabs(double{q[d]} * key[d]);
    }
    score.push_back(dot * scale);
    delta = std::max(delta, (20 + static_cast<double>(dim) / 32) * u * magnitude * scale);
  }
  const double max = *std::max_element(score.begin(), score.end());
  double den = std::exp(sink - max);
  for (const double s : score) den += std::exp(s - max);
  const double blocks = 1 + static_cast<double>(keys.size()) / 64;
  const double half_step = compute == DType::kBF16 ? 0x1p-8 : u;
  const double relative =
      half_step + (blocks + 1) * 2 * (2 * delta + 4 * u) + (static_cast<double>(keys.size()) + 8) * u;
  for (size_t d = 0; d < dim; ++d) {
    double magnitude = 0;
    for (size_t n = 0; n < keys.size(); ++n) {
      const double weight = std::exp(score[n] - max) / den;
      result.value[d] += weight * keys[n][d];
      magnitude += std::fabs(weight * keys[n][d]);
    }
    result.bound[d] = relative * magnitude + half_step * std::fabs(result.value[d]) + 1e-30;
  }
  return result;
}

}  // namespace ps::ops::test
