// AVX2 with FMA and F16C (x86-64-v3): 16 rows of W in two vectors, three rows of x at a time.
#include <immintrin.h>

#include "cpu/decode_tables.h"
#include "cpu/kernels.h"

namespace ps::cpu {
namespace {

using Vec = __m256;
using IntVec = __m256i;
using Mask = __m256;
constexpr int kLanes = 8;
constexpr int kTileTokens = 3;

inline Vec zero() { return _mm256_setzero_ps(); }
inline Vec load(const float* from) { return _mm256_load_ps(from); }
inline Vec load_any(const float* from) { return _mm256_loadu_ps(from); }
inline void store(float* to, Vec v) { _mm256_store_ps(to, v); }
inline void store_any(float* to, Vec v) { _mm256_storeu_ps(to, v); }
inline Vec broadcast(float value) { return _mm256_set1_ps(value); }
inline Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
inline Vec add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
inline Vec subtract(Vec a, Vec b) { return _mm256_sub_ps(a, b); }
inline Vec mul(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
inline Vec div(Vec a, Vec b) { return _mm256_div_ps(a, b); }
inline Vec square_root(Vec a) { return _mm256_sqrt_ps(a); }
inline Vec minimum(Vec a, Vec b) { return _mm256_min_ps(a, b); }
inline Vec maximum(Vec a, Vec b) { return _mm256_max_ps(a, b); }
inline Vec round_nearest(Vec a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline IntVec as_int(Vec a) { return _mm256_castps_si256(a); }
inline Vec as_float(IntVec a) { return _mm256_castsi256_ps(a); }
inline IntVec broadcast_int(int32_t value) { return _mm256_set1_epi32(value); }
inline IntVec and_int(IntVec a, IntVec b) { return _mm256_and_si256(a, b); }
inline IntVec add_int(IntVec a, IntVec b) { return _mm256_add_epi32(a, b); }
inline IntVec subtract_int(IntVec a, IntVec b) { return _mm256_sub_epi32(a, b); }
inline IntVec max_int(IntVec a, IntVec b) { return _mm256_max_epu32(a, b); }
inline uint32_t reduce_max(IntVec a) {
  __m128i m = _mm_max_epu32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4E));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xB1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(m));
}
inline float reduce_maximum(Vec a) {  // of no NaN
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_max_ss(m, _mm_shuffle_ps(m, m, 1)));
}
inline float first_lane(Vec a) { return _mm256_cvtss_f32(a); }
inline Vec even_lanes(Vec a) { return _mm256_moveldup_ps(a); }
inline Vec odd_lanes(Vec a) { return _mm256_movehdup_ps(a); }
inline Vec lane_numbers() { return _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7); }
// fold_lanes of 16 lanes.
inline float fold_lanes(const Vec (&lanes)[2]) {
  const __m256 eight = _mm256_add_ps(lanes[0], lanes[1]);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
template <int kBits>
inline IntVec shift_left(IntVec a) {
  return _mm256_slli_epi32(a, kBits);
}
template <int kBits>
inline IntVec shift_right(IntVec a) {
  return _mm256_srli_epi32(a, kBits);
}
template <int kBits>
inline IntVec shift_right_signed(IntVec a) {
  return _mm256_srai_epi32(a, kBits);
}
inline IntVec to_int(Vec a) { return _mm256_cvtps_epi32(a); }
inline Vec absolute(Vec a) { return as_float(and_int(as_int(a), broadcast_int(0x7FFFFFFF))); }
inline Vec negate(Vec a) { return as_float(_mm256_xor_si256(as_int(a), broadcast_int(INT32_MIN))); }
inline Vec copy_sign(Vec magnitude, Vec sign) {
  return as_float(_mm256_or_si256(as_int(magnitude), and_int(as_int(sign), broadcast_int(INT32_MIN))));
}
inline Vec power_of_two(IntVec exponent) {
  return as_float(_mm256_slli_epi32(add_int(exponent, broadcast_int(127)), 23));
}
inline Mask less(Vec a, Vec b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
inline Mask is_nan(Vec a) { return _mm256_cmp_ps(a, a, _CMP_UNORD_Q); }
inline Vec select(Mask where, Vec yes, Vec no) { return _mm256_blendv_ps(no, yes, where); }
// to_bf16, in the low half of each lane.
inline IntVec bf16_bits(Vec v) {
  const IntVec bits = as_int(v);
  const IntVec high = _mm256_srli_epi32(bits, 16);
  const IntVec carried = add_int(add_int(bits, broadcast_int(0x7FFF)), and_int(high, broadcast_int(1)));
  return as_int(select(is_nan(v), as_float(_mm256_or_si256(high, broadcast_int(0x40))),
                       as_float(_mm256_srli_epi32(carried, 16))));
}
inline void store_bf16(uint16_t* to, Vec v) {
  const IntVec words = bf16_bits(v);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                   _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}
inline Vec load_bf16(const uint16_t* from) {
  const __m128i words = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return as_float(_mm256_slli_epi32(_mm256_cvtepu16_epi32(words), 16));
}
// One block of x: `size` values, then zeros.
inline void copy_f32(const float* from, int64_t size, float* to) {
  if (size >= kBlock) {
    for (int i = 0; i < kBlock; i += kLanes) store(to + i, load_any(from + i));
    return;
  }
  for (int i = 0; i < kBlock; ++i) to[i] = i < size ? from[i] : 0.0f;
}
inline void widen_bf16(const uint16_t* from, int64_t size, float* to) {
  if (size >= kBlock) {
    for (int i = 0; i < kBlock; i += kLanes) store(to + i, load_bf16(from + i));
    return;
  }
  alignas(32) uint16_t words[kBlock] = {};
  for (int64_t i = 0; i < size; ++i) words[i] = from[i];
  for (int i = 0; i < kBlock; i += kLanes) store(to + i, load_bf16(words + i));
}

// The float 2^exponent for a biased exponent in [1, 254].
inline Vec biased_power(uint32_t biased) { return as_float(broadcast_int(static_cast<int32_t>(biased << 23))); }

// One row's block as floats. Scales for which the factor is no normal float, and NaN codes, take the table.
inline void fp8_row(const std::byte* codes, uint8_t scale, float* out) {
  const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes));
  const __m256i is_nan_code =
      _mm256_cmpeq_epi8(_mm256_or_si256(bytes, _mm256_set1_epi8(INT8_MIN)), _mm256_set1_epi8(-1));
  if (scale > 246 || _mm256_testz_si256(is_nan_code, is_nan_code) == 0) {
    const uint16_t* table = decode_tables().fp8[scale];
    for (int i = 0; i < kBlock; ++i) {
      const auto code = static_cast<uint32_t>(codes[i]);
      const uint32_t bits = (code & 0x80u) << 24 | static_cast<uint32_t>(table[code & 0x7Fu]) << 16;
      __builtin_memcpy(out + i, &bits, 4);
    }
    return;
  }
  // As binary16 with the same fields a code is its value times 2^-8, subnormals included.
  const Vec factor = biased_power(uint32_t{scale} + 8);
  for (int half = 0; half < 2; ++half) {
    const __m128i part = half == 0 ? _mm256_castsi256_si128(bytes) : _mm256_extracti128_si256(bytes, 1);
    const __m256i words = _mm256_and_si256(_mm256_slli_epi16(_mm256_cvtepi8_epi16(part), 7),
                                           _mm256_set1_epi16(static_cast<int16_t>(0xBFFF)));
    store(out + 16 * half, mul(_mm256_cvtph_ps(_mm256_castsi256_si128(words)), factor));
    store(out + 16 * half + 8, mul(_mm256_cvtph_ps(_mm256_extracti128_si256(words, 1)), factor));
  }
}
inline void fp4_row(const std::byte* codes, uint8_t scale, float* out) {
  if (scale < 2 || scale > 253) {
    const uint16_t* table = decode_tables().fp4[scale];
    for (int i = 0; i < kBlock; ++i) {
      const auto pair = static_cast<uint32_t>(codes[i / 2]);
      const uint32_t bits = static_cast<uint32_t>(table[i % 2 == 0 ? pair & 15u : pair >> 4]) << 16;
      __builtin_memcpy(out + i, &bits, 4);
    }
    return;
  }
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
  const __m128i doubled = _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
  const __m128i mask = _mm_set1_epi8(15);
  const __m128i low = _mm_shuffle_epi8(doubled, _mm_and_si128(bytes, mask));
  const __m128i high = _mm_shuffle_epi8(doubled, _mm_and_si128(_mm_srli_epi16(bytes, 4), mask));
  const __m128i values[2] = {_mm_unpacklo_epi8(low, high), _mm_unpackhi_epi8(low, high)};
  const Vec factor = biased_power(uint32_t{scale} - 1);
  for (int half = 0; half < 2; ++half) {
    store(out + 16 * half, mul(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(values[half])), factor));
    store(out + 16 * half + 8, mul(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(values[half], 8))), factor));
  }
}

