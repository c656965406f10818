// The scalar building blocks whose exact results are part of every op contract: the canonical dot product, lane-16
// sums, and the project's own exp_f32. SIMD code must give the same bits. For baseline code only: files with wider ISA
// flags keep their own copies.
// REQUIRES: runs under FlushSubnormals (inside ThreadPool::parallel_for).
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace ps::ops {

inline constexpr int64_t kDotBlock = 32;
inline constexpr int64_t kLanes = 16;

// Adds one 32-block of products to a canonical accumulator.
inline float add_dot_block(float accumulator, const float* a, const float* b) noexcept {
  float even = 0.0f;
  float odd = 0.0f;
  for (int64_t p = 0; p < kDotBlock; p += 2) {
    even = std::fma(a[p], b[p], even);
    odd = std::fma(a[p + 1], b[p + 1], odd);
  }
  return accumulator + (even + odd);
}

// Canonical dot product (reductions.md). A tail shorter than 32 counts as padded with zeros.
inline float canonical_dot(const float* a, const float* b, int64_t size) noexcept {
  float accumulator = 0.0f;
  int64_t at = 0;
  for (; at + kDotBlock <= size; at += kDotBlock) accumulator = add_dot_block(accumulator, a + at, b + at);
  if (at < size) {
    std::array<float, kDotBlock> left{};
    std::array<float, kDotBlock> right{};
    std::copy(a + at, a + size, left.begin());
    std::copy(b + at, b + size, right.begin());
    accumulator = add_dot_block(accumulator, left.data(), right.data());
  }
  return accumulator;
}

// Folds 16 lanes: l with l+8, then l+4, l+2, l+1.
inline float fold_lanes(const std::array<float, kLanes>& lanes) noexcept {
  std::array<float, kLanes> sum = lanes;
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t lane = 0; lane < width; ++lane) {
      sum[static_cast<size_t>(lane)] += sum[static_cast<size_t>(lane + width)];
    }
  }
  return sum[0];
}

// Sum of a[i] * b[i] in lane-16 order: lane i mod 16 runs an fma chain, ascending.
inline float lane_dot(const float* a, const float* b, int64_t size) noexcept {
  std::array<float, kLanes> lanes{};
  for (int64_t i = 0; i < size; ++i) {
    float& lane = lanes[static_cast<size_t>(i % kLanes)];
    lane = std::fma(a[i], b[i], lane);
  }
  return fold_lanes(lanes);
}

// Sum of a[i] in lane-16 order: lane i mod 16 adds ascending.
inline float lane_sum(const float* a, int64_t size) noexcept {
  std::array<float, kLanes> lanes{};
  for (int64_t i = 0; i < size; ++i) lanes[static_cast<size_t>(i % kLanes)] += a[i];
  return fold_lanes(lanes);
}

// 1 / sqrt(mean square + eps), each step rounded to F32.
inline float inverse_rms(const float* x, int64_t size, float eps) noexcept {
  return 1.0f / std::sqrt(lane_dot(x, x, size) / static_cast<float>(size) + eps);
}

// 2^exponent for exponent in [-126, 127].
inline float power_of_two(int32_t exponent) noexcept {
  return std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23);
}

// e^x, about 1 ulp: below -87.33654 it is 0, above 88.72283 infinity, NaN stays NaN. A fixed fma polynomial, so that
// every ISA gives the same bits.
inline float exp_f32(float x) noexcept {
  if (x < -87.33654f) return 0.0f;
  if (x > 88.72283f) return std::numeric_limits<float>::infinity();
  if (x != x) return x;
  const float n = std::nearbyint(x * 1.44269504f);
  float r = std::fma(n, -0.693359375f, x);
  r = std::fma(n, 2.12194440e-4f, r);
  float p = 1.9875691500e-4f;
  p = std::fma(p, r, 1.3981999507e-3f);
  p = std::fma(p, r, 8.3334519073e-3f);
  p = std::fma(p, r, 4.1665795894e-2f);
  p = std::fma(p, r, 1.6666665459e-1f);
  p = std::fma(p, r, 5.0000001201e-1f);
  const float y = std::fma(p, r * r, r) + 1.0f;
  const int32_t exponent = static_cast<int32_t>(n);
  const int32_t half = exponent >> 1;
  return y * power_of_two(half) * power_of_two(exponent - half);
}

inline float sigmoid(float x) noexcept { return 1.0f / (1.0f + exp_f32(-x)); }
inline float silu(float x) noexcept { return x * sigmoid(x); }

}  // namespace ps::ops
