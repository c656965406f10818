// Few rows of x times FP4 weights, over integers. Included inside the anonymous namespace of an instruction-set file
// after avx512_kernels.h, avx512_vectors-inl.h, panel_rows-inl.h and these:
//   look_up(table, v): byte i is table[v[i] & 15], where table repeats 16 bytes; of v[i] any other bits may be set;
//   add_products(sums, a, b): sums[i] += the four products of unsigned bytes a[4i ..] and signed bytes b[4i ..].
//
// A block of x on the MXFP8 grid is 32 integers times a power of two, a row's block of FP4 weights likewise. As long
// as no partial sum of the even chain or of the odd one can need more than 24 bits, both are exact, and the sum of the
// block is the exact one, rounded once. That is decided by x alone, for nearly every block. Such a sum is taken over
// integers, x in digits of base 256, rounded, scaled and added to the row's sum: the bits of linear.h. The general way
// is taken by chunks of four blocks with one that does not fit in any row of x, by kScaleBlocks blocks with a scale so
// far out that something may become subnormal or infinite, and by a last panel that is cut short.

constexpr int64_t kChunkBlocks = kIntegerColumns / kBlock;  // a cache line of a row of W
constexpr int32_t kLargestCode = 12;                        // 2 * value
constexpr int32_t kCodeBias = kLargestCode;
constexpr int32_t kUnitBits = 17;  // a unit of x lies this far below its block's largest: E4M3 goes from 2^8 to 2^-9
constexpr int32_t kSpareBits = 3;  // multiples of 2^kSpareBits units fit in two digits
constexpr int32_t kTwoDigits = 127 * 256 + 127;
constexpr int32_t kExactSum = 1 << 24;
constexpr int32_t kModerate = 40;  // exponents of x and of scales, either way
constexpr int64_t kScaleBlocks = 64;

enum class DigitKind : uint8_t { kTwo = 0, kThree = 1, kGeneral = 2 };  // a bit of its own each: see kind_of()

// A row of x over one chunk. A digit's even columns stand before its odd ones, as the halves of W's bytes do. A block
// of kind kGeneral has the bits of its BF16 values for integers.
struct alignas(64) DigitRow {
  int8_t digits[3][2][kIntegerColumns / 2];  // lowest first
  int32_t bias[kChunkBlocks];                // what kCodeBias adds to a block's sum, negated
  int32_t exponent[kChunkBlocks];            // of a block's unit
  DigitKind kind[kChunkBlocks];
};
static_assert(sizeof(DigitRow) <= 4 * kIntegerColumns, "packed_bound() of drivers.h");

// Packed rows: [chunk][count].
inline DigitRow* digit_rows(void* packed, int64_t count, int64_t chunk) {
  return static_cast<DigitRow*>(packed) + chunk * count;
}

int64_t integer_packed_bytes(int64_t count, int64_t columns) {
  return count * (columns / kIntegerColumns) * static_cast<int64_t>(sizeof(DigitRow));
}

// A block of x as integers times 2^exponent.
struct Integers {
  IntVec values[2];
  int32_t exponent;
  DigitKind kind;
};

