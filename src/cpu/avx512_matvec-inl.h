// One row of x times FP4 weights on AVX-512 registers: 32 rows of W are the lanes, so no product leaves the registers.
// Included after avx512_vectors-inl.h inside the anonymous namespace of an instruction-set file.
//
// Codes are turned as bytes: four blocks of K of 16 rows are 16 vectors, whose 128-bit lanes are transposed, one lane a
// block. Then byte p of 32 rows lies together and holds the pair (2p, 2p + 1) of each. The even and the odd chain of
// linear.h run over unscaled values, and a block's sum is scaled once. That gives the bits of scaled values as long as
// nothing over- or underflows, which the ranges below ensure; the caller computes the rest in the general way.

constexpr int64_t kMatvecBlocks = 4;  // a cache line of a row
constexpr float kMatvecSmallest = 0x1p-40f;
constexpr float kMatvecLargest = 0x1p40f;
constexpr uint8_t kMatvecLowestScale = 127 - 40;
constexpr uint8_t kMatvecHighestScale = 127 + 40;

// Whether every value is zero or of a magnitude from kMatvecSmallest to kMatvecLargest.
inline bool is_moderate(const float* x, int64_t size) {
  Mask outside = 0;
  for (int64_t i = 0; i < size; i += kLanes) {
    const Vec magnitude = absolute(load(x + i));
    const Mask is_legal = static_cast<Mask>(_mm512_cmp_ps_mask(magnitude, broadcast(kMatvecSmallest), _CMP_GE_OQ) &
                                            _mm512_cmp_ps_mask(magnitude, broadcast(kMatvecLargest), _CMP_LE_OQ));
    const Mask is_zero = _mm512_testn_epi32_mask(as_int(magnitude), as_int(magnitude));
    outside = static_cast<Mask>(outside | static_cast<Mask>(~(is_legal | is_zero)));
  }
  return outside == 0;
}

// Of 16 vectors, the 16 x 16 bytes of each 128-bit lane change places.
inline void transpose_bytes(__m512i (&v)[16]) {
  __m512i a[16];
#pragma GCC unroll 2
  for (int round = 0; round < 2; ++round) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      a[2 * i] = _mm512_unpacklo_epi8(v[i], v[i + 8]);
      a[2 * i + 1] = _mm512_unpackhi_epi8(v[i], v[i + 8]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      v[2 * i] = _mm512_unpacklo_epi8(a[i], a[i + 8]);
      v[2 * i + 1] = _mm512_unpackhi_epi8(a[i], a[i + 8]);
    }
  }
}

// The sums of rows 2i and 2i + 1 in lane i.
struct PairSums {
  Vec even;
  Vec odd;
};

// Adds one block: codes[p] are byte p of 16 rows, codes[16 + p] of the 16 after them.
inline void add_block(const uint8_t* codes, const float* x, __m512i table, Vec even_scale, Vec odd_scale,
                      PairSums& sums) {
  const __m512i high = _mm512_set1_epi32(static_cast<int32_t>(0xFFFF0000u));
  PairSums low{zero(), zero()};   // over even k
  PairSums next{zero(), zero()};  // over odd k
#pragma GCC unroll 16
  for (int p = 0; p < 16; ++p) {
    const __m128i first = _mm_load_si128(reinterpret_cast<const __m128i*>(codes + p * 64));
    const __m128i second = _mm_load_si128(reinterpret_cast<const __m128i*>(codes + (16 + p) * 64));
    const __m512i words = _mm512_cvtepu8_epi16(_mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1));
    const __m512i even_k = _mm512_permutexvar_epi16(words, table);  // bit 4 picks equal halves
    const __m512i odd_k = _mm512_permutexvar_epi16(_mm512_srli_epi16(words, 4), table);
    const Vec x_even = broadcast(x[2 * p]);
    const Vec x_odd = broadcast(x[2 * p + 1]);
    low.even = fma(x_even, as_float(_mm512_slli_epi32(even_k, 16)), low.even);
    low.odd = fma(x_even, as_float(_mm512_and_si512(even_k, high)), low.odd);
    next.even = fma(x_odd, as_float(_mm512_slli_epi32(odd_k, 16)), next.even);
    next.odd = fma(x_odd, as_float(_mm512_and_si512(odd_k, high)), next.odd);
  }
  sums.even = fma(add(low.even, next.even), even_scale, sums.even);
  sums.odd = fma(add(low.odd, next.odd), odd_scale, sums.odd);
}

