// AMX-BF16: rows of W as the left operand of the tile product, rows of x as the right one. TDPBF16PS computes the
// canonical order of linear.h natively, for one column and for sixteen, so weights are decoded to BF16 rows and never
// transposed. Everything that is no product runs on the AVX-512 kernels.
#include <immintrin.h>

#include "cpu/amx_kernels.h"
#include "cpu/avx512_kernels.h"
#include "cpu/decode_tables.h"
#include "cpu/kernels.h"

namespace ps::cpu {
namespace {

#include "cpu/avx512_vectors-inl.h"
#include "cpu/avx512_words-inl.h"
#include "cpu/amx_tiles-inl.h"

constexpr int64_t kGroup = 16;        // rows of x in one tile
constexpr int64_t kTileBytes = 1024;  // 16 rows of W, 32 of K, BF16
constexpr int64_t kCacheLine = 64;
constexpr int64_t kIntegerRows = 2;  // of FP4 weights that vectors multiply faster

// Tiles 0-3: sums [16 rows of W][rows of x]; 4, 5: W; 6, 7: x [16 pairs of K][rows of x].
// Tiles 0, 2, 6 have `first` rows of x, tiles 1, 3, 7 have `second`.
inline void configure(int64_t first, int64_t second) {
  TileConfig config;
  const int64_t columns[8] = {first, second, first, second, 16, 16, first, second};
  for (int i = 0; i < 8; ++i) {
    config.row_bytes[i] = static_cast<uint16_t>(columns[i] * 4);
    config.rows[i] = 16;
  }
  configure_tiles(config);
}

// Packed rows: chunks of K, the last one shorter; a chunk is groups of 16 rows of x, the last one shorter; a group is
// [block of K][16 pairs of K][rows][2] BF16. So what is multiplied together lies together.
int64_t matrix_packed_bytes(int64_t count, int64_t columns) {
  return (columns + kBlock - 1) / kBlock * kBlock * count * 2;
}

// Block `block` of K of group `group`, which has `size` of the `count` packed rows.
inline uint32_t* group_block(void* packed, int64_t columns, int64_t count, int64_t group, int64_t size, int64_t block) {
  const int64_t first = block / kChunk * kChunk;
  const int64_t left = (columns + kBlock - 1) / kBlock - first;
  const int64_t chunk = left < kChunk ? left : kChunk;
  return static_cast<uint32_t*>(packed) + 16 * (first * count + group * kGroup * chunk + (block - first) * size);
}

// Rows as 16 pairs each, `size` of them, into one block of a group.
inline void write_block(__m512i (&rows)[16], int64_t size, uint32_t* out) {
  transpose(rows);
  const auto mask = static_cast<Mask>((1u << size) - 1u);
#pragma GCC unroll 16
  for (int p = 0; p < 16; ++p) _mm512_mask_storeu_epi32(out + p * size, mask, rows[p]);
}

void matrix_pack(const PackArgs& args) {
  const int64_t blocks = (args.columns + kBlock - 1) / kBlock;
  for (int64_t first = args.begin; first < args.end; first += kGroup) {
    const int64_t left = args.count - first;
    const int64_t size = left < kGroup ? left : kGroup;
    const uint16_t* from[kGroup];
    for (int64_t i = 0; i < size; ++i) {
      from[i] = static_cast<const uint16_t*>(args.x) +
                (args.rows != nullptr ? args.rows[first + i] : first + i) * args.stride;
    }
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t rest = args.columns - block * kBlock;
      const uint32_t mask = rest >= kBlock ? ~0u : (1u << rest) - 1u;
      uint32_t* out = group_block(args.packed, args.columns, args.count, first / kGroup, size, block);
      if (size == 1) {
        _mm512_storeu_si512(out, _mm512_maskz_loadu_epi16(mask, from[0] + block * kBlock));
        continue;
      }
      __m512i rows[16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) {
        rows[i] = i < size ? _mm512_maskz_loadu_epi16(mask, from[i] + block * kBlock) : _mm512_setzero_si512();
      }
      write_block(rows, size, out);
    }
  }
}

// REQUIRES: the values are exact in BF16.
void matrix_pack_tile(const float* tile, int64_t count, int64_t columns, int64_t block, void* packed) {
  for (int64_t first = 0; first < count; first += kGroup) {
    const int64_t size = count - first < kGroup ? count - first : kGroup;
    __m512i rows[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      rows[i] = _mm512_setzero_si512();
      if (i < size) {
        const float* from = tile + (first + i) * kPanel;
        const __m256i low = _mm512_cvtepi32_epi16(_mm512_srli_epi32(as_int(load(from)), 16));
        const __m256i high = _mm512_cvtepi32_epi16(_mm512_srli_epi32(as_int(load(from + 16)), 16));
        rows[i] = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
      }
    }
    write_block(rows, size, group_block(packed, columns, count, first / kGroup, size, block));
  }
}

// ---- Decoding: rows [begin, end) of panel `first`, blocks [block, block + count) of K, as out[block][32 rows][32]
// Callers take kPart rows and at most kUnit blocks: what a cache line of each format holds, of few enough rows that
// lines stay in the first cache however far the rows lie apart.

constexpr int64_t kUnit = 4;
constexpr int64_t kPart = kPanel / kUnit;

inline void prefetch(const std::byte* at) { _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T1); }