inline Integers to_integers(const Vec (&x)[2]) {
  const Integers general{
      {_mm512_srli_epi32(as_int(x[0]), 16), _mm512_srli_epi32(as_int(x[1]), 16)}, 0, DigitKind::kGeneral};
  const uint32_t largest = reduce_max(max_int(as_int(absolute(x[0])), as_int(absolute(x[1]))));
  const int32_t top = largest == 0 ? 0 : static_cast<int32_t>(largest >> 23) - 127;
  if (top < -kModerate || top > kModerate) return general;
  const Vec units = power_of_two(broadcast_int(kUnitBits - top));
  const Vec scaled[2] = {mul(x[0], units), mul(x[1], units)};
  const IntVec values[2] = {to_int(scaled[0]), to_int(scaled[1])};
  const IntVec magnitudes[2] = {_mm512_abs_epi32(values[0]), _mm512_abs_epi32(values[1])};
  const bool is_lossless = (_mm512_cmp_ps_mask(_mm512_cvtepi32_ps(values[0]), scaled[0], _CMP_NEQ_UQ) |
                            _mm512_cmp_ps_mask(_mm512_cvtepi32_ps(values[1]), scaled[1], _CMP_NEQ_UQ)) == 0;
  const auto bits = static_cast<uint32_t>(_mm512_reduce_or_epi32(_mm512_or_si512(values[0], values[1])));
  const int32_t zeros = __builtin_ctz(bits | 1u << 31);  // below every value
  const IntVec sums = add_int(magnitudes[0], magnitudes[1]);
  const int32_t even = _mm512_mask_reduce_add_epi32(0x5555, sums);
  const int32_t odd = _mm512_mask_reduce_add_epi32(0xAAAA, sums);
  const int64_t chain = (even > odd ? even : odd) >> zeros;
  if (!is_lossless || chain * kLargestCode > kExactSum) return general;
  const int32_t most = _mm512_reduce_max_epi32(_mm512_max_epi32(magnitudes[0], magnitudes[1]));
  if (zeros < kSpareBits || most >> kSpareBits > kTwoDigits) {
    return {{values[0], values[1]}, top - kUnitBits, DigitKind::kThree};
  }
  return {{_mm512_srai_epi32(values[0], kSpareBits), _mm512_srai_epi32(values[1], kSpareBits)},
          top - kUnitBits + kSpareBits,
          DigitKind::kTwo};
}

// x: two vectors of block `block` of a packed row.
inline void pack_block(const Vec (&x)[2], int64_t block, DigitRow& row) {
  const Integers integers = to_integers(x);
  const int64_t at = block % kChunkBlocks;
  row.kind[at] = integers.kind;
  row.exponent[at] = integers.exponent;
  row.bias[at] = -kCodeBias * _mm512_reduce_add_epi32(add_int(integers.values[0], integers.values[1]));
  const IntVec even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const IntVec odd = add_int(even, broadcast_int(1));
  IntVec rest[2] = {_mm512_permutex2var_epi32(integers.values[0], even, integers.values[1]),
                    _mm512_permutex2var_epi32(integers.values[0], odd, integers.values[1])};
#pragma GCC unroll 3
  for (auto& digit : row.digits) {
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      _mm_store_si128(reinterpret_cast<__m128i*>(digit[i] + at * (kBlock / 2)), _mm512_cvtepi32_epi8(rest[i]));
      const IntVec low = _mm512_srai_epi32(_mm512_slli_epi32(rest[i], 24), 24);
      rest[i] = _mm512_srai_epi32(subtract_int(rest[i], low), 8);
    }
  }
}

