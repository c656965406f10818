// What the AVX-512 files give each other: few rows of x times FP4 weights, over integers, and what that falls back on.
#pragma once

#include "cpu/kernels.h"

namespace ps::cpu {

// avx512_kernels() with `integer` on VNNI and VBMI. REQUIRES: the machine has them.
[[nodiscard]] const Kernels& avx512_vnni_kernels();

// The general way: block `block` of K of panel `first` times x [count][kBlock], added to tile [count][kPanel].
void add_block(const ops::Weight& w, int64_t first, int64_t block, const float* x, int64_t count, float* tile);

}  // namespace ps::cpu
