// Multi-stream residual (mHC): coefficients, collapse before a sub-layer, expansion after it. model.md 0, 2.9.
// Everything is F32 but the stored streams. C = 4 streams; h is [T, C * D], stream-major inside a row.
#pragma once

#include "base/status.h"
#include "ops/exec.h"
#include "ops/views.h"

namespace ps::ops {

inline constexpr int32_t kStreams = 4;
inline constexpr int32_t kMixes = kStreams * (2 + kStreams);  // 4 pre, 4 post, 16 combine

// The 24 mixes z = (fn . v) * rho of each row, v the row of h, rho = 1 / sqrt(mean(v^2) + norm_eps) (lane-16 order),
// then
//   pre  = sigmoid(z[0..3] * scale[0] + base) + eps        post = 2 * sigmoid(z[4..7] * scale[1] + base)
//   combine[i][j] (i old stream, j new): softmax over j of z * scale[2] + base, + eps; columns divided by (sum + eps);
//   then
//   iterations - 1 times rows, then columns. Sums of four run ascending from the first.
struct HcMixArgs {
  ConstActivations h;  // [T, 4 * D]
  Weight fn;           // [24, 4 * D], kF32
  Vector base;         // [24]
  Vector scale;        // [3]
  float norm_eps = 0;
  float eps = 0;
  int32_t iterations = 20;
  float* pre = nullptr;      // [T, 4]
  float* post = nullptr;     // [T, 4]
  float* combine = nullptr;  // [T, 4, 4]
};
[[nodiscard]] Status check(const HcMixArgs& args);

// x = sum over c of pre[c] * h[c]: the product of stream 0, then fma for streams 1..3.
struct HcCollapseArgs {
  ConstActivations h;             // [T, 4 * D]
  const float* pre = nullptr;     // [T, 4]
  const int32_t* rows = nullptr;  // [R] rows of h and pre to take; nullptr: all T rows
  Activations x;                  // [R or T, D]
};
[[nodiscard]] Status check(const HcCollapseArgs& args);

// h'[j] = post[j] * y, then fma(combine[i][j], h[i]) for i = 0..3, stored over h.
struct HcExpandArgs {
  ConstActivations y;              // [T, D]
  const float* post = nullptr;     // [T, 4]
  const float* combine = nullptr;  // [T, 4, 4]
  Activations h;                   // [T, 4 * D], in place
};
[[nodiscard]] Status check(const HcExpandArgs& args);

namespace ref {
void hc_mix(const HcMixArgs& args, Exec& exec);
void hc_collapse(const HcCollapseArgs& args, Exec& exec);
void hc_expand(const HcExpandArgs& args, Exec& exec);
}  // namespace ref

}  // namespace ps::ops