// What pack_block was given.
inline void unpack_block(const DigitRow& row, int64_t at, float* x) {
  IntVec values[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
  for (int digit = 2; digit >= 0; --digit) {
    for (int i = 0; i < 2; ++i) {
      const __m128i bytes = _mm_load_si128(reinterpret_cast<const __m128i*>(row.digits[digit][i] + at * (kBlock / 2)));
      values[i] = add_int(_mm512_slli_epi32(values[i], 8), _mm512_cvtepi8_epi32(bytes));
    }
  }
  const Vec unit = power_of_two(broadcast_int(row.exponent[at]));
  Vec halves[2];
  for (int i = 0; i < 2; ++i) {
    halves[i] = row.kind[at] == DigitKind::kGeneral ? as_float(_mm512_slli_epi32(values[i], 16))
                                                    : mul(_mm512_cvtepi32_ps(values[i]), unit);
  }
  const IntVec first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  store(x, _mm512_permutex2var_ps(halves[0], first, halves[1]));
  store(x + kLanes, _mm512_permutex2var_ps(halves[0], add_int(first, broadcast_int(8)), halves[1]));
}

void integer_pack(const PackArgs& args) {
  for (int64_t i = args.begin; i < args.end; ++i) {
    const int64_t at = (args.rows != nullptr ? args.rows[i] : i) * args.stride;
    for (int64_t block = 0; block < args.columns / kBlock; ++block) {
      const int64_t k = at + block * kBlock;
      const auto half = [&](int64_t from) {
        return args.is_f32 ? load_any(static_cast<const float*>(args.x) + from)
                           : load_bf16(static_cast<const uint16_t*>(args.x) + from);
      };
      pack_block({half(k), half(k + kLanes)}, block, digit_rows(args.packed, args.count, block / kChunkBlocks)[i]);
    }
  }
}

void integer_pack_tile(const float* tile, int64_t count, int64_t, int64_t block, void* packed) {
  for (int64_t i = 0; i < count; ++i) {
    const float* from = tile + i * kPanel;
    pack_block({load(from), load(from + kLanes)}, block, digit_rows(packed, count, block / kChunkBlocks)[i]);
  }
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

// The scales of `blocks` blocks of a whole panel as out[block][row]. Whether all are moderate. Meanwhile those of the
// next panel come near.
inline bool spread_scales(const ops::Weight& w, const PanelRows& panel, int64_t block, int64_t blocks, uint8_t* out) {
  const int64_t stride = w.columns / kBlock;
  const uint64_t mask = blocks < kScaleBlocks ? (uint64_t{1} << blocks) - 1 : ~uint64_t{0};
  __m512i furthest = _mm512_setzero_si512();
#pragma GCC unroll 2
  for (int64_t half = 0; half < 2; ++half) {
    const uint8_t* at = w.scale + (panel.first + half * panel.half) * stride + block;
    __m512i rows[16];
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r) {
      rows[r] = _mm512_mask_loadu_epi8(_mm512_set1_epi8(127), mask, at + r * panel.lane * stride);
      prefetch_first(at + (r * panel.lane + 2) * stride);
      const __m512i distance = _mm512_abs_epi8(_mm512_sub_epi8(rows[r], _mm512_set1_epi8(127)));
      furthest = _mm512_max_epu8(furthest, distance);
    }
    transpose_bytes(rows);
#pragma GCC unroll 16
    for (int p = 0; p < 16; ++p) {
      const auto put = [&](int lane, __m128i bytes) {
        _mm_store_si128(reinterpret_cast<__m128i*>(out + (lane * 16 + p) * kPanel + half * 16), bytes);
      };
      put(0, _mm512_castsi512_si128(rows[p]));
      put(1, _mm512_extracti32x4_epi32(rows[p], 1));
      put(2, _mm512_extracti32x4_epi32(rows[p], 2));
      put(3, _mm512_extracti32x4_epi32(rows[p], 3));
    }
  }
  return _mm512_cmpgt_epu8_mask(furthest, _mm512_set1_epi8(kModerate)) == 0;
}

// 2 * value + kCodeBias of the codes in the low halves of bytes.
inline IntVec shifted_values(IntVec bytes) {
  const __m128i values = _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
  return look_up(_mm512_broadcast_i32x4(values), bytes);
}

// Sums of four columns each: lane 4 * block + i.
template <int kDigits>
inline IntVec multiply_codes(IntVec low, IntVec high, const DigitRow& x) {
  IntVec sums = _mm512_setzero_si512();
#pragma GCC unroll 3
  for (int digit = kDigits - 1; digit >= 0; --digit) {
    if (digit < kDigits - 1) sums = _mm512_slli_epi32(sums, 8);
    sums = add_products(sums, low, _mm512_load_si512(x.digits[digit][0]));
    sums = add_products(sums, high, _mm512_load_si512(x.digits[digit][1]));
  }
  return sums;
}

// One chunk of 16 rows of W, added to tile [row of x][16 rows], kPanel apart. Meanwhile the lines `ahead` of it come
// near.
template <int kRows, int kDigits>
inline void add_chunk(const std::byte* w, int64_t lane_bytes, int64_t ahead, const DigitRow* x, const uint8_t* scales,
                      float* tile) {
  IntVec sums[kRows][4];  // of four rows of W: lane 4 * block + row
  const std::byte* coming = w + ahead;
#pragma GCC unroll 4
  for (int four = 0; four < 4; ++four, w += 4 * lane_bytes, coming += 4 * lane_bytes) {
    // Few registers for addresses: hidden from the compiler, which would keep sixteen.
    __asm__("" : "+r"(w), "+r"(coming));
    IntVec low[4];
    IntVec high[4];
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) {
      const IntVec codes = _mm512_loadu_si512(w + r * lane_bytes);
      low[r] = shifted_values(codes);
      high[r] = shifted_values(_mm512_srli_epi16(codes, 4));
      prefetch(coming + r * lane_bytes);
    }
#pragma GCC unroll 2
    for (int t = 0; t < kRows; ++t) {
      IntVec s[4];
#pragma GCC unroll 4
      for (int r = 0; r < 4; ++r) s[r] = multiply_codes<kDigits>(low[r], high[r], x[t]);
      const IntVec first = add_int(_mm512_unpacklo_epi32(s[0], s[1]), _mm512_unpackhi_epi32(s[0], s[1]));
      const IntVec second = add_int(_mm512_unpacklo_epi32(s[2], s[3]), _mm512_unpackhi_epi32(s[2], s[3]));
      sums[t][four] = add_int(_mm512_unpacklo_epi64(first, second), _mm512_unpackhi_epi64(first, second));
    }
  }
#pragma GCC unroll 2
  for (int t = 0; t < kRows; ++t) {
    const IntVec a = _mm512_shuffle_i32x4(sums[t][0], sums[t][1], 0x44);
    const IntVec b = _mm512_shuffle_i32x4(sums[t][2], sums[t][3], 0x44);
    const IntVec c = _mm512_shuffle_i32x4(sums[t][0], sums[t][1], 0xEE);
    const IntVec d = _mm512_shuffle_i32x4(sums[t][2], sums[t][3], 0xEE);
    const IntVec of_block[4] = {_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xDD),
                                _mm512_shuffle_i32x4(c, d, 0x88), _mm512_shuffle_i32x4(c, d, 0xDD)};
    Vec total = load(tile + t * kPanel);
#pragma GCC unroll 4
    for (int block = 0; block < 4; ++block) {
      const Vec sum = _mm512_cvtepi32_ps(add_int(of_block[block], broadcast_int(x[t].bias[block])));
      const __m128i bytes = _mm_load_si128(reinterpret_cast<const __m128i*>(scales + block * kPanel));
      const IntVec scale = add_int(_mm512_cvtepu8_epi32(bytes), broadcast_int(x[t].exponent[block] - 1));
      total = fma(sum, as_float(_mm512_slli_epi32(scale, 23)), total);  // the codes are values counted twice
    }
    store(tile + t * kPanel, total);
  }
}

