// Two groups of 16 rows of x times a chunk of a panel of W on tiles 0-7, while the next weights are decoded and what
// comes from farther away is asked for. Included after amx_decode-inl.h inside the anonymous namespace of an
// instruction-set file.

constexpr int64_t kTileValues = kGroup * kBlock;  // of W, 16 rows
constexpr int64_t kInputValues = 16 * kGroup;     // of x, pairs of BF16
constexpr int64_t kSumValues = kGroup * kGroup;

// A group of rows of x and its sums for one panel.
struct RowGroup {
  const uint32_t* x;
  float* sums;  // [32 rows of W][kGroup]
};

// Two groups times a chunk of decoded blocks of K, to be added to their sums.
struct Pair {
  const uint16_t* w;
  RowGroup a;
  RowGroup b;
  bool is_first;            // chunk: the sums are zero
  const float* next_sums;   // of the next pair, or nullptr: come near
  const std::byte* next_x;  // of the next chunk, or nullptr
  int64_t next_x_lines;     // per block
};

// Whose sums tiles 0-3 hold between two pairs: they leave while the next pair begins. nullptr: nobody's.
struct HeldSums {
  float* a = nullptr;
  float* b = nullptr;
};

// Of tiles 0-3: which group's sums, and of which 16 rows of W.
template <int kTile>
float* tile_sums(float* a, float* b) {
  return (kTile % 2 == 0 ? a : b) + kTile / 2 * kSumValues;
}
template <int kTile>
void take_sums(const Pair& pair) {
  if (pair.is_first) zero_tile<kTile>();
  else load_tile<kTile>(tile_sums<kTile>(pair.a.sums, pair.b.sums), 64);
}
template <int kTile>
[[gnu::always_inline]] inline void exchange_sums(const HeldSums& held, const Pair& pair) {
  if (held.a != nullptr) store_tile<kTile>(tile_sums<kTile>(held.a, held.b), 64);
  take_sums<kTile>(pair);
}
inline void leave_sums(HeldSums& held) {
  if (held.a == nullptr) return;
  store_tile<0>(tile_sums<0>(held.a, held.b), 64);
  store_tile<1>(tile_sums<1>(held.a, held.b), 64);
  store_tile<2>(tile_sums<2>(held.a, held.b), 64);
  store_tile<3>(tile_sums<3>(held.a, held.b), 64);
  held = {};
}

// Lines of the next sums and of the next x, the share of one block.
[[gnu::always_inline]] inline void bring_next(const Pair& pair, int64_t block) {
  constexpr int64_t kLines = 2 * kGroup * kPanel * 4 / kCacheLine / kChunk;
  if (pair.next_sums != nullptr) {
    const std::byte* sums = reinterpret_cast<const std::byte*>(pair.next_sums) + block * kLines * kCacheLine;
#pragma GCC unroll 8
    for (int64_t line = 0; line < kLines; ++line) prefetch_first(sums + line * kCacheLine);
  }
  if (pair.next_x == nullptr) return;
  const std::byte* x = pair.next_x + block * pair.next_x_lines * kCacheLine;
  for (int64_t line = 0; line < pair.next_x_lines; line += 2) {
    prefetch(x + line * kCacheLine);
    prefetch(x + (line + 1) * kCacheLine);
  }
}

// One block of a whole chunk; its operands are in tiles 4-7, those of the next block are loaded as soon as a tile is
// free. Before the first one sums change places, each tile right before its product: a core renames tiles, so that
// nothing waits for those that leave.
template <ops::WeightFormat kFormat, int kRows, int64_t kStep>
[[gnu::always_inline]] inline void multiply_step(const Pair& pair, const HeldSums& held, bool exchanges,
                                                 const Feed& feed, const DecodeTables& tables) {
  constexpr bool kIsFirst = kStep == 0;
  constexpr bool kIsLast = kStep + 1 == kChunk;
  const uint16_t* w = pair.w + (kStep + 1) * 2 * kTileValues;
  if (kIsFirst && exchanges) exchange_sums<0>(held, pair);
  multiply_tiles<0, 4, 6>();
  if (kIsFirst && exchanges) exchange_sums<1>(held, pair);
  multiply_tiles<1, 4, 7>();
  if constexpr (!kIsLast) load_tile<4>(w, 64);
  if constexpr (kRows > 0) decode_share<kFormat, kRows, 2 * kStep, 2 * kChunk>(feed, tables);
  if (kIsFirst && exchanges) exchange_sums<2>(held, pair);
  multiply_tiles<2, 5, 6>();
  if constexpr (!kIsLast) load_passing_tile<6>(pair.a.x + (kStep + 1) * kInputValues, 64);
  if (kIsFirst && exchanges) exchange_sums<3>(held, pair);
  multiply_tiles<3, 5, 7>();
  if constexpr (!kIsLast) {
    load_passing_tile<7>(pair.b.x + (kStep + 1) * kInputValues, 64);
    load_tile<5>(w + kTileValues, 64);
  }
  if constexpr (kRows > 0) decode_share<kFormat, kRows, 2 * kStep + 1, 2 * kChunk>(feed, tables);
  bring_next(pair, kStep);
  if constexpr (kRows > 0) bring_rows<kFormat, kRows>(feed, kStep);
}

