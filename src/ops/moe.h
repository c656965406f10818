// Router and experts. model.md 2.8.
#pragma once

#include "base/status.h"
#include "ops/exec.h"
#include "ops/views.h"

namespace ps::ops {

// s_e = sqrt(softplus(z_e)); softplus(z) = z above 20, else F32(log1p(F64(exp(z)))). Picks the top_k of s_e + bias_e
// (bias_image for image rows), the lower id on ties, NaN as -inf; the bias only selects. Weights:
// (s_e / (sum of picked s + 1e-20)) * scaling, the sum in ascending id.
struct RouterArgs {
  ConstActivations logits;            // [T, E] F32
  Vector bias;                        // [E]
  Vector bias_image;                  // [E]; data nullptr when no row is an image row
  const uint8_t* is_image = nullptr;  // [T] or nullptr
  int32_t top_k = 0;
  float scaling = 1;
  int32_t* ids = nullptr;    // [T, top_k], ascending
  float* weights = nullptr;  // [T, top_k], in the order of ids
};
[[nodiscard]] Status check(const RouterArgs& args);

// SwiGLU expert: W1 (gate), W3 (up) [I, D], W2 (down) [D, I].
struct Expert {
  Weight w1;
  Weight w3;
  Weight w2;
};

// For each routed expert e of a row with weight g, and for the shared expert with g = 1:
//   a = min(rd(W1 x), limit), u = clamp(rd(W3 x), -limit, limit), t = rd(g * (silu(a) * u)), y_e = rd(W2 t)
// where rd() rounds to the compute dtype, and t goes through Q8 if W2 is quantized. y = sum of y_e in ascending id from
// 0, plus the shared expert last; one rounding at the store.
struct MoeArgs {
  ConstActivations x;               // [T, D]; on the MXFP8 grid exactly when the experts' w1 and w3 are quantized
  ConstActivations x_shared;        // [T, D]; the same for the shared expert's format (both may be one buffer)
  const Expert* experts = nullptr;  // [E]
  int32_t expert_count = 0;
  Expert shared;
  const int32_t* ids = nullptr;    // [T, top_k], ascending in a row
  const float* weights = nullptr;  // [T, top_k]
  int32_t top_k = 0;
  float limit = 0;
  Activations y;  // [T, D], does not overlap x or x_shared
};
[[nodiscard]] Status check(const MoeArgs& args);

namespace ref {
void router(const RouterArgs& args, Exec& exec);
void moe(const MoeArgs& args, Exec& exec);
}  // namespace ref

}  // namespace ps::ops