// Sizes are copied first: the compiler takes every vector store for one that could change them.

// Two rows at a time. High and low bytes of all 64 values are looked up, then interleaved.
inline void decode_fp8(const ops::Weight& w, int64_t first, int64_t begin, int64_t end, int64_t block, int64_t count,
                       uint16_t* out) {
  const DecodeTables& tables = decode_tables();
  const int64_t columns = w.columns;
  const std::byte* at = w.data + (first + begin) * columns + block * kBlock;
  const uint8_t* scale = w.scale + first / kBlock * (columns / kBlock) + block;
  // Lane j gets codes 8j .. 8j+7 of the one row and of the other, so that unpacking gives whole rows.
  const __m512i spread = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);
  const __m512i sign_bit = _mm512_set1_epi8(INT8_MIN);
  for (int64_t b = 0; b < count; ++b) {
    const auto& bytes = tables.fp8_bytes[scale[b]];
    const __m512i high0 = _mm512_load_si512(bytes[0]);
    const __m512i high1 = _mm512_load_si512(bytes[0] + 64);
    const __m512i low0 = _mm512_load_si512(bytes[1]);
    const __m512i low1 = _mm512_load_si512(bytes[1] + 64);
    const std::byte* row = at + b * kBlock;
    uint16_t* to = out + (b * kPanel + begin) * kBlock;
#pragma GCC unroll 4
    for (int64_t r = begin; r < end; r += 2) {
      const __m512i row0 = _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(row)));
      const __m512i row1 = _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(row + columns)));
      const __m512i codes = _mm512_permutex2var_epi64(row0, spread, row1);
      const __m512i low = _mm512_permutex2var_epi8(low0, codes, low1);
      const __m512i magnitude = _mm512_permutex2var_epi8(high0, codes, high1);
      const __m512i high = _mm512_ternarylogic_epi32(magnitude, codes, sign_bit, 0xF8);  // magnitude | (codes & sign)
      _mm512_store_si512(to, _mm512_unpacklo_epi8(low, high));
      _mm512_store_si512(to + kBlock, _mm512_unpackhi_epi8(low, high));
      if (b % 2 == 0) {
        prefetch(row + kPrefetchRows * columns);
        prefetch(row + (kPrefetchRows + 1) * columns);
      }
      row += 2 * columns;
      to += 2 * kBlock;
    }
  }
}

