// Weights into BF16 rows for the tiles: out[block][32 rows of a panel][32]. Included after avx512_words-inl.h
// and panel_rows-inl.h inside the anonymous namespace of an instruction-set file.

// Blocks that are decoded together: whole cache lines of every format. A panel's unit is decoded in as many parts.
constexpr int64_t kUnit = 4;
constexpr int64_t kPart = kStreams / kUnit;  // lanes

constexpr int64_t block_bytes(ops::WeightFormat format) {
  return format == ops::WeightFormat::kFp8Block32   ? kBlock
         : format == ops::WeightFormat::kFp4Block32 ? kBlock / 2
                                                    : kBlock * 2;
}

// The high and the low bytes of all codes times one scale.
struct Fp8Bytes {
  __m512i high[2];
  __m512i low[2];
};
inline Fp8Bytes fp8_bytes(const DecodeTables& tables, uint8_t scale) {
  const auto& bytes = tables.fp8_bytes[scale];
  return {{_mm512_load_si512(bytes[0]), _mm512_load_si512(bytes[0] + 64)},
          {_mm512_load_si512(bytes[1]), _mm512_load_si512(bytes[1] + 64)}};
}

// The words of two rows.
struct RowPair {
  __m512i first;
  __m512i second;
};

// A block of two rows. High and low bytes of all 64 values are looked up, then interleaved.
inline RowPair fp8_rows(const std::byte* row, int64_t row_bytes, const Fp8Bytes& bytes) {
  // Lane j gets codes 8j .. 8j+7 of the one row and of the other, so that unpacking gives whole rows.
  const __m512i spread = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);
  const __m512i row0 = _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(row)));
  const __m512i row1 = _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(row + row_bytes)));
  const __m512i codes = _mm512_permutex2var_epi64(row0, spread, row1);
  const __m512i low = _mm512_permutex2var_epi8(bytes.low[0], codes, bytes.low[1]);
  const __m512i magnitude = _mm512_permutex2var_epi8(bytes.high[0], codes, bytes.high[1]);
  // magnitude | (codes & sign)
  const __m512i high = _mm512_ternarylogic_epi32(magnitude, codes, _mm512_set1_epi8(INT8_MIN), 0xF8);
  return {_mm512_unpacklo_epi8(low, high), _mm512_unpackhi_epi8(low, high)};
}

// A unit's bytes of a row.
inline void bring_unit(const std::byte* at, int64_t block_size) {
  for (int64_t line = 0; line < kUnit * block_size; line += kCacheLine) prefetch(at + line);
}

// ---- Any part of a panel: both rows of lanes [begin, end), blocks [block, block + count) of K -----------------------
// Callers take kPart lanes and at most kUnit blocks. Meanwhile the same place `ahead` bytes further comes near; 0 asks
// for what is read anyway. Sizes are copied first: the compiler takes every vector store for one that could change
// them.

// REQUIRES: neighbours, which share the scale of a block.
inline void decode_fp8(const ops::Weight& w, const PanelRows& rows, int64_t begin, int64_t end, int64_t block,
                       int64_t count, int64_t ahead, uint16_t* out) {
  const DecodeTables& tables = decode_tables();
  const int64_t columns = w.columns;
  const int64_t half_bytes = rows.half * columns;
  const std::byte* at = w.data + (rows.first + begin) * columns + block * kBlock;
  const uint8_t* scale = w.scale + rows.first / kBlock * (columns / kBlock) + block;
  for (int64_t b = 0; b < count; ++b) {
    const Fp8Bytes bytes = fp8_bytes(tables, scale[b]);
    const std::byte* row = at + b * kBlock;
    uint16_t* to = out + (b * kPanel + begin) * kBlock;
#pragma GCC unroll 4
    for (int64_t lane = begin; lane < end; ++lane, row += columns, to += kBlock) {
      const RowPair words = fp8_rows(row, half_bytes, bytes);
      _mm512_store_si512(to, words.first);
      _mm512_store_si512(to + kStreams * kBlock, words.second);
      if (b % 2 == 0) {
        prefetch(row + ahead);
        prefetch(row + half_bytes + ahead);
      }
    }
  }
}

