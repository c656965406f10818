// AVX-512 (F, BW, DQ, VL): 32 rows of W in two vectors, six rows of x at a time.
#include <immintrin.h>

#include "cpu/avx512_kernels.h"
#include "cpu/decode_tables.h"
#include "cpu/kernels.h"

namespace ps::cpu {
namespace {

#include "cpu/avx512_vectors-inl.h"
#include "cpu/avx512_words-inl.h"
#include "cpu/prefetch-inl.h"

// 16 rows of 32 words: out[k][row] as floats.
inline void spread_words(__m512i (&rows)[16], float* out) {
  transpose(rows);
  const __m512i high = _mm512_set1_epi32(static_cast<int32_t>(0xFFFF0000u));
#pragma GCC unroll 16
  for (int p = 0; p < 16; ++p) {
    store(out + (2 * p) * kPanel, as_float(_mm512_slli_epi32(rows[p], 16)));
    store(out + (2 * p + 1) * kPanel, as_float(_mm512_and_si512(rows[p], high)));
  }
}

// Rows [first, first + count) of block `block`, count <= 16; rows past count become zero.
inline void decode_half(const ops::Weight& w, int64_t first, int64_t count, int64_t block, float* out) {
  __m512i rows[16];
  const int64_t k = block * kBlock;
  const int64_t left = w.columns - k;
  const uint32_t mask = left >= kBlock ? ~0u : (1u << left) - 1u;
  const int64_t blocks = w.columns / kBlock;
  switch (w.format) {
    case ops::WeightFormat::kF32:
      for (int half = 0; half < 2; ++half) {
#pragma GCC unroll 16
        for (int r = 0; r < 16; ++r) {
          const std::byte* at = w.data + ((first + r) * w.columns + k + 16 * half) * 4;
          rows[r] = _mm512_maskz_loadu_epi32(r < count ? static_cast<Mask>(mask >> (16 * half)) : Mask{0}, at);
        }
        transpose(rows);
#pragma GCC unroll 16
        for (int j = 0; j < 16; ++j) store(out + (16 * half + j) * kPanel, as_float(rows[j]));
      }
      return;
    case ops::WeightFormat::kBF16:
#pragma GCC unroll 16
      for (int r = 0; r < 16; ++r) {
        const std::byte* at = w.data + ((first + r) * w.columns + k) * 2;
        rows[r] = _mm512_maskz_loadu_epi16(r < count ? mask : 0u, at);
        prefetch(at + kPrefetchRows * w.columns * 2);
      }
      break;
    case ops::WeightFormat::kFp8Block32: {
      const uint16_t* codes = decode_tables().fp8[w.scale[first / kBlock * blocks + block]];
      const __m512i table[4] = {_mm512_load_si512(codes), _mm512_load_si512(codes + 32), _mm512_load_si512(codes + 64),
                                _mm512_load_si512(codes + 96)};
#pragma GCC unroll 16
      for (int r = 0; r < 16; ++r) {
        const std::byte* at = w.data + (first + r) * w.columns + k;
        rows[r] = fp8_words(at, table);
        prefetch(at + kPrefetchRows * w.columns);
      }
      break;
    }
    case ops::WeightFormat::kFp4Block32: {
      const DecodeTables& tables = decode_tables();
#pragma GCC unroll 16
      for (int r = 0; r < 16; ++r) {
        const int64_t row = first + r;
        const std::byte* at = w.data + (row * w.columns + k) / 2;
        rows[r] = r < count ? fp4_words(at, tables.fp4[w.scale[row * blocks + block]]) : _mm512_setzero_si512();
        prefetch(at + kPrefetchRows * w.columns / 2);
      }
      break;
    }
  }
  spread_words(rows, out);
}

inline void decode_block(const ops::Weight& w, int64_t first, int64_t block, float* out) {
  const int64_t left = w.rows - first;
  decode_half(w, first, left < 16 ? left : 16, block, out);
  if (left > 16) {
    decode_half(w, first + 16, left < 32 ? left - 16 : 16, block, out + 16);
    return;
  }
  for (int k = 0; k < kBlock; ++k) store(out + k * kPanel + 16, zero());
}

inline void widen_words(__m512i words, float* out) {
  const __m512i low = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(words));
  const __m512i high = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(words, 1));
  store(out, as_float(_mm512_slli_epi32(low, 16)));
  store(out + 16, as_float(_mm512_slli_epi32(high, 16)));
}

inline void decode_fp4_words(const std::byte* codes, uint8_t scale, uint16_t* out) {
  _mm512_storeu_si512(out, fp4_words(codes, decode_tables().fp4[scale]));
}
inline void decode_fp8_words(const std::byte* low, const std::byte* high, uint8_t scale, uint16_t* out) {
  alignas(32) std::byte codes[kBlock];
  __builtin_memcpy(codes, low, 16);
  __builtin_memcpy(codes + 16, high, 16);
  const uint16_t* words = decode_tables().fp8[scale];
  const __m512i table[4] = {_mm512_load_si512(words), _mm512_load_si512(words + 32), _mm512_load_si512(words + 64),
                            _mm512_load_si512(words + 96)};
  _mm512_storeu_si512(out, fp8_words(codes, table));
}

inline void decode_key(const Key& key, int64_t dim, float* out) {
  if (key.format == KeyFormat::kF32) {
    for (int64_t d = 0; d < dim; d += kBlock) copy_f32(reinterpret_cast<const float*>(key.row) + d, kBlock, out + d);
    return;
  }
  const DecodeTables& tables = decode_tables();
  for (int64_t d = 0; d < dim; d += kBlock) {
    widen_words(key_words(key, dim, d, tables), out + d);
  }
}

inline void decode_words(const std::byte* codes, uint8_t scale, float* out) {
  const uint16_t* words = decode_tables().fp8[scale];
  const __m512i table[4] = {_mm512_load_si512(words), _mm512_load_si512(words + 32), _mm512_load_si512(words + 64),
                            _mm512_load_si512(words + 96)};
  widen_words(fp8_words(codes, table), out);
}

#include "cpu/vector_functions-inl.h"
#include "cpu/vector_kernels-inl.h"
#include "cpu/vector_attention-inl.h"
#include "cpu/vector_rows-inl.h"

inline IntVec look_up(IntVec table, IntVec bytes) {
  return _mm512_shuffle_epi8(table, _mm512_and_si512(bytes, _mm512_set1_epi8(0x0F)));
}
inline IntVec add_products(IntVec sums, IntVec a, IntVec b) {
  return add_int(sums, _mm512_madd_epi16(_mm512_maddubs_epi16(a, b), _mm512_set1_epi16(1)));
}

#include "cpu/panel_rows-inl.h"
#include "cpu/avx512_integer-inl.h"

}  // namespace

void add_block(const ops::Weight& w, int64_t first, int64_t block, const float* x, int64_t count, float* tile) {
  alignas(64) float values[kBlock * kPanel];
  decode_block(w, first, block, values);
  multiply_block(values, x, count, tile);
}

const Kernels& avx512_kernels() {
  static constexpr Kernels kKernels = [] {
    Kernels kernels = kVectorKernels;
    kernels.integer = kIntegerMultiplier;
    kernels.integer_rows = kMostIntegerRows;
    return kernels;
  }();
  return kKernels;
}

}  // namespace ps::cpu