// A whole chunk, whose sums are held then; meanwhile the next kRows rows of the feed are decoded.
template <ops::WeightFormat kFormat, int kRows>
void multiply_pair(const Pair& at, HeldSums& held, const Feed& from) {
  const Pair pair = at;  // copies: the compiler takes every store for one that could change them
  const HeldSums before = held;
  const Feed feed = from;
  const DecodeTables& tables = decode_tables();
  const bool exchanges = before.a != pair.a.sums || pair.is_first;
  load_tile<4>(pair.w, 64);
  load_passing_tile<6>(pair.a.x, 64);
  load_passing_tile<7>(pair.b.x, 64);
  load_tile<5>(pair.w + kTileValues, 64);
  [&]<int64_t... kStep>(std::integer_sequence<int64_t, kStep...>) __attribute__((always_inline)) {
    (multiply_step<kFormat, kRows, kStep>(pair, before, exchanges, feed, tables), ...);
  }(std::make_integer_sequence<int64_t, kChunk>());
  held = {pair.a.sums, pair.b.sums};
}

// A chunk of `count` blocks. REQUIRES: no sums are held.
void multiply_short_pair(const Pair& pair, HeldSums& held, int64_t count) {
  take_sums<0>(pair);
  take_sums<1>(pair);
  take_sums<2>(pair);
  take_sums<3>(pair);
  for (int64_t block = 0; block < count; ++block) {
    load_tile<4>(pair.w + block * 2 * kTileValues, 64);
    load_passing_tile<6>(pair.a.x + block * kInputValues, 64);
    load_passing_tile<7>(pair.b.x + block * kInputValues, 64);
    multiply_tiles<0, 4, 6>();
    multiply_tiles<1, 4, 7>();
    load_tile<5>(pair.w + (block * 2 + 1) * kTileValues, 64);
    multiply_tiles<2, 5, 6>();
    multiply_tiles<3, 5, 7>();
  }
  held = {pair.a.sums, pair.b.sums};
}

// The last group, where it has no other. REQUIRES: no sums are held.
void multiply_single(const uint16_t* w, int64_t count, const RowGroup& group, bool is_first) {
  if (is_first) {
    zero_tile<0>();
    zero_tile<2>();
  } else {
    load_tile<0>(group.sums, 64);
    load_tile<2>(group.sums + kSumValues, 64);
  }
  for (int64_t block = 0; block < count; ++block) {
    load_passing_tile<6>(group.x + block * kInputValues, 64);
    load_tile<4>(w + block * 2 * kTileValues, 64);
    multiply_tiles<0, 4, 6>();
    load_tile<5>(w + (block * 2 + 1) * kTileValues, 64);
    multiply_tiles<2, 5, 6>();
  }
  store_tile<0>(group.sums, 64);
  store_tile<2>(group.sums + kSumValues, 64);
}

using PairFunction = void (*)(const Pair& pair, HeldSums& held, const Feed& feed);

template <ops::WeightFormat kFormat>
PairFunction pair_function(int64_t rows) {
  switch (rows) {
    case 2: return multiply_pair<kFormat, 2>;
    case 4: return multiply_pair<kFormat, 4>;
    case 8: return multiply_pair<kFormat, 8>;
    case 12: return multiply_pair<kFormat, 12>;
    case 16: return multiply_pair<kFormat, 16>;
    case 32: return multiply_pair<kFormat, 32>;
    case 0: return multiply_pair<kFormat, 0>;
    default: __builtin_trap();  // rows_to_decode() knows no other
  }
}

PairFunction pair_function(ops::WeightFormat format, int64_t rows) {
  switch (format) {
    case ops::WeightFormat::kFp8Block32: return pair_function<ops::WeightFormat::kFp8Block32>(rows);
    case ops::WeightFormat::kFp4Block32: return pair_function<ops::WeightFormat::kFp4Block32>(rows);
    case ops::WeightFormat::kBF16:
    case ops::WeightFormat::kF32: break;
  }
  return pair_function<ops::WeightFormat::kBF16>(rows);
}
