// The indexer on AMX-BF16. 32 keys are decoded as rows, the left operand of the tile product, while the 32 before them
// are multiplied. Scores come out as [key][head]; they are rounded and weighed there, and turned as pairs of BF16, so
// that every lane sums the heads of one key.
#include <immintrin.h>

#include "cpu/amx_kernels.h"
#include "cpu/decode_tables.h"
#include "cpu/kernels.h"

namespace ps::cpu {
namespace {

#include "cpu/avx512_vectors-inl.h"
#include "cpu/avx512_words-inl.h"
#include "cpu/amx_tiles-inl.h"

constexpr int64_t kKeys = 32;  // multiplied together
constexpr int64_t kBlockRows = 8;

// One key of `blocks` blocks as runs of 32 BF16, kKeys runs apart.
inline void decode_fp4_key(const DecodeTables& tables, const std::byte* codes, const std::byte* scales, int64_t blocks,
                           uint16_t* out) {
  for (int64_t b = 0; b < blocks; ++b) {
    const uint16_t* table = tables.fp4[static_cast<uint8_t>(scales[b * kBlockRows])];
    _mm512_store_si512(out + b * kKeys * kBlock, fp4_words(codes + b * 32, table));
  }
}
inline void decode_fp8_key(const DecodeTables& tables, const std::byte* codes, uint8_t scale, int64_t blocks,
                           uint16_t* out) {
  const uint16_t* words = tables.fp8[scale];
  const __m512i table[4] = {_mm512_load_si512(words), _mm512_load_si512(words + 32), _mm512_load_si512(words + 64),
                            _mm512_load_si512(words + 96)};
  alignas(32) std::byte row[kBlock];
  for (int64_t b = 0; b < blocks; ++b) {
    __builtin_memcpy(row, codes + b * 256, 16);
    __builtin_memcpy(row + 16, codes + b * 256 + 128, 16);
    _mm512_store_si512(out + b * kKeys * kBlock, fp8_words(row, table));
  }
}

// Blocks [first, first + 4) of the list, as far as it goes, as out[block of dims][32 keys][32].
inline void decode_keys(const ScoreKeysArgs& args, int64_t first, uint16_t* out) {
  const DecodeTables& tables = decode_tables();
  const int64_t dim = args.plane.dim;
  const int64_t last = first + kKeys / kBlockRows < args.count ? first + kKeys / kBlockRows : args.count;
  const bool is_fp4 = args.plane.format == ops::IndexFormat::kFp4;
  for (int64_t i = first; i < last; ++i) {
    const std::byte* values = args.plane.values + args.blocks[i] * (is_fp4 ? 4 * dim : 8 * (dim + 4));
    uint16_t* to = out + (i - first) * kBlockRows * kBlock;
    for (int64_t row = 0; row < kBlockRows; ++row) {
      if (is_fp4) {
        const std::byte* scales = args.plane.scales + args.blocks[i] * (dim / 4) + row;
        decode_fp4_key(tables, values + row % 4 * dim + row / 4 * 16, scales, dim / kBlock, to + row * kBlock);
      } else {
        uint32_t scale;
        __builtin_memcpy(&scale, values + 8 * dim + row * 4, 4);
        decode_fp8_key(tables, values + row * 16, static_cast<uint8_t>(scale >> 23), dim / kBlock, to + row * kBlock);
      }
    }
  }
}

// The products of 32 keys with two groups of 16 heads, left in tiles 0-3: keys 0-15 and 16-31 of the first group, then
// of the second.
inline void multiply_keys(const uint16_t* keys, const uint32_t* query, int64_t blocks) {
  zero_tile<0>();
  zero_tile<1>();
  zero_tile<2>();
  zero_tile<3>();
  for (int64_t b = 0; b < blocks; ++b) {
    load_tile<4>(keys + b * kKeys * kBlock, 64);
    load_tile<6>(query + b * 256, 64);
    load_tile<5>(keys + b * kKeys * kBlock + 16 * kBlock, 64);
    load_tile<7>(query + (blocks + b) * 256, 64);
    multiply_tiles<0, 4, 6>();
    multiply_tiles<1, 5, 6>();
    multiply_tiles<2, 4, 7>();
    multiply_tiles<3, 5, 7>();
  }
}

// Even and odd heads of 32 weights.
struct HeadWeights {
  Vec even;
  Vec odd;
};
inline HeadWeights head_weights(const float* weights) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const Vec low = load_any(weights);
  const Vec high = load_any(weights + 16);
  return {_mm512_permutex2var_ps(low, even, high), _mm512_permutex2var_ps(low, add_int(even, broadcast_int(1)), high)};
}

inline Vec low_words(__m512i words) { return as_float(_mm512_slli_epi32(words, 16)); }
inline Vec high_words(__m512i words) { return as_float(and_int(words, broadcast_int(static_cast<int>(0xFFFF0000u)))); }
inline __m512i narrow(Vec low, Vec high) { return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)); }