// Rows past the end of W become zero.
inline void decode_fp4(const ops::Weight& w, const PanelRows& panel, int64_t begin, int64_t end, int64_t block,
                       int64_t count, int64_t ahead, uint16_t* out) {
  const DecodeTables& tables = decode_tables();
  const PanelRows rows = panel;
  const int64_t last = w.rows;
  const int64_t blocks = w.columns / kBlock;
  for (int64_t half = 0; half < 2; ++half) {
    int64_t row = rows.first + half * rows.half + begin * rows.lane;
    for (int64_t lane = begin; lane < end; ++lane, row += rows.lane) {
      const std::byte* at = w.data + (row * blocks + block) * kBlock / 2;
      const uint8_t* scale = w.scale + row * blocks + block;
      uint16_t* to = out + (half * kStreams + lane) * kBlock;
#pragma GCC unroll 4
      for (int64_t b = 0; b < count; ++b) {
        const __m512i words =
            row < last ? fp4_words(at + b * kBlock / 2, tables.fp4[scale[b]]) : _mm512_setzero_si512();
        _mm512_store_si512(to + b * kPanel * kBlock, words);
      }
      bring_unit(at + ahead, kBlock / 2);
    }
  }
}

inline void decode_bf16(const ops::Weight& w, const PanelRows& panel, int64_t begin, int64_t end, int64_t block,
                        int64_t count, int64_t ahead, uint16_t* out) {
  const PanelRows rows = panel;
  const int64_t last = w.rows;
  const int64_t columns = w.columns;
  const bool is_whole = (block + count) * kBlock <= columns;
  for (int64_t half = 0; half < 2; ++half) {
    int64_t row = rows.first + half * rows.half + begin * rows.lane;
    for (int64_t lane = begin; lane < end; ++lane, row += rows.lane) {
      const std::byte* at = w.data + (row * columns + block * kBlock) * 2;
      uint16_t* to = out + (half * kStreams + lane) * kBlock;
      if (is_whole && row < last) {
#pragma GCC unroll 4
        for (int64_t b = 0; b < count; ++b) {
          _mm512_store_si512(to + b * kPanel * kBlock, _mm512_loadu_si512(at + b * kBlock * 2));
        }
      } else {
        for (int64_t b = 0; b < count; ++b) {
          const int64_t left = row < last ? columns - (block + b) * kBlock : 0;
          const uint32_t mask = left >= kBlock ? ~0u : (1u << left) - 1u;
          _mm512_store_si512(to + b * kPanel * kBlock, _mm512_maskz_loadu_epi16(mask, at + b * kBlock * 2));
        }
      }
      bring_unit(at + ahead, kBlock * 2);
    }
  }
}

inline void decode(const ops::Weight& w, const PanelRows& rows, int64_t begin, int64_t end, int64_t block,
                   int64_t count, int64_t ahead, uint16_t* out) {
  switch (w.format) {
    case ops::WeightFormat::kFp8Block32: decode_fp8(w, rows, begin, end, block, count, ahead, out); return;
    case ops::WeightFormat::kFp4Block32: decode_fp4(w, rows, begin, end, block, count, ahead, out); return;
    case ops::WeightFormat::kBF16: decode_bf16(w, rows, begin, end, block, count, ahead, out); return;
    case ops::WeightFormat::kF32: return;  // never given to the matrix units
  }
}

// `count` blocks of a panel of neighbours.
inline void decode_chunk(const ops::Weight& w, int64_t first, int64_t block, int64_t count, uint16_t* out) {
  for (int64_t done = 0; done < count; done += kUnit) {
    const int64_t unit = count - done < kUnit ? count - done : kUnit;
    for (int64_t lane = 0; lane < kStreams; lane += kPart) {
      decode(w, neighbours(first), lane, lane + kPart, block + done, unit, 0, out + done * kPanel * kBlock);
    }
  }
}

// ---- Whole chunks of whole panels, a few rows at a time: straight code to put between products ----------------------

// The chunk to decode, from its next row on.
struct Feed {
  const std::byte* data;
  const uint8_t* scale;  // FP8: of the whole panel
  int64_t row_bytes;
  int64_t scale_bytes;  // from row to row
  uint16_t* out;
  const std::byte* later;  // the same rows of the chunk after it, which come near meanwhile
};

