// Sparse attention on AMX-BF16. A block of 64 keys is decoded once, as rows of keys for the scores and as pairs of rows
// for the values. Scores come out as [key][head], so that 16 heads are weighed together, one in each lane; the weights
// are turned into [head][key], the left operand of the values. What the tiles sum is the canonical order of linear.h.
#include <immintrin.h>

#include "cpu/amx_kernels.h"
#include "cpu/decode_tables.h"
#include "cpu/kernels.h"

namespace ps::cpu {
namespace {

#include "cpu/avx512_vectors-inl.h"
#include "cpu/avx512_words-inl.h"
#include "cpu/amx_tiles-inl.h"
#include "cpu/prefetch-inl.h"
#include "cpu/vector_functions-inl.h"

constexpr int64_t kHeads = 16;   // of a tile
constexpr int64_t kRowPad = 64;  // bytes behind a row, so that rows do not share a cache set
constexpr int64_t kKeysAhead = 8;

// Channels of a sum lie in the order that unpacking pairs of rows gives: of 32, 0-3, 8-11, 16-19, 24-27, then the rest.
struct AttendWork {
  std::byte* keys;      // [64 keys], BF16 rows
  std::byte* pairs;     // [32 pairs of keys][dim][2] BF16
  uint32_t* query;      // [groups of heads][dim / 32][16 pairs of dims][16 heads][2] BF16
  float* scores;        // [64 keys][groups * 16]
  uint32_t* weights;    // [2][groups][16 heads][32 keys] BF16
  std::byte* sums;      // [groups * 16 heads], F32 rows
  float* largest;       // [groups * 16]
  float* divisor;       // [groups * 16]
  float* decay;         // [groups * 16]
  int64_t key_stride;   // bytes
  int64_t pair_stride;  // bytes
  int64_t groups;
};

inline int64_t head_groups(int64_t heads) { return (heads + kHeads - 1) / kHeads; }

// Calls take(bytes) for each piece in turn; all are multiples of 64.
template <typename Take>
inline void lay_out(int64_t heads, int64_t dim, const Take& take) {
  const int64_t groups = head_groups(heads);
  take(kKeyBlock * (dim * 2 + kRowPad));
  take(kKeyBlock / 2 * (dim * 4 + kRowPad));
  take(groups * kHeads * dim * 2);
  take(kKeyBlock * groups * kHeads * 4);
  take(kKeyBlock * groups * kHeads * 2);
  take(groups * kHeads * (dim * 4 + kRowPad));
  for (int i = 0; i < 3; ++i) take(groups * kHeads * 4);
}

inline AttendWork attend_work(const AttendArgs& args) {
  std::byte* pieces[9];
  int count = 0;
  std::byte* at = args.work;
  lay_out(args.heads, args.dim, [&](int64_t bytes) {
    pieces[count++] = at;
    at += bytes;
  });
  return {pieces[0],
          pieces[1],
          reinterpret_cast<uint32_t*>(pieces[2]),
          reinterpret_cast<float*>(pieces[3]),
          reinterpret_cast<uint32_t*>(pieces[4]),
          pieces[5],
          reinterpret_cast<float*>(pieces[6]),
          reinterpret_cast<float*>(pieces[7]),
          reinterpret_cast<float*>(pieces[8]),
          args.dim * 2 + kRowPad,
          args.dim * 4 + kRowPad,
          head_groups(args.heads)};
}

// The query as the right operand; heads that do not exist are zero.
void pack_query(const AttendArgs& args, const AttendWork& work) {
  uint32_t* out = work.query;
  for (int64_t first = 0; first < args.heads; first += kHeads) {
    for (int64_t d = 0; d < args.dim; d += kBlock) {
      __m512i rows[16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) {
        const uint16_t* row = static_cast<const uint16_t*>(args.q) + (first + i) * args.dim + d;
        rows[i] = first + i < args.heads ? _mm512_loadu_si512(row) : _mm512_setzero_si512();
      }
      transpose(rows);
#pragma GCC unroll 16
      for (int p = 0; p < 16; ++p) _mm512_store_si512(out + p * kHeads, rows[p]);
      out += 16 * kHeads;
    }
  }
}

// Decodes `count` keys, and zeros up to a multiple of 32.
void gather(const AttendArgs& args, const AttendWork& work, const Key* keys, int64_t count, int64_t left) {
  const DecodeTables& tables = decode_tables();
  const int64_t padded = (count + kBlock - 1) / kBlock * kBlock;
  for (int64_t n = 0; n < padded; n += 2) {
    std::byte* row = work.keys + n * work.key_stride;
    std::byte* pair = work.pairs + n / 2 * work.pair_stride;
    const Key& ahead0 = keys[n + kKeysAhead < left ? n + kKeysAhead : left - 1];
    const Key& ahead1 = keys[n + kKeysAhead + 1 < left ? n + kKeysAhead + 1 : left - 1];
    for (int64_t d = 0; d < args.dim; d += kBlock) {
      const __m512i first = n < count ? key_words(keys[n], args.dim, d, tables) : _mm512_setzero_si512();
      const __m512i second = n + 1 < count ? key_words(keys[n + 1], args.dim, d, tables) : _mm512_setzero_si512();
      if (ahead0.format == KeyFormat::kBF16 || d % 128 == 0) {
        const int64_t at = ahead0.format == KeyFormat::kBF16 ? d * 2 : d / 2;
        prefetch_first(ahead0.row + at);
        prefetch_first(ahead1.row + at);
      }
      _mm512_store_si512(row + d * 2, first);
      _mm512_store_si512(row + work.key_stride + d * 2, second);
      _mm512_store_si512(pair + d * 4, _mm512_unpacklo_epi16(first, second));
      _mm512_store_si512(pair + d * 4 + 64, _mm512_unpackhi_epi16(first, second));
    }
  }
}

// scores[key][head] of `count` keys, rounded up to 32, and of kGroups groups of heads from `group` on.
template <int kGroups>
inline void score(const AttendArgs& args, const AttendWork& work, int64_t group, int64_t count) {
  const int64_t blocks = args.dim / kBlock;
  const int64_t row_bytes = work.groups * kHeads * 4;
  const uint32_t* q0 = work.query + group * blocks * 16 * kHeads;
  const uint32_t* q1 = q0 + (kGroups - 1) * blocks * 16 * kHeads;
  for (int64_t n = 0; n < count; n += kBlock) {
    const std::byte* key = work.keys + n * work.key_stride;
    zero_tile<0>();
    zero_tile<1>();
    zero_tile<2>();
    zero_tile<3>();
    for (int64_t block = 0; block < blocks; ++block) {
      load_tile<4>(key + block * 64, work.key_stride);
      load_tile<6>(q0 + block * 16 * kHeads, 64);
      multiply_tiles<0, 4, 6>();
      load_tile<5>(key + 16 * work.key_stride + block * 64, work.key_stride);
      multiply_tiles<2, 5, 6>();
      if constexpr (kGroups == 2) {
        load_tile<7>(q1 + block * 16 * kHeads, 64);
        multiply_tiles<1, 4, 7>();
        multiply_tiles<3, 5, 7>();
      }
    }
    float* out = work.scores + (n * work.groups + group) * kHeads;
    store_tile<0>(out, row_bytes);
    store_tile<2>(out + 16 * work.groups * kHeads, row_bytes);
    if constexpr (kGroups == 2) {
      store_tile<1>(out + kHeads, row_bytes);
      store_tile<3>(out + 16 * work.groups * kHeads + kHeads, row_bytes);
    }
  }
}

// Scores of one group of heads become weights and, with `decay`, the running maximum and divisor move on.
void weigh(const AttendArgs& args, const AttendWork& work, int64_t group, int64_t count) {
  const int64_t stride = work.groups * kHeads;
  float* scores = work.scores + group * kHeads;
  const Vec before = load(work.largest + group * kHeads);
  Vec now = before;
  for (int64_t n = 0; n < count; ++n) {
    const Vec value = mul(load(scores + n * stride), broadcast(args.scale));
    store(scores + n * stride, value);
    now = maximum(value, now);  // the second operand where the score is NaN
  }
  store(work.largest + group * kHeads, now);
  // Lane i of the contract's sum is lanes[i], with a head in each place.
  Vec lanes[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) lanes[i] = zero();
  const IntVec half = broadcast_int(16);
  for (int64_t first = 0; first < count; first += kBlock) {
    __m512i pairs[16];
#pragma GCC unroll 16
    for (int p = 0; p < 16; ++p) {
      const int64_t n = first + 2 * p;
      Vec even = zero();
      Vec odd = zero();
      if (n < count) even = exp_f32(subtract(load(scores + n * stride), now));
      if (n + 1 < count) odd = exp_f32(subtract(load(scores + (n + 1) * stride), now));
      lanes[2 * p % 16] = add(lanes[2 * p % 16], even);
      lanes[2 * p % 16 + 1] = add(lanes[2 * p % 16 + 1], odd);
      pairs[p] = _mm512_or_si512(bf16_bits(even), _mm512_sllv_epi32(bf16_bits(odd), half));
    }
    transpose(pairs);
    uint32_t* out = work.weights + ((first / kBlock) * work.groups + group) * kHeads * 16;
#pragma GCC unroll 16
    for (int h = 0; h < 16; ++h) _mm512_store_si512(out + h * 16, pairs[h]);
  }
#pragma GCC unroll 4
  for (int width = 8; width > 0; width /= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < width; ++i) lanes[i] = add(lanes[i], lanes[i + width]);
  }
  const Vec decay = exp_f32(subtract(before, now));
  store(work.decay + group * kHeads, decay);
  float* divisor = work.divisor + group * kHeads;
  store(divisor, add(mul(load(divisor), decay), lanes[0]));
}

// sums = sums * decay
void decay_sums(const AttendArgs& args, const AttendWork& work) {
  for (int64_t h = 0; h < args.heads; ++h) {
    if (work.decay[h] == 1.0f) continue;
    const Vec decay = broadcast(work.decay[h]);
    float* row = reinterpret_cast<float*>(work.sums + h * work.pair_stride);
    for (int64_t d = 0; d < args.dim; d += kLanes) store(row + d, mul(load(row + d), decay));
  }
}

// sums += weights * keys for kGroups groups of heads.
template <int kGroups>
inline void add_values(const AttendArgs& args, const AttendWork& work, int64_t group, int64_t count) {
  const int64_t stride = work.pair_stride;
  for (int64_t d = 0; d < args.dim; d += 32) {
    std::byte* sums = work.sums + group * kHeads * stride + d * 4;
    load_tile<0>(sums, stride);
    load_tile<1>(sums + 64, stride);
    if constexpr (kGroups == 2) {
      load_tile<2>(sums + kHeads * stride, stride);
      load_tile<3>(sums + kHeads * stride + 64, stride);
    }
    for (int64_t n = 0; n < count; n += kBlock) {
      const uint32_t* weights = work.weights + (n / kBlock * work.groups + group) * kHeads * 16;
      const std::byte* values = work.pairs + n / 2 * stride + d * 4;
      load_tile<4>(weights, 64);
      load_tile<6>(values, stride);
      multiply_tiles<0, 4, 6>();
      load_tile<7>(values + 64, stride);
      multiply_tiles<1, 4, 7>();
      if constexpr (kGroups == 2) {
        load_tile<5>(weights + kHeads * 16, 64);
        multiply_tiles<2, 5, 6>();
        multiply_tiles<3, 5, 7>();
      }
    }
    store_tile<0>(sums, stride);
    store_tile<1>(sums + 64, stride);
    if constexpr (kGroups == 2) {
      store_tile<2>(sums + kHeads * stride, stride);
      store_tile<3>(sums + kHeads * stride + 64, stride);
    }
  }
}

void attend_to_block(const AttendArgs& args, const AttendWork& work, const Key* keys, int64_t left) {
  const int64_t count = left < kKeyBlock ? left : kKeyBlock;
  gather(args, work, keys, count, left);
  const int64_t paired = work.groups / 2 * 2;
  for (int64_t group = 0; group < paired; group += 2) score<2>(args, work, group, count);
  if (paired < work.groups) score<1>(args, work, paired, count);
  for (int64_t group = 0; group < work.groups; ++group) weigh(args, work, group, count);
  decay_sums(args, work);
  for (int64_t group = 0; group < paired; group += 2) add_values<2>(args, work, group, count);
  if (paired < work.groups) add_values<1>(args, work, paired, count);
}

void store_outputs(const AttendArgs& args, const AttendWork& work) {
  const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  const __m512i second = _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
  for (int64_t h = 0; h < args.heads; ++h) {
    const Vec sink = exp_f32(subtract(broadcast(args.sink[h]), broadcast(work.largest[h])));
    const Vec divisor = add(broadcast(work.divisor[h]), sink);
    const float* row = reinterpret_cast<const float*>(work.sums + h * work.pair_stride);
    uint16_t* o = static_cast<uint16_t*>(args.o) + h * args.dim;
    for (int64_t d = 0; d < args.dim; d += kBlock) {
      const Vec low = load(row + d);
      const Vec high = load(row + d + 16);
      const Vec left = _mm512_permutex2var_ps(low, first, high);
      const Vec right = _mm512_permutex2var_ps(low, second, high);
      store_bf16(o + d, args.count == 0 ? zero() : div(left, divisor));
      store_bf16(o + d + 16, args.count == 0 ? zero() : div(right, divisor));
    }
  }
}

}  // namespace

int64_t amx_attend_bytes(int64_t heads, int64_t dim) {
  int64_t total = 0;
  lay_out(heads, dim, [&](int64_t bytes) { total += bytes; });
  const int64_t exact = avx512_kernels().attend_bytes(heads, dim);
  return total > exact ? total : exact;
}

void amx_attend(const AttendArgs& args) {
  if (args.is_f32) {
    avx512_kernels().attend(args);
    return;
  }
  const AttendWork work = attend_work(args);
  TileConfig config;
  for (int i = 0; i < 8; ++i) {
    config.row_bytes[i] = 64;
    config.rows[i] = 16;
  }
  configure_tiles(config);
  pack_query(args, work);
  for (int64_t h = 0; h < work.groups * kHeads; h += kLanes) {
    store(work.largest + h, broadcast(-1e30f));
    store(work.divisor + h, zero());
  }
  float* sums = reinterpret_cast<float*>(work.sums);
  for (int64_t i = 0; i < work.groups * kHeads * work.pair_stride / 4; i += kLanes) store(sums + i, zero());
  for (int64_t first = 0; first < args.count; first += kKeyBlock) {
    attend_to_block(args, work, args.keys + first, args.count - first);
  }
  store_outputs(args, work);
}

}  // namespace ps::cpu