// The digits that every row of a chunk fits in, of all its blocks at once.
inline DigitKind kind_of(const DigitRow* rows, int64_t count) {
  uint32_t kinds = 0;
  for (int64_t i = 0; i < count; ++i) {
    uint32_t of_row = 0;
    static_assert(sizeof(of_row) == sizeof(rows[i].kind));
    __builtin_memcpy(&of_row, rows[i].kind, sizeof(of_row));
    kinds |= of_row;
  }
  if (kinds == 0) return DigitKind::kTwo;
  constexpr uint32_t kEvery = 0x01010101;
  return (kinds & kEvery * static_cast<uint32_t>(DigitKind::kGeneral)) != 0 ? DigitKind::kGeneral : DigitKind::kThree;
}

// One chunk of one row of every lane.
struct ChunkPlace {
  const std::byte* w;  // the first lane's bytes
  int64_t lane_bytes;
  int64_t ahead;
  const uint8_t* scales;  // [kChunkBlocks][kPanel]
};

template <int kDigits>
inline void add_chunk_rows(const ChunkPlace& place, const DigitRow* x, int64_t count, float* sums) {
  int64_t i = 0;
  for (; i + 2 <= count; i += 2) {
    add_chunk<2, kDigits>(place.w, place.lane_bytes, place.ahead, x + i, place.scales, sums + i * kPanel);
  }
  if (i < count) add_chunk<1, kDigits>(place.w, place.lane_bytes, place.ahead, x + i, place.scales, sums + i * kPanel);
}

// A block of a panel, its rows gathered as a weight of their own. Rows past the end become zero.
inline void add_general_block(const ops::Weight& w, const PanelRows& panel, int64_t block, const float* x,
                              int64_t count, float* sums) {
  alignas(64) std::byte codes[kPanel * kBlock / 2] = {};
  uint8_t scales[kPanel] = {};
  for (int64_t n = 0; n < kPanel; ++n) {
    const int64_t row = panel.first + n % kStreams * panel.lane + n / kStreams * panel.half;
    if (row >= w.rows) continue;
    __builtin_memcpy(codes + n * kBlock / 2, w.data + (row * w.columns + block * kBlock) / 2, kBlock / 2);
    scales[n] = w.scale[row * (w.columns / kBlock) + block];
  }
  const std::byte* data = codes;
  __asm__("" : "+r"(data));  // the general way asks for rows past the end too, which the compiler would report
  add_block({w.format, kPanel, kBlock, data, scales}, 0, 0, x, count, sums);
}

