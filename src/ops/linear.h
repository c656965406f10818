// Linear ops: y = x * W^T in the canonical order (reductions.md), whatever the weight format, backend or number of
// rows.
//
// Canonical dot product over K, in F32, K padded with zeros to a multiple of 32:
//   acc = 0; for each 32 consecutive k, ascending:  e = o = 0;
//     for p in 0..15:  e = fma(a[2p], b[2p], e);  o = fma(a[2p+1], b[2p+1], o)
//     acc = acc + (e + o)
// Operands are first decoded: activations to float, weights to code * scale, which is exact in BF16. Subnormal operands
// and results count as zero. A row's result depends on that row of x and on W only.
#pragma once

#include "base/status.h"
#include "ops/exec.h"
#include "ops/views.h"

namespace ps::ops {

// y[t, n] = dot(x[t], W[n]); model.md 2.2. kinds L8, L4, LB (y in the compute dtype) and LF (y F32).
struct LinearArgs {
  ConstActivations x;  // [T, K]; on the MXFP8 grid exactly when w is quantized (check() refuses otherwise)
  Weight w;            // [N, K]
  Activations y;       // [T, N], does not overlap x
};
[[nodiscard]] Status check(const LinearArgs& args);

// Block-diagonal: group g of x's columns times rows [g*N, (g+1)*N) of W; model.md 2.2 wo_a. The input is never
// quantized, whatever the weight's format.
struct GroupedLinearArgs {
  ConstActivations x;  // [T, groups * K], grid kNone
  Weight w;            // [groups * N, K]
  Activations y;       // [T, groups * N], does not overlap x
  int32_t groups = 1;
};
[[nodiscard]] Status check(const GroupedLinearArgs& args);

// y = x rounded to the MXFP8 grid, group by group of 32 columns (Q8 of model.md 2.1): the input of a quantized weight,
// and the stored form of window rows. Pass the result on with grid = kMxfp8.
struct QuantizeMxfp8Args {
  ConstActivations x;  // [T, K]
  Activations y;       // [T, K]; may be x itself
};
[[nodiscard]] Status check(const QuantizeMxfp8Args& args);

namespace ref {
void linear(const LinearArgs& args, Exec& exec);
void grouped_linear(const GroupedLinearArgs& args, Exec& exec);
void quantize_mxfp8(const QuantizeMxfp8Args& args, Exec& exec);
}  // namespace ref

}  // namespace ps::ops
