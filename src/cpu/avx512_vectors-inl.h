// The AVX-512 vector type of vector_kernels-inl.h, and the transposition that both AVX-512 and AMX code need. Included
// inside the anonymous namespace of an instruction-set file.

using Vec = __m512;
using IntVec = __m512i;
using Mask = __mmask16;
constexpr int kLanes = 16;
constexpr int kTileTokens = 6;

inline Vec zero() { return _mm512_setzero_ps(); }
inline Vec load(const float* from) { return _mm512_load_ps(from); }
inline Vec load_any(const float* from) { return _mm512_loadu_ps(from); }
inline void store(float* to, Vec v) { _mm512_store_ps(to, v); }
inline void store_any(float* to, Vec v) { _mm512_storeu_ps(to, v); }
inline Vec broadcast(float value) { return _mm512_set1_ps(value); }
inline Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
inline Vec add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
inline Vec subtract(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
inline Vec mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
inline Vec div(Vec a, Vec b) { return _mm512_div_ps(a, b); }
inline Vec square_root(Vec a) { return _mm512_sqrt_ps(a); }
inline Vec minimum(Vec a, Vec b) { return _mm512_min_ps(a, b); }
inline Vec maximum(Vec a, Vec b) { return _mm512_max_ps(a, b); }
inline Vec round_nearest(Vec a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline IntVec as_int(Vec a) { return _mm512_castps_si512(a); }
inline Vec as_float(IntVec a) { return _mm512_castsi512_ps(a); }
inline IntVec broadcast_int(int32_t value) { return _mm512_set1_epi32(value); }
inline IntVec and_int(IntVec a, IntVec b) { return _mm512_and_si512(a, b); }
inline IntVec add_int(IntVec a, IntVec b) { return _mm512_add_epi32(a, b); }
inline IntVec subtract_int(IntVec a, IntVec b) { return _mm512_sub_epi32(a, b); }
inline IntVec max_int(IntVec a, IntVec b) { return _mm512_max_epu32(a, b); }
inline uint32_t reduce_max(IntVec a) { return _mm512_reduce_max_epu32(a); }
inline float reduce_maximum(Vec a) { return _mm512_reduce_max_ps(a); }  // of no NaN
inline float first_lane(Vec a) { return _mm512_cvtss_f32(a); }
inline Vec even_lanes(Vec a) { return _mm512_moveldup_ps(a); }
inline Vec odd_lanes(Vec a) { return _mm512_movehdup_ps(a); }
inline Vec lane_numbers() { return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15); }
// fold_lanes of 16 lanes.
inline float fold_lanes(const Vec (&lanes)[1]) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(lanes[0]), _mm512_extractf32x8_ps(lanes[0], 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
template <int kBits>
inline IntVec shift_left(IntVec a) {
  return _mm512_slli_epi32(a, kBits);
}
template <int kBits>
inline IntVec shift_right(IntVec a) {
  return _mm512_srli_epi32(a, kBits);
}
template <int kBits>
inline IntVec shift_right_signed(IntVec a) {
  return _mm512_srai_epi32(a, kBits);
}
inline IntVec to_int(Vec a) { return _mm512_cvtps_epi32(a); }
inline Vec absolute(Vec a) { return as_float(and_int(as_int(a), broadcast_int(0x7FFFFFFF))); }
inline Vec negate(Vec a) { return as_float(_mm512_xor_si512(as_int(a), broadcast_int(INT32_MIN))); }
inline Vec copy_sign(Vec magnitude, Vec sign) {
  return as_float(_mm512_or_si512(as_int(magnitude), and_int(as_int(sign), broadcast_int(INT32_MIN))));
}
inline Vec power_of_two(IntVec exponent) {
  return as_float(_mm512_slli_epi32(add_int(exponent, broadcast_int(127)), 23));
}
inline Mask less(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
inline Mask is_nan(Vec a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }
inline Vec select(Mask where, Vec yes, Vec no) { return _mm512_mask_blend_ps(where, no, yes); }
// to_bf16, in the low half of each lane.
inline IntVec bf16_bits(Vec v) {
  const IntVec bits = as_int(v);
  const IntVec high = _mm512_srli_epi32(bits, 16);
  const IntVec carried = add_int(add_int(bits, broadcast_int(0x7FFF)), and_int(high, broadcast_int(1)));
  return _mm512_mask_blend_epi32(is_nan(v), _mm512_srli_epi32(carried, 16), _mm512_or_si512(high, broadcast_int(0x40)));
}
inline void store_bf16(uint16_t* to, Vec v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(bf16_bits(v)));
}
inline Vec load_bf16(const uint16_t* from) {
  const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return as_float(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16));
}
// One block of x: `size` values, then zeros.
inline void copy_f32(const float* from, int64_t size, float* to) {
  const uint32_t mask = size >= 32 ? ~0u : (1u << size) - 1u;
  store(to, _mm512_maskz_loadu_ps(static_cast<Mask>(mask), from));
  store(to + 16, _mm512_maskz_loadu_ps(static_cast<Mask>(mask >> 16), from + 16));
}
inline void widen_bf16(const uint16_t* from, int64_t size, float* to) {
  const uint32_t mask = size >= 32 ? ~0u : (1u << size) - 1u;
  const __m512i words = _mm512_maskz_loadu_epi16(mask, from);
  store(to, as_float(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(words)), 16)));
  store(to + 16, as_float(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(words, 1)), 16)));
}

// 16 vectors of 16 dwords: dword j of vector i and dword i of vector j change places.
inline void transpose(__m512i (&v)[16]) {
  __m512i a[16];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    a[2 * i] = _mm512_unpacklo_epi32(v[2 * i], v[2 * i + 1]);
    a[2 * i + 1] = _mm512_unpackhi_epi32(v[2 * i], v[2 * i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    v[4 * i] = _mm512_unpacklo_epi64(a[4 * i], a[4 * i + 2]);
    v[4 * i + 1] = _mm512_unpackhi_epi64(a[4 * i], a[4 * i + 2]);
    v[4 * i + 2] = _mm512_unpacklo_epi64(a[4 * i + 1], a[4 * i + 3]);
    v[4 * i + 3] = _mm512_unpackhi_epi64(a[4 * i + 1], a[4 * i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    a[i] = _mm512_shuffle_i32x4(v[i], v[4 + i], 0x88);
    a[4 + i] = _mm512_shuffle_i32x4(v[i], v[4 + i], 0xDD);
    a[8 + i] = _mm512_shuffle_i32x4(v[8 + i], v[12 + i], 0x88);
    a[12 + i] = _mm512_shuffle_i32x4(v[8 + i], v[12 + i], 0xDD);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm512_shuffle_i32x4(a[i], a[8 + i], 0x88);
    v[8 + i] = _mm512_shuffle_i32x4(a[i], a[8 + i], 0xDD);
    v[4 + i] = _mm512_shuffle_i32x4(a[4 + i], a[12 + i], 0x88);
    v[12 + i] = _mm512_shuffle_i32x4(a[4 + i], a[12 + i], 0xDD);
  }
}