// out[j][0..8) = in[0..8)[j], rows of `in` kBlock apart, rows of `out` kPanel apart.
inline void transpose(const float* in, float* out) {
  Vec a[8];
  Vec b[8];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const Vec first = load(in + (2 * i) * kBlock);
    const Vec second = load(in + (2 * i + 1) * kBlock);
    a[2 * i] = _mm256_unpacklo_ps(first, second);
    a[2 * i + 1] = _mm256_unpackhi_ps(first, second);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    b[4 * i] = _mm256_shuffle_ps(a[4 * i], a[4 * i + 2], 0x44);
    b[4 * i + 1] = _mm256_shuffle_ps(a[4 * i], a[4 * i + 2], 0xEE);
    b[4 * i + 2] = _mm256_shuffle_ps(a[4 * i + 1], a[4 * i + 3], 0x44);
    b[4 * i + 3] = _mm256_shuffle_ps(a[4 * i + 1], a[4 * i + 3], 0xEE);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    store(out + i * kPanel, _mm256_permute2f128_ps(b[i], b[4 + i], 0x20));
    store(out + (4 + i) * kPanel, _mm256_permute2f128_ps(b[i], b[4 + i], 0x31));
  }
}

inline void decode_row(const ops::Weight& w, int64_t row, int64_t block, float* out) {
  const int64_t k = block * kBlock;
  const int64_t blocks = w.columns / kBlock;
  const int64_t left = w.columns - k;
  switch (w.format) {
    case ops::WeightFormat::kF32:
      copy_f32(reinterpret_cast<const float*>(w.data) + row * w.columns + k, left, out);
      return;
    case ops::WeightFormat::kBF16:
      widen_bf16(reinterpret_cast<const uint16_t*>(w.data) + row * w.columns + k, left, out);
      return;
    case ops::WeightFormat::kFp8Block32:
      fp8_row(w.data + row * w.columns + k, w.scale[row / kBlock * blocks + block], out);
      return;
    case ops::WeightFormat::kFp4Block32:
      fp4_row(w.data + (row * w.columns + k) / 2, w.scale[row * blocks + block], out);
      return;
  }
}

