// Products on BF16 tiles: rows of W as the left operand, rows of x as the right one. TDPBF16PS computes the canonical
// order of linear.h natively, for one column and for sixteen, so weights are decoded to BF16 rows and never transposed.
//
// A core multiplies tiles while its vector units decode, as long as nothing makes it wait: what is decoded next goes in
// straight pieces between the products, without branches that depend on sizes; decoded weights stay in the first cache,
// which rows of x pass by (load_passing_tile); what comes from farther away is asked for a chunk before.
#include <immintrin.h>

#include <utility>

#include "cpu/amx_kernels.h"
#include "cpu/avx512_kernels.h"
#include "cpu/decode_tables.h"
#include "cpu/kernels.h"

namespace ps::cpu {
namespace {

#include "cpu/avx512_vectors-inl.h"
#include "cpu/avx512_words-inl.h"
#include "cpu/amx_tiles-inl.h"
#include "cpu/amx_layout-inl.h"
#include "cpu/prefetch-inl.h"
#include "cpu/panel_rows-inl.h"
#include "cpu/amx_decode-inl.h"
#include "cpu/amx_sums-inl.h"
#include "cpu/amx_pairs-inl.h"

// Tiles 0-3: sums [16 rows of W][`size` rows of x]; 4, 5: W; 6, 7: x [16 pairs of K][`size` rows of x].
inline void configure(int64_t size) {
  TileConfig config;
  const int64_t columns[8] = {size, size, size, size, 16, 16, size, size};
  for (int i = 0; i < 8; ++i) {
    config.row_bytes[i] = static_cast<uint16_t>(columns[i] * 4);
    config.rows[i] = 16;
  }
  configure_tiles(config);
}

// At most 16 rows of x: the sums stay in tiles. While one unit of four blocks is multiplied the next one, of this panel
// or of the panel after it, is decoded, a quarter of its rows between two products, so that both go on at once.
void multiply_few(const MultiplyArgs& args) {
  alignas(64) uint16_t decoded[2][kUnit * kPanel * kBlock];
  alignas(64) float sums[2][kGroup * kPanel];
  const int64_t size = args.count;
  const int64_t blocks = (args.w.columns + kBlock - 1) / kBlock;
  const int64_t row_bytes = size * 4;
  const uint32_t* x = static_cast<const uint32_t*>(args.packed);
  const int64_t weight_bytes = args.w.columns * block_bytes(args.w.format) / kBlock;  // of a row
  const auto decode_part = [&args, blocks, weight_bytes](int64_t panel, int64_t block, int64_t part, uint16_t* to) {
    const PanelRows rows = panel_rows(args, panel);
    const int64_t begin = part * kPart;
    const int64_t ahead = bytes_ahead(rows, block * block_bytes(args.w.format), weight_bytes);
    if (block + kUnit <= blocks) decode(args.w, rows, begin, begin + kPart, block, kUnit, ahead, to);
    else decode(args.w, rows, begin, begin + kPart, block, blocks - block, ahead, to);
  };
  // A panel late, when its sums have long left the tiles: nothing waits for them.
  const auto place = [&args, &sums, size](int64_t panel) {
    turn_sums(sums[panel % 2], size, size, sums[panel % 2]);
    place_panel(sums[panel % 2], args, panel);
  };
  bring_streams(args, weight_bytes);
  configure(size);
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
    store_tile<0>(sums[panel % 2], row_bytes);
    store_tile<2>(sums[panel % 2] + 16 * size, row_bytes);
    if (panel > 0) place(panel - 1);
  }
  place(args.panels - 1);
}

// ---- More than 16 rows of x -----------------------------------------------------------------------------------------
// A unit of work is a panel's next kChunk blocks of K times all rows of x, a pair of groups at a time. Meanwhile the
// next unit is decoded into the other buffer, some rows per pair, and the lines of the one after that come near.

constexpr int64_t kNearPairs = 4;  // up to here the sums of a panel stay in the first cache, all K long

// Rows to decode during the next of `pairs` pairs, where `left` of a panel's rows are left.
int64_t rows_to_decode(int64_t left, int64_t pairs) {
  const int64_t share = (left + pairs - 1) / pairs;
  for (const int64_t rows : {0, 2, 4, 8, 12, 16}) {
    if (share <= rows) return rows < left ? rows : left;
  }
  return kPanel;
}

class ManyRows {
 public:
  // The sums go to `out` or, without one, to args.tile.
  ManyRows(const MultiplyArgs& args, const StoreArgs* out)
      : args_(args),
        out_(out),
        blocks_((args.w.columns + kBlock - 1) / kBlock),
        chunks_((blocks_ + kChunk - 1) / kChunk),
        groups_((args.count + kGroup - 1) / kGroup),
        last_size_(args.count - (groups_ - 1) * kGroup),
        is_near_(groups_ / 2 <= kNearPairs),
        plain_(pair_function(args.w.format, 0)) {
    int64_t left = kPanel;
    for (int64_t i = 0; i < kPlan; ++i) {
      const int64_t pairs = groups_ / 2 - i;
      plan_[i].rows = pairs > 0 ? rows_to_decode(left, pairs) : 0;
      plan_[i].function = pair_function(args.w.format, plan_[i].rows);
      left -= plan_[i].rows;
    }
  }

