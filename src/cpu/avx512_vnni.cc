// AVX-512 with VNNI and VBMI: few rows of x times FP4 weights with a look-up of 64 codes at once and byte products that
// add up by themselves. Everything else runs on the AVX-512 kernels.
#include <immintrin.h>

#include "cpu/avx512_kernels.h"

namespace ps::cpu {
namespace {

#include "cpu/avx512_vectors-inl.h"
#include "cpu/prefetch-inl.h"
#include "cpu/panel_rows-inl.h"

// The lowest six bits of a byte count, and the table repeats.
inline IntVec look_up(IntVec table, IntVec bytes) { return _mm512_permutexvar_epi8(bytes, table); }
inline IntVec add_products(IntVec sums, IntVec a, IntVec b) { return _mm512_dpbusd_epi32(sums, a, b); }

#include "cpu/avx512_integer-inl.h"

}  // namespace

const Kernels& avx512_vnni_kernels() {
  static const Kernels kKernels = [] {
    Kernels kernels = avx512_kernels();
    kernels.integer = kIntegerMultiplier;
    return kernels;
  }();
  return kKernels;
}

}  // namespace ps::cpu