inline void decode_fp4(const ops::Weight& w, int64_t first, int64_t begin, int64_t end, int64_t block, int64_t count,
                       uint16_t* out) {
  const DecodeTables& tables = decode_tables();
  const int64_t blocks = w.columns / kBlock;
  const int64_t row_bytes = w.columns / 2;
  const std::byte* at = w.data + (first + begin) * row_bytes + block * kBlock / 2;
  const uint8_t* scale = w.scale + (first + begin) * blocks + block;
  for (int64_t r = begin; r < end; ++r) {
#pragma GCC unroll 4
    for (int64_t b = 0; b < count; ++b) {
      _mm512_store_si512(out + (b * kPanel + r) * kBlock, fp4_words(at + b * kBlock / 2, tables.fp4[scale[b]]));
    }
    prefetch(at + kPrefetchRows * row_bytes);
    at += row_bytes;
    scale += blocks;
  }
}

inline void decode_bf16(const ops::Weight& w, int64_t first, int64_t begin, int64_t end, int64_t block, int64_t count,
                        uint16_t* out) {
  const int64_t columns = w.columns;
  const std::byte* at = w.data + ((first + begin) * columns + block * kBlock) * 2;
  for (int64_t r = begin; r < end; ++r) {
    for (int64_t b = 0; b < count; ++b) {
      const int64_t left = columns - (block + b) * kBlock;
      const uint32_t mask = left >= kBlock ? ~0u : (1u << left) - 1u;
      _mm512_store_si512(out + (b * kPanel + r) * kBlock, _mm512_maskz_loadu_epi16(mask, at + b * kBlock * 2));
      prefetch(at + b * kBlock * 2 + kPrefetchRows * columns * 2);
    }
    at += columns * 2;
  }
}

// Rows past the end of W become zero. REQUIRES: begin and end are even.
inline void decode(const ops::Weight& w, int64_t first, int64_t begin, int64_t end, int64_t block, int64_t count,
                   uint16_t* out) {
  const int64_t left = w.rows - first;
  const int64_t stop = end < left ? end : left;
  switch (w.format) {
    case ops::WeightFormat::kFp8Block32: decode_fp8(w, first, begin, end, block, count, out); return;
    case ops::WeightFormat::kFp4Block32: decode_fp4(w, first, begin, stop, block, count, out); break;
    case ops::WeightFormat::kBF16: decode_bf16(w, first, begin, stop, block, count, out); break;
    case ops::WeightFormat::kF32: break;  // never given to the matrix units
  }
  for (int64_t r = stop < begin ? begin : stop; r < end; ++r) {
    for (int64_t b = 0; b < count; ++b) _mm512_store_si512(out + (b * kPanel + r) * kBlock, _mm512_setzero_si512());
  }
}

// `count` blocks of a whole panel.
inline void decode_chunk(const ops::Weight& w, int64_t first, int64_t block, int64_t count, uint16_t* out) {
  for (int64_t done = 0; done < count; done += kUnit) {
    const int64_t unit = count - done < kUnit ? count - done : kUnit;
    for (int64_t part = 0; part < kPanel; part += kPart) {
      decode(w, first, part, part + kPart, block + done, unit, out + done * kPanel * kBlock);
    }
  }
}

// ---- Products -------------------------------------------------------------------------------------------------------

// Sums of one group as the tiles leave them, [32 rows of W][size], turned into tile rows [size][32 rows of W].
inline void turn_sums(float* sums, int64_t size) {
  if (size == 1) return;
  __m512i low[16];
  __m512i high[16];
  const auto mask = static_cast<Mask>((1u << size) - 1u);
#pragma GCC unroll 16
  for (int n = 0; n < 16; ++n) low[n] = _mm512_maskz_loadu_epi32(mask, sums + n * size);
  transpose(low);
#pragma GCC unroll 16
  for (int n = 0; n < 16; ++n) high[n] = _mm512_maskz_loadu_epi32(mask, sums + (16 + n) * size);
  transpose(high);
  alignas(64) float turned[kGroup * kPanel];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    store(turned + i * kPanel, as_float(low[i]));
    store(turned + i * kPanel + 16, as_float(high[i]));
  }
  for (int64_t i = 0; i < size * kPanel; i += kLanes) store(sums + i, load(turned + i));
}