  void run() {
    const int64_t units = chunks_ * args_.panels;
    configure(kGroup);
    decode_unit(0);
    for (int64_t unit = 0; unit < units; ++unit) {
      const bool has_next = unit + 1 < units;
      const bool feeds = has_next && is_whole(unit + 1) && blocks_of(chunk_of(unit)) == kChunk;
      multiply_unit(unit, feeds, feeds ? feed_of(unit + 1, unit + 2 < units ? unit + 2 : unit + 1) : Feed{});
      if (has_next && !feeds) decode_unit(unit + 1);
    }
    leave_sums(held_);
    // A group's panels one after the other: lines next to each other are written together.
    for (int64_t group = 0; group < groups_; ++group) {
      for (int64_t panel = 0; panel < args_.panels; ++panel) finish(panel, group);
    }
  }

 private:
  // Few rows stay with a panel, many with a chunk.
  [[nodiscard]] int64_t chunk_of(int64_t unit) const { return is_near_ ? unit % chunks_ : unit / args_.panels; }
  [[nodiscard]] int64_t panel_of(int64_t unit) const { return is_near_ ? unit / chunks_ : unit % args_.panels; }
  [[nodiscard]] int64_t first_row(int64_t unit) const { return args_.first + panel_of(unit) * kPanel; }
  [[nodiscard]] int64_t blocks_of(int64_t chunk) const {
    const int64_t left = blocks_ - chunk * kChunk;
    return left < kChunk ? left : kChunk;
  }
  [[nodiscard]] bool is_whole(int64_t unit) const {
    return first_row(unit) + kPanel <= args_.w.rows && (chunk_of(unit) + 1) * kChunk * kBlock <= args_.w.columns;
  }
  [[nodiscard]] uint16_t* decoded(int64_t unit) { return decoded_[unit % 2]; }
  void decode_unit(int64_t unit) {
    const int64_t chunk = chunk_of(unit);
    decode_chunk(args_.w, first_row(unit), chunk * kChunk, blocks_of(chunk), decoded(unit));
  }
  [[nodiscard]] const std::byte* data_of(int64_t unit, int64_t row_bytes) const {
    return args_.w.data + first_row(unit) * row_bytes + chunk_of(unit) * kChunk * block_bytes(args_.w.format);
  }
  [[nodiscard]] Feed feed_of(int64_t unit, int64_t later) {
    const int64_t row_bytes = args_.w.columns * block_bytes(args_.w.format) / kBlock;
    Feed feed{data_of(unit, row_bytes), nullptr, row_bytes, 0, decoded(unit), data_of(later, row_bytes)};
    if (args_.w.scale == nullptr) return feed;
    const int64_t blocks = args_.w.columns / kBlock;
    const bool has_row_scales = args_.w.format == ops::WeightFormat::kFp4Block32;
    const int64_t row = has_row_scales ? first_row(unit) : first_row(unit) / kBlock;
    feed.scale = args_.w.scale + row * blocks + chunk_of(unit) * kChunk;
    if (has_row_scales) feed.scale_bytes = blocks;
    return feed;
  }
  [[nodiscard]] int64_t size_of(int64_t group) const { return group == groups_ - 1 ? last_size_ : kGroup; }
  // A short group has no room for whole tiles in the result.
  [[nodiscard]] float* sums_of(int64_t panel, int64_t group) {
    if (size_of(group) < kGroup) return short_sums_[panel];
    return args_.tile + (panel * args_.count + group * kGroup) * kPanel;
  }
  [[nodiscard]] const uint32_t* x_of(int64_t group, int64_t chunk) const {
    void* packed = const_cast<void*>(args_.packed);
    return group_block(packed, args_.w.columns, args_.count, group, chunk * kChunk);
  }
  [[nodiscard]] RowGroup rows_of(int64_t panel, int64_t group, int64_t chunk) {
    return {x_of(group, chunk), sums_of(panel, group)};
  }
  void finish(int64_t panel, int64_t group) {
    const float* sums = sums_of(panel, group);
    if (out_ == nullptr) {
      turn_sums(sums, kGroup, size_of(group), args_.tile + (panel * args_.count + group * kGroup) * kPanel);
      return;
    }
    const int64_t value_bytes = out_->is_f32 ? 4 : 2;
    const int64_t row_bytes = out_->stride * value_bytes;
    const int64_t left = out_->outputs - panel * kPanel;
    std::byte* to = static_cast<std::byte*>(out_->y) + group * kGroup * row_bytes + panel * kPanel * value_bytes;
    const Output out{to, row_bytes, size_of(group), left >= kPanel ? ~0u : (1u << left) - 1u};
    if (out_->is_f32) finish_f32(sums, out);
    else finish_bf16(sums, out);
  }
  void multiply_unit(int64_t unit, bool feeds, Feed feed) {
    const int64_t chunk = chunk_of(unit);
    const int64_t panel = panel_of(unit);
    const int64_t count = blocks_of(chunk);
    Pair pair{decoded(unit), {}, {}, chunk == 0, nullptr, nullptr, 0};
    // A pair's part of the next chunk of x, shared by the panels in steps of two lines per block: about all of it.
    constexpr int64_t kLines = 2 * kInputValues * 4 / kCacheLine;
    pair.next_x_lines = (kLines / args_.panels + 1) / 2 * 2;
    const bool brings_x = !is_near_ && chunk + 1 < chunks_ && panel * pair.next_x_lines < kLines;
    for (int64_t group = 0; group + 1 < groups_; group += 2) {
      pair.a = rows_of(panel, group, chunk);
      pair.b = rows_of(panel, group + 1, chunk);
      if (!is_near_) pair.next_sums = sums_of(panel, group + 2);
      if (brings_x) {
        pair.next_x = reinterpret_cast<const std::byte*>(x_of(group, chunk + 1)) +
                      panel * pair.next_x_lines * kChunk * kCacheLine;
      }
      if (count < kChunk) {
        leave_sums(held_);
        multiply_short_pair(pair, held_, count);
        continue;
      }
      if (!feeds || group / 2 >= kPlan) {
        plain_(pair, held_, feed);
        continue;
      }
      const Step& step = plan_[group / 2];
      step.function(pair, held_, feed);
      feed.data += step.rows * feed.row_bytes;
      if (feed.scale != nullptr) feed.scale += step.rows * feed.scale_bytes;
      feed.later += step.rows * feed.row_bytes;
      feed.out += step.rows * kBlock;
    }
    if (groups_ % 2 == 0) return;
    leave_sums(held_);
    multiply_single(decoded(unit), count, rows_of(panel, groups_ - 1, chunk), chunk == 0);
  }

  const MultiplyArgs args_;
  const StoreArgs* out_;
  const int64_t blocks_;
  const int64_t chunks_;
  const int64_t groups_;
  const int64_t last_size_;
  const bool is_near_;
  const PairFunction plain_;
  // What the first pairs of a unit decode.
  struct Step {
    int64_t rows;
    PairFunction function;
  };
  static constexpr int64_t kPlan = kPanel / 2;
  Step plan_[kPlan];
  HeldSums held_;
  alignas(64) float short_sums_[kPanelGroup][2 * kSumValues];
  alignas(64) uint16_t decoded_[2][kChunk * kPanel * kBlock];
};

}  // namespace

void amx_multiply(const MultiplyArgs& args) {
  if (args.count > kGroup) ManyRows(args, nullptr).run();
  else multiply_few(args);
}

void amx_multiply_store(const MultiplyArgs& args, const StoreArgs& out) {
  if (args.count > kGroup) return ManyRows(args, &out).run();
  multiply_few(args);
  avx512_vnni_kernels().store(out);
}

}  // namespace ps::cpu
