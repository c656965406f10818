// Engram: gather of hashed table rows and their gated addition to the residual streams. model.md 2.10, 3.3.
#pragma once

#include "base/status.h"
#include "ops/exec.h"
#include "ops/views.h"

namespace ps::ops {

// A host table of [rows, dim], E4M3 with one E8M0 scale per 32 of dim, or unquantized. Read where it lies in the mapped
// file.
struct EngramTable {
  DType dtype = DType::kF8E4M3;  // kF8E4M3, kBF16 or kF32
  int64_t rows = 0;
  int32_t dim = 0;
  const std::byte* data = nullptr;
  const uint8_t* scale = nullptr;  // [rows, dim / 32]; nullptr unless kF8E4M3
};

// e[t] = the `columns` rows of row_ids[t], dequantized and concatenated.
struct EngramGatherArgs {
  EngramTable table;
  const int64_t* row_ids = nullptr;  // [T, columns], each in [0, table.rows)
  int32_t columns = 0;
  Activations e;  // [T, columns * dim]
};
[[nodiscard]] Status check(const EngramGatherArgs& args);

// For each stream c, key_c = u[c * D ..], val = u[4 * D ..], sums in lane-16 order:
//   rho = r(h_c) * r(key_c), r(x) = 1 / sqrt(mean(x^2) + eps)
//   dot = (sum of (h_c * (q_c * k_c)) * key_c) * rho * F32(D^-0.5): qk = q * k and t = h * qk rounded to F32, then
//   fma(t, key, lane)
//   gamma = sigmoid(copysign(sqrt(max(|dot|, 1e-6)), dot));  h_c = fma(gamma, val, h_c), stored
// Rows with alive[t] == 0 (image tokens) keep h unchanged.
struct EngramMixArgs {
  ConstActivations u;              // [T, 5 * D]
  Weight q_weight;                 // [4, D], kBF16 or kF32
  Weight k_weight;                 // [4, D]
  const uint8_t* alive = nullptr;  // [T] or nullptr: all alive
  float eps = 0;
  Activations h;  // [T, 4 * D], in place
};
[[nodiscard]] Status check(const EngramMixArgs& args);

namespace ref {
void engram_gather(const EngramGatherArgs& args, Exec& exec);
void engram_mix(const EngramMixArgs& args, Exec& exec);
}  // namespace ref

}  // namespace ps::ops