// At most 16 rows of x: the sums stay in tiles. While one unit of four blocks is multiplied the next one, of this panel
// or of the panel after it, is decoded, a quarter of its rows between two products, so that both go on at once.
void multiply_few(const MultiplyArgs& args) {
  alignas(64) uint16_t decoded[2][kUnit * kPanel * kBlock];
  const int64_t size = args.count;
  const int64_t blocks = (args.w.columns + kBlock - 1) / kBlock;
  const int64_t row_bytes = size * 4;
  const uint32_t* x = static_cast<const uint32_t*>(args.packed);
  const auto decode_part = [&args, blocks](int64_t panel, int64_t block, int64_t part, uint16_t* to) {
    const int64_t first = args.first + panel * kPanel;
    const int64_t begin = part * kPart;
    if (block + kUnit <= blocks) decode(args.w, first, begin, begin + kPart, block, kUnit, to);
    else decode(args.w, first, begin, begin + kPart, block, blocks - block, to);
  };
  configure(size, size);
  for (int64_t i = 0; i < kUnit; ++i) decode_part(0, 0, i, decoded[0]);
  int turn = 0;
  for (int64_t panel = 0; panel < args.panels; ++panel) {
    zero_tile<0>();
    zero_tile<2>();
    for (int64_t block = 0; block < blocks; block += kUnit, turn ^= 1) {
      const uint16_t* w = decoded[turn];
      const bool is_last = block + kUnit >= blocks;
      const int64_t next_panel = is_last ? panel + 1 : panel;
      const int64_t next_block = is_last ? 0 : block + kUnit;
      for (int64_t i = 0; i < kUnit; ++i) {
        if (next_panel < args.panels) decode_part(next_panel, next_block, i, decoded[turn ^ 1]);
        if (block + i >= blocks) continue;
        load_tile<6>(x + (block + i) * 16 * size, row_bytes);
        load_tile<4>(w + i * kPanel * kBlock, 64);
        multiply_tiles<0, 4, 6>();
        load_tile<5>(w + i * kPanel * kBlock + 16 * kBlock, 64);
        multiply_tiles<2, 5, 6>();
      }
    }
    float* sums = args.tile + panel * size * kPanel;
    store_tile<0>(sums, row_bytes);
    store_tile<2>(sums + 16 * size, row_bytes);
    turn_sums(sums, size);
  }
}

// A group of rows of x and its sums for one panel.
struct RowGroup {
  const uint32_t* x;
  int64_t size;
  float* sums;
};

// Two groups times `count` decoded blocks of K, added to their sums. Meanwhile the sums at `next` come near.
inline void multiply_pair(const uint16_t* w, int64_t count, const RowGroup& a, const RowGroup& b, bool is_first,
                          const float* next) {
  constexpr int64_t kLinesPerBlock = 2 * kGroup * kPanel * 4 / kCacheLine / kChunk;
  const int64_t bytes_a = a.size * 4;
  const int64_t bytes_b = b.size * 4;
  if (is_first) {
    zero_tile<0>();
    zero_tile<1>();
    zero_tile<2>();
    zero_tile<3>();
  } else {
    load_tile<0>(a.sums, bytes_a);
    load_tile<2>(a.sums + 16 * a.size, bytes_a);
    load_tile<1>(b.sums, bytes_b);
    load_tile<3>(b.sums + 16 * b.size, bytes_b);
  }
  for (int64_t block = 0; block < count; ++block) {
    load_tile<4>(w + block * kPanel * kBlock, 64);
    load_tile<6>(a.x + block * 16 * a.size, bytes_a);
    load_tile<7>(b.x + block * 16 * b.size, bytes_b);
    multiply_tiles<0, 4, 6>();
    load_tile<5>(w + block * kPanel * kBlock + 16 * kBlock, 64);
    multiply_tiles<1, 4, 7>();
    multiply_tiles<2, 5, 6>();
    multiply_tiles<3, 5, 7>();
    for (int64_t line = block * kLinesPerBlock; line < (block + 1) * kLinesPerBlock; ++line) {
      _mm_prefetch(reinterpret_cast<const char*>(next) + line * kCacheLine, _MM_HINT_T0);
    }
  }
  store_tile<0>(a.sums, bytes_a);
  store_tile<2>(a.sums + 16 * a.size, bytes_a);
  store_tile<1>(b.sums, bytes_b);
  store_tile<3>(b.sums + 16 * b.size, bytes_b);
}

