// Sums as the tiles leave them, [32 rows of W][16 rows of x], into rows. Included after avx512_vectors-inl.h and
// amx_layout-inl.h inside the anonymous namespace of an instruction-set file.

// Sums of one group as the tiles leave them, [32 rows of W][stride], turned into tile rows [size][32 rows of W]. Both
// may be the same memory, and are where there is one row: then the sums are turned already.
inline void turn_sums(const float* sums, int64_t stride, int64_t size, float* out) {
  if (stride == 1) return;
  __m512i low[16];
  __m512i high[16];
  const auto mask = static_cast<Mask>((1u << size) - 1u);
#pragma GCC unroll 16
  for (int n = 0; n < 16; ++n) low[n] = _mm512_maskz_loadu_epi32(mask, sums + n * stride);
  transpose(low);
#pragma GCC unroll 16
  for (int n = 0; n < 16; ++n) high[n] = _mm512_maskz_loadu_epi32(mask, sums + (16 + n) * stride);
  transpose(high);
  alignas(64) float turned[kGroup * kPanel];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    store(turned + i * kPanel, as_float(low[i]));
    store(turned + i * kPanel + 16, as_float(high[i]));
  }
  for (int64_t i = 0; i < size * kPanel; i += kLanes) store(out + i, load(turned + i));
}

// Where the sums of a group go: `rows` rows of as many of 32 values as `columns` has bits.
struct Output {
  std::byte* to;
  int64_t row_bytes;
  int64_t rows;
  uint32_t columns;
};

// Two rows of sums, their values in turn, rounded like to_bf16: tiles give no denormal sums, which this instruction
// would take for zero.
inline __m512i narrow_rows(const float* sums) {
  const __m512i in_turn = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                           21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const auto words = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(load(sums + kGroup), load(sums)));
  return _mm512_permutexvar_epi16(in_turn, words);
}

// Sums [32 rows of W][kGroup] as BF16 rows. Pairs of values are turned as one.
inline void finish_bf16(const float* sums, const Output& out) {
  __m512i rows[kGroup];
#pragma GCC unroll 16
  for (int p = 0; p < kGroup; ++p) rows[p] = narrow_rows(sums + 2 * p * kGroup);
  transpose(rows);
#pragma GCC unroll 16
  for (int i = 0; i < kGroup; ++i) {
    if (i < out.rows) _mm512_mask_storeu_epi16(out.to + i * out.row_bytes, out.columns, rows[i]);
  }
}
inline void finish_f32(const float* sums, const Output& out) {
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    __m512i rows[kGroup];
#pragma GCC unroll 16
    for (int n = 0; n < kGroup; ++n) rows[n] = as_int(load(sums + (half * kGroup + n) * kGroup));
    transpose(rows);
    const auto columns = static_cast<Mask>(out.columns >> (half * kGroup));
#pragma GCC unroll 16
    for (int i = 0; i < kGroup; ++i) {
      if (i < out.rows) _mm512_mask_storeu_epi32(out.to + i * out.row_bytes + half * 64, columns, rows[i]);
    }
  }
}