// sums of 16 keys += their terms of 32 heads, ascending; dots are [key][16 heads] twice.
inline Vec weigh(const float* first, const float* second, const HeadWeights& weights, Vec sum) {
  __m512i terms[16];
#pragma GCC unroll 16
  for (int key = 0; key < 16; ++key) {
    const Vec low = maximum(zero(), load(first + key * 16));  // NaN stays: the second operand
    const Vec high = maximum(zero(), load(second + key * 16));
    const __m512i dots = narrow(low, high);
    // Dwords 0-7 get heads 4d and 4d + 2, dwords 8-15 heads 4d + 1 and 4d + 3.
    terms[key] = narrow(mul(low_words(dots), weights.even), mul(high_words(dots), weights.odd));
  }
  transpose(terms);
#pragma GCC unroll 8
  for (int d = 0; d < 8; ++d) {
    sum = add(sum, low_words(terms[d]));
    sum = add(sum, low_words(terms[8 + d]));
    sum = add(sum, high_words(terms[d]));
    sum = add(sum, high_words(terms[8 + d]));
  }
  return sum;
}

}  // namespace

void amx_score_keys(const ScoreKeysArgs& args) {
  const int64_t blocks = args.plane.dim / kBlock;
  const int64_t step_values = kKeys * args.plane.dim;
  constexpr int64_t kStep = kKeys / kBlockRows;
  alignas(64) float dots[4][16 * 16];
  TileConfig config;
  for (int i = 0; i < 8; ++i) {
    config.row_bytes[i] = 64;
    config.rows[i] = 16;
  }
  configure_tiles(config);
  auto* keys = reinterpret_cast<uint16_t*>(args.work);
  decode_keys(args, 0, keys);
  for (int64_t first = 0, turn = 0; first < args.count; first += kStep, turn ^= 1) {
    for (int64_t query = 0; query < args.query_count; ++query) {
      const auto* heads = reinterpret_cast<const uint32_t*>(args.queries + query * args.query_stride);
      Vec sums[2] = {zero(), zero()};
      for (int64_t head = 0; head < args.heads; head += kScoreHeads) {
        multiply_keys(keys + turn * step_values, heads + head * blocks * 16, blocks);
        const bool is_first = query == 0 && head == 0;
        if (is_first && first + kStep < args.count) decode_keys(args, first + kStep, keys + (turn ^ 1) * step_values);
        store_tile<0>(dots[0], 64);
        store_tile<1>(dots[1], 64);
        store_tile<2>(dots[2], 64);
        store_tile<3>(dots[3], 64);
        const HeadWeights weights = head_weights(args.weights + query * args.weight_stride + head);
        sums[0] = weigh(dots[0], dots[2], weights, sums[0]);
        sums[1] = weigh(dots[1], dots[3], weights, sums[1]);
      }
      float* scores = args.scores + query * args.score_stride + first * kBlockRows;
      store(scores, sums[0]);
      store(scores + 16, sums[1]);
    }
  }
}

}  // namespace ps::cpu