inline void multiply_single(const uint16_t* w, int64_t count, const RowGroup& group, bool is_first) {
  const int64_t bytes = group.size * 4;
  if (is_first) {
    zero_tile<0>();
    zero_tile<2>();
  } else {
    load_tile<0>(group.sums, bytes);
    load_tile<2>(group.sums + 16 * group.size, bytes);
  }
  for (int64_t block = 0; block < count; ++block) {
    load_tile<6>(group.x + block * 16 * group.size, bytes);
    load_tile<4>(w + block * kPanel * kBlock, 64);
    multiply_tiles<0, 4, 6>();
    load_tile<5>(w + block * kPanel * kBlock + 16 * kBlock, 64);
    multiply_tiles<2, 5, 6>();
  }
  store_tile<0>(group.sums, bytes);
  store_tile<2>(group.sums + 16 * group.size, bytes);
}

// More rows of x. A panel's next kChunk blocks of K are decoded into the first cache, then all rows pass over them, two
// groups at a time; rows and sums stream from the second cache, which holds a chunk of all rows and the sums of all
// panels (kTileRows).
void multiply_many(const MultiplyArgs& args) {
  alignas(64) uint16_t decoded[kChunk * kPanel * kBlock];
  void* packed = const_cast<void*>(args.packed);
  const int64_t columns = args.w.columns;
  const int64_t blocks = (columns + kBlock - 1) / kBlock;
  const int64_t groups = (args.count + kGroup - 1) / kGroup;
  const int64_t last_size = args.count - (groups - 1) * kGroup;
  const auto size_of = [&](int64_t group) { return group == groups - 1 ? last_size : kGroup; };
  const auto sums_of = [&](int64_t panel, int64_t group) {
    return args.tile + (panel * args.count + group * kGroup) * kPanel;
  };
  for (int64_t first = 0; first < blocks; first += kChunk) {
    const int64_t count = blocks - first < kChunk ? blocks - first : kChunk;
    const auto rows_of = [&](int64_t panel, int64_t group) {
      const int64_t size = size_of(group);
      return RowGroup{group_block(packed, columns, args.count, group, size, first), size, sums_of(panel, group)};
    };
    for (int64_t p = 0; p < args.panels; ++p) {
      decode_chunk(args.w, args.first + p * kPanel, first, count, decoded);
      configure(kGroup, kGroup);
      for (int64_t group = 0; group + 1 < groups; group += 2) {
        const RowGroup second = rows_of(p, group + 1);
        if (second.size != kGroup) configure(kGroup, second.size);
        multiply_pair(decoded, count, rows_of(p, group), second, first == 0, sums_of(p, group + 2));
      }
      if (groups % 2 == 0) continue;
      if (last_size != kGroup) configure(last_size, last_size);
      multiply_single(decoded, count, rows_of(p, groups - 1), first == 0);
    }
  }
  for (int64_t p = 0; p < args.panels; ++p) {
    for (int64_t group = 0; group < groups; ++group) turn_sums(sums_of(p, group), size_of(group));
  }
}

void matrix_multiply(const MultiplyArgs& args) {
  if (args.count > kGroup) multiply_many(args);
  else multiply_few(args);
}

}  // namespace

const Kernels& amx_kernels() {
  static const Kernels kKernels = [] {
    Kernels kernels = avx512_vnni_kernels();
    kernels.integer_rows = kIntegerRows;
    kernels.matrix = {matrix_packed_bytes, matrix_pack, matrix_pack_tile, matrix_multiply};
    kernels.attend_bytes = amx_attend_bytes;
    kernels.attend = amx_attend;
    kernels.score_keys = amx_score_keys;
    return kernels;
  }();
  return kKernels;
}

}  // namespace ps::cpu
