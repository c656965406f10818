// FP8 and FP4 codes into BF16 words on AVX-512 registers, from the decode tables. Included after avx512_vectors-inl.h
// inside the anonymous namespace of an instruction-set file.

// One row's block of K as 32 BF16 words.
inline __m512i fp8_words(const std::byte* codes, const __m512i (&table)[4]) {
  const __m512i index = _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes)));
  const __m512i low = _mm512_permutex2var_epi16(table[0], index, table[1]);
  const __m512i high = _mm512_permutex2var_epi16(table[2], index, table[3]);
  const __mmask32 is_high = _mm512_test_epi16_mask(index, _mm512_set1_epi16(0x40));
  const __m512i magnitude = _mm512_mask_blend_epi16(is_high, low, high);
  // magnitude | (index << 8 & 0x8000)
  return _mm512_ternarylogic_epi32(magnitude, _mm512_slli_epi16(index, 8), _mm512_set1_epi16(INT16_MIN), 0xF8);
}
inline __m512i fp4_words(const std::byte* codes, const uint16_t* table) {
  const __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
  // byte | byte << 12: word 2p has the byte's low nibble in its lowest four bits, word 2p + 1 its high one; bit 4 picks
  // equal halves.
  const __m512i index = _mm512_madd_epi16(bytes, _mm512_set1_epi32(0x1001));
  return _mm512_permutexvar_epi16(index,
                                  _mm512_broadcast_i64x4(_mm256_load_si256(reinterpret_cast<const __m256i*>(table))));
}

// 32 values of a compressed row: two groups of 16, each with its scale.
inline __m512i compressed_words(const std::byte* codes, const std::byte* scales, const DecodeTables& tables) {
  const __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
  const __m512i nibbles =
      _mm512_and_si512(_mm512_or_si512(bytes, _mm512_slli_epi32(bytes, 12)), _mm512_set1_epi32(0x000F000F));
  // The upper half looks into the second table.
  const __m512i index = _mm512_mask_or_epi32(nibbles, 0xFF00, nibbles, _mm512_set1_epi32(0x00100010));
  const auto table = [&](int64_t group) {
    const uint16_t* words = tables.compressed[static_cast<uint8_t>(scales[group])];
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(words));
  };
  return _mm512_permutexvar_epi16(index, _mm512_inserti64x4(_mm512_castsi256_si512(table(0)), table(1), 1));
}

// Values d .. d + 31 of a key that is no F32 row.
inline __m512i key_words(const Key& key, int64_t dim, int64_t d, const DecodeTables& tables) {
  switch (key.format) {
    case KeyFormat::kMxfp8: {
      const uint16_t* codes = tables.fp8[static_cast<uint8_t>(key.row[dim + d / kBlock])];
      const __m512i table[4] = {_mm512_load_si512(codes), _mm512_load_si512(codes + 32), _mm512_load_si512(codes + 64),
                                _mm512_load_si512(codes + 96)};
      return fp8_words(key.row + d, table);
    }
    case KeyFormat::kCompressed: return compressed_words(key.row + d / 2, key.row + dim / 2 + d / 16, tables);
    case KeyFormat::kBF16:
    case KeyFormat::kF32: break;
  }
  return _mm512_loadu_si512(key.row + d * 2);
}