// tile[n] = dot(x, row `first` + n of W) for a whole panel of FP4 rows; x as exact_pack leaves it. False, with nothing
// written, if a scale is not moderate. REQUIRES: is_moderate(x); columns are a multiple of kMatvecBlocks blocks.
inline bool multiply_fp4_row(const ops::Weight& w, int64_t first, const float* x, float* tile) {
  alignas(64) uint8_t codes[2 * 16 * 64];
  const int64_t blocks = w.columns / kBlock;
  const int64_t row_bytes = w.columns / 2;
  const std::byte* data = w.data + first * row_bytes;
  const uint8_t* scale = w.scale + first * blocks;
  const uint16_t* unscaled = decode_tables().fp4[127];
  const __m512i table = _mm512_broadcast_i64x4(_mm256_load_si256(reinterpret_cast<const __m256i*>(unscaled)));
  const __m512i even_rows =
      _mm512_mullo_epi32(_mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30),
                         broadcast_int(static_cast<int32_t>(blocks)));
  const __m512i odd_rows = add_int(even_rows, broadcast_int(static_cast<int32_t>(blocks)));
  __m512i lowest = _mm512_set1_epi8(-1);
  __m512i highest = _mm512_setzero_si512();
  PairSums sums{zero(), zero()};
  for (int64_t block = 0; block < blocks; block += kMatvecBlocks) {
    const __m512i even_scales = _mm512_i32gather_epi32(even_rows, scale + block, 1);
    const __m512i odd_scales = _mm512_i32gather_epi32(odd_rows, scale + block, 1);
    lowest = _mm512_min_epu8(lowest, _mm512_min_epu8(even_scales, odd_scales));
    highest = _mm512_max_epu8(highest, _mm512_max_epu8(even_scales, odd_scales));
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      __m512i rows[16];
      const std::byte* at = data + half * 16 * row_bytes + block * (kBlock / 2);
#pragma GCC unroll 16
      for (int r = 0; r < 16; ++r) {
        rows[r] = _mm512_loadu_si512(at);
        prefetch(at + kPrefetchRows * row_bytes);
        at += row_bytes;
      }
      transpose_bytes(rows);
#pragma GCC unroll 16
      for (int p = 0; p < 16; ++p) _mm512_store_si512(codes + (half * 16 + p) * 64, rows[p]);
    }
    const __m512i exponent = broadcast_int(0x7F800000);
#pragma GCC unroll 4
    for (int b = 0; b < kMatvecBlocks; ++b) {
      const auto scale_of = [&](__m512i scales) {
        return as_float(_mm512_and_si512(_mm512_slli_epi32(_mm512_srli_epi32(scales, 8 * b), 23), exponent));
      };
      add_block(codes + 16 * b, x + (block + b) * kBlock, table, scale_of(even_scales), scale_of(odd_scales), sums);
    }
  }
  const bool is_legal =
      _mm512_cmplt_epu8_mask(lowest, _mm512_set1_epi8(static_cast<int8_t>(kMatvecLowestScale))) == 0 &&
      _mm512_cmpgt_epu8_mask(highest, _mm512_set1_epi8(static_cast<int8_t>(kMatvecHighestScale))) == 0;
  if (!is_legal) return false;
  const __m512i low_half = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  store(tile, _mm512_permutex2var_ps(sums.even, low_half, sums.odd));
  store(tile + kLanes, _mm512_permutex2var_ps(sums.even, add_int(low_half, broadcast_int(8)), sums.odd));
  return true;
}
