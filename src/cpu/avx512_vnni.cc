// AVX-512 with VNNI and VBMI: few rows of x times FP4 weights with a look-up of 64 codes at once and byte products that
// add up by themselves. Everything else runs on the AVX-512 kernels.
#include <immintrin.h>

#include "cpu/avx512_kernels.h"

namespace ps::cpu {
namespace {

#include "cpu/avx512_vectors-inl.h"
#include "cpu/prefetch-inl.h"

// Of a byte the lowest six bits count, so the table is there four times.
inline IntVec shifted_values(IntVec codes) {
  const __m128i values = _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
  return _mm512_permutexvar_epi8(codes, _mm512_broadcast_i32x4(values));
}
inline IntVec low_codes(IntVec bytes) { return shifted_values(bytes); }
inline IntVec high_codes(IntVec bytes) { return shifted_values(_mm512_srli_epi16(bytes, 4)); }
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