inline void decode_block(const ops::Weight& w, int64_t first, int64_t block, float* out) {
  alignas(64) float rows[8 * kBlock];
  for (int group = 0; group < kPanel; group += 8) {
    for (int r = 0; r < 8; ++r) {
      if (first + group + r < w.rows) {
        decode_row(w, first + group + r, block, rows + r * kBlock);
      } else {
        for (int k = 0; k < kBlock; k += kLanes) store(rows + r * kBlock + k, zero());
      }
    }
    for (int k = 0; k < kBlock; k += 8) transpose(rows + k, out + k * kPanel + group);
  }
}

// 32 values of a compressed row: two groups of 16, each with its scale.
inline void compressed_block(const std::byte* codes, const std::byte* scales, float* out) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
  const DecodeTables& tables = decode_tables();
  alignas(16) uint8_t packed[16];
  _mm_store_si128(reinterpret_cast<__m128i*>(packed), bytes);
  for (int i = 0; i < kBlock; ++i) {
    const uint16_t* table = tables.compressed[static_cast<uint8_t>(scales[i / 16])];
    const uint32_t bits = static_cast<uint32_t>(table[i % 2 == 0 ? packed[i / 2] & 15u : packed[i / 2] >> 4]) << 16;
    __builtin_memcpy(out + i, &bits, 4);
  }
}

// Exact in BF16, so the upper halves are the values.
inline void narrow_row(const float* row, uint16_t* out) {
  for (int i = 0; i < kBlock; i += kLanes) store_bf16(out + i, load(row + i));
}
inline void decode_fp4_words(const std::byte* codes, uint8_t scale, uint16_t* out) {
  alignas(32) float row[kBlock];
  fp4_row(codes, scale, row);
  narrow_row(row, out);
}
inline void decode_fp8_words(const std::byte* low, const std::byte* high, uint8_t scale, uint16_t* out) {
  alignas(32) std::byte codes[kBlock];
  __builtin_memcpy(codes, low, 16);
  __builtin_memcpy(codes + 16, high, 16);
  alignas(32) float row[kBlock];
  fp8_row(codes, scale, row);
  narrow_row(row, out);
}

inline void decode_key(const Key& key, int64_t dim, float* out) {
  for (int64_t d = 0; d < dim; d += kBlock) {
    switch (key.format) {
      case KeyFormat::kF32: copy_f32(reinterpret_cast<const float*>(key.row) + d, kBlock, out + d); break;
      case KeyFormat::kBF16: widen_bf16(reinterpret_cast<const uint16_t*>(key.row) + d, kBlock, out + d); break;
      case KeyFormat::kMxfp8: fp8_row(key.row + d, static_cast<uint8_t>(key.row[dim + d / kBlock]), out + d); break;
      case KeyFormat::kCompressed: compressed_block(key.row + d / 2, key.row + dim / 2 + d / 16, out + d); break;
    }
  }
}

inline void decode_words(const std::byte* codes, uint8_t scale, float* out) { fp8_row(codes, scale, out); }

#include "cpu/vector_functions-inl.h"
#include "cpu/vector_kernels-inl.h"
#include "cpu/vector_attention-inl.h"
#include "cpu/vector_rows-inl.h"

}  // namespace

const Kernels& avx2_kernels() {
  static constexpr Kernels kKernels = kVectorKernels;
  return kKernels;
}

}  // namespace ps::cpu