// Four blocks of a row from 64 bytes of codes: fewer loads than block by block, and loads are what tiles need too.
[[gnu::always_inline]] inline void decode_fp4_line(const std::byte* row, const uint8_t* scale,
                                                   const DecodeTables& tables, uint16_t* out) {
  const __m512i codes = _mm512_loadu_si512(row);
  uint32_t scales = 0;
  __builtin_memcpy(&scales, scale, sizeof(scales));
  // Dword i of block b: code byte 16b + i four times. Its lower word has the low nibble in its lowest bits, the upper
  // word does once it is shifted; bit 4 picks equal halves.
  const __m512i pick =
      _mm512_setr_epi32(0, 0x01010101, 0x02020202, 0x03030303, 0x04040404, 0x05050505, 0x06060606, 0x07070707,
                        0x08080808, 0x09090909, 0x0A0A0A0A, 0x0B0B0B0B, 0x0C0C0C0C, 0x0D0D0D0D, 0x0E0E0E0E, 0x0F0F0F0F);
  const __m512i shift = _mm512_set1_epi32(0x00040000);
#pragma GCC unroll 4
  for (int b = 0; b < 4; ++b) {
    const __m512i bytes =
        _mm512_permutexvar_epi8(_mm512_add_epi8(pick, _mm512_set1_epi8(static_cast<char>(16 * b))), codes);
    const auto* table = reinterpret_cast<const __m256i*>(tables.fp4[(scales >> (8 * b)) & 0xFF]);
    const __m512i words =
        _mm512_permutexvar_epi16(_mm512_srlv_epi16(bytes, shift), _mm512_broadcast_i64x4(_mm256_load_si256(table)));
    _mm512_store_si512(out + b * kPanel * kBlock, words);
  }
}

// Share `kShare` of kShares of the chunk's next kRows rows. REQUIRES: kRows is even.
template <ops::WeightFormat kFormat, int kRows, int kShare, int kShares>
[[gnu::always_inline]] inline void decode_share(const Feed& feed, const DecodeTables& tables) {
  // FP4: lines of four blocks; the others: rows of one block, FP8 two of them.
  constexpr int kSteps = kFormat == ops::WeightFormat::kFp4Block32   ? kRows * 2
                         : kFormat == ops::WeightFormat::kFp8Block32 ? kRows * 4
                                                                     : kRows * 8;
  constexpr int kRowSteps = kSteps / static_cast<int>(kFormat == ops::WeightFormat::kFp4Block32 ? 2 : kChunk);
#pragma GCC unroll 32
  for (int step = kSteps * kShare / kShares; step < kSteps * (kShare + 1) / kShares; ++step) {
    const int64_t block = step / kRowSteps * (kFormat == ops::WeightFormat::kFp4Block32 ? 4 : 1);
    const int64_t row = step % kRowSteps * (kFormat == ops::WeightFormat::kFp8Block32 ? 2 : 1);
    const std::byte* from = feed.data + row * feed.row_bytes + block * block_bytes(kFormat);
    uint16_t* out = feed.out + (block * kPanel + row) * kBlock;
    if constexpr (kFormat == ops::WeightFormat::kFp4Block32) {
      decode_fp4_line(from, feed.scale + row * feed.scale_bytes + block, tables, out);
    } else if constexpr (kFormat == ops::WeightFormat::kFp8Block32) {
      const RowPair words = fp8_rows(from, feed.row_bytes, fp8_bytes(tables, feed.scale[block]));
      _mm512_store_si512(out, words.first);
      _mm512_store_si512(out + kBlock, words.second);
    } else {
      _mm512_store_si512(out, _mm512_loadu_si512(from));
    }
  }
}

// Step `step` of kChunk ones that bring the next kRows rows of `later` near.
template <ops::WeightFormat kFormat, int kRows>
[[gnu::always_inline]] inline void bring_rows(const Feed& feed, int step) {
  constexpr int kRowLines = static_cast<int>(kChunk * block_bytes(kFormat) / kCacheLine);
  constexpr int kLines = kRows * kRowLines;
#pragma GCC unroll 32
  for (int line = kLines * step / kChunk; line < kLines * (step + 1) / kChunk; ++line) {
    prefetch(feed.later + line / kRowLines * feed.row_bytes + line % kRowLines * kCacheLine);
  }
}