inline void add_general_chunk(const MultiplyArgs& args, const PanelRows& panel, int64_t block, const DigitRow* rows,
                              float* sums) {
  alignas(64) float x[kMostIntegerRows * kBlock];
  for (int64_t b = 0; b < kChunkBlocks; ++b) {
    for (int64_t i = 0; i < args.count; ++i) unpack_block(rows[i], b, x + i * kBlock);
    add_general_block(args.w, panel, block + b, x, args.count, sums);
  }
}

// Chunks [first, first + chunks) of a panel, at most two: neighbouring lines are read together. `scales` are theirs.
inline void add_chunks(const MultiplyArgs& args, const PanelRows& panel, int64_t first, int64_t chunks,
                       const uint8_t* scales, float* sums) {
  const int64_t row_bytes = args.w.columns / 2;
  void* packed = const_cast<void*>(args.packed);
  const std::byte* w = args.w.data + panel.first * row_bytes;
  for (int64_t half = 0; half < 2; ++half) {
    for (int64_t chunk = first; chunk < first + chunks; ++chunk) {
      const DigitRow* x = digit_rows(packed, args.count, chunk);
      const int64_t at = chunk * kCacheLine;
      const ChunkPlace place{w + half * panel.half * row_bytes + at, panel.lane * row_bytes,
                             bytes_ahead(panel, at, row_bytes),
                             scales + (chunk - first) * kChunkBlocks * kPanel + half * kStreams};
      if (kind_of(x, args.count) == DigitKind::kTwo) add_chunk_rows<2>(place, x, args.count, sums + half * kStreams);
      else add_chunk_rows<3>(place, x, args.count, sums + half * kStreams);
    }
  }
}

// sums [count][kPanel].
inline void integer_multiply_panel(const MultiplyArgs& args, int64_t panel, float* sums) {
  alignas(64) uint8_t scales[kScaleBlocks * kPanel];
  const PanelRows rows = panel_rows(args, panel);
  const ops::Weight& w = args.w;
  void* packed = const_cast<void*>(args.packed);
  const int64_t blocks = w.columns / kBlock;
  const auto is_general = [&](int64_t chunk) {
    return kind_of(digit_rows(packed, args.count, chunk), args.count) == DigitKind::kGeneral;
  };
  for (int64_t i = 0; i < args.count * kPanel; i += kLanes) store(sums + i, zero());
  for (int64_t from = 0; from < blocks; from += kScaleBlocks) {
    const int64_t size = blocks - from < kScaleBlocks ? blocks - from : kScaleBlocks;
    const bool is_moderate = panel < whole_panels(args) && spread_scales(w, rows, from, size, scales);
    const int64_t last = (from + size) / kChunkBlocks;
    for (int64_t chunk = from / kChunkBlocks, chunks = 1; chunk < last; chunk += chunks) {
      const int64_t block = chunk * kChunkBlocks;
      chunks = 1;
      if (!is_moderate || is_general(chunk)) {
        add_general_chunk(args, rows, block, digit_rows(packed, args.count, chunk), sums);
        continue;
      }
      if (chunk + 1 < last && !is_general(chunk + 1)) chunks = 2;
      add_chunks(args, rows, chunk, chunks, scales + (block - from) * kPanel, sums);
    }
  }
}

void integer_multiply(const MultiplyArgs& args) {
  alignas(64) float sums[kMostIntegerRows * kPanel];
  bring_streams(args, args.w.columns / 2);
  for (int64_t p = 0; p < args.panels; ++p) {
    integer_multiply_panel(args, p, sums);
    place_panel(sums, args, p);
  }
}

constexpr Multiplier kIntegerMultiplier{integer_packed_bytes, integer_pack, integer_pack_tile, integer_multiply};
