// The byte totals and address vectors of runtime.md 1.3-1.7 on the published config, and geometries of other dims.
#include "cache/geometry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "checkpoint/config.h"
#include "checkpoint/topology.h"

namespace ps::cache {
namespace {

using checkpoint::Config;
using checkpoint::LayerTopology;
using checkpoint::TextConfig;
using ops::IndexFormat;
using testing::HasSubstr;

constexpr CacheFormat kBF16Fp8{MainFormat::kBF16, IndexFormat::kFp8};
constexpr CacheFormat kBF16Fp4{MainFormat::kBF16, IndexFormat::kFp4};
constexpr CacheFormat kPackedFp8{MainFormat::kFp4, IndexFormat::kFp8};
constexpr CacheFormat kPackedFp4{MainFormat::kFp4, IndexFormat::kFp4};
constexpr CacheFormat kFormats[] = {kBF16Fp8, kBF16Fp4, kPackedFp8, kPackedFp4};

const TextConfig& published() {
  static const TextConfig text = [] {
    Result<std::string> file = read_file(std::string(PAGESTATE_TEST_DATA) + "/data/config.json", 1 << 20);
    EXPECT_TRUE(file.ok()) << file.status().to_string();
    Result<Config> config = checkpoint::parse_config(file.value());
    EXPECT_TRUE(config.ok()) << config.status().to_string();
    return config.value().text_config;
  }();
  return text;
}

Result<CacheGeometry> geometry_of(const TextConfig& text, const CacheOptions& options) {
  return CacheGeometry::create(text, checkpoint::layer_topology(text), options);
}

CacheGeometry make(const CacheOptions& options, const TextConfig& text = published()) {
  Result<CacheGeometry> geometry = geometry_of(text, options);
  EXPECT_TRUE(geometry.ok()) << geometry.status().to_string();
  return std::move(geometry).value();
}

PoolLayout place(const CacheGeometry& geometry, int64_t pages, int64_t slots) {
  Result<PoolLayout> layout = PoolLayout::create(geometry, pages, slots);
  EXPECT_TRUE(layout.ok()) << layout.status().to_string();
  return std::move(layout).value();
}

// A pool start for address arithmetic; nothing is ever read there.
std::byte* fake_base() { return reinterpret_cast<std::byte*>(uintptr_t{1} << 40); }
int64_t offset(const void* address) { return static_cast<const std::byte*>(address) - fake_base(); }

// A model of small dims with all layer kinds: owners of ratio 2 and 1, an index source that owns nothing, Engram and
// drafts.
TextConfig small() {
  TextConfig text = published();
  text.head_dim = 64;
  text.qk_rope_head_dim = 32;
  text.index_head_dim = 32;
  text.num_hidden_layers = 6;
  text.num_nextn_predict_layers = 2;
  text.compress_ratios = {0, 2, 2, 1, 1, 1, 0, 0};
  text.kv_source_layer_ids = {1, 3};
  text.index_source_layer_ids = {1, 3, 5};
  text.candidate_source_layer_id = 3;
  text.engram_layer_ids = {1};
  text.engram_num_embeddings = {660};
  text.dspark_target_layer_ids = {3, 4};
  text.dspark_block_size = 3;
  text.sliding_window = 40;
  return text;
}

TEST(CacheGeometry, PageTotalsOfThePublishedModel) {
  struct Row {
    int64_t page_tokens, totals[4];
  };
  constexpr Row kRows[] = {
      {16, {46'240, 43'680, 16'800, 14'240}},      {32, {92'480, 87'360, 33'600, 28'480}},
      {64, {184'960, 174'720, 67'200, 56'960}},    {128, {369'920, 349'440, 134'400, 113'920}},
      {256, {739'840, 698'880, 268'800, 227'840}},
  };
  constexpr int64_t kPerToken[] = {2890, 2730, 1050, 890};
  for (const Row& row : kRows) {
    for (size_t format = 0; format < 4; ++format) {
      const CacheGeometry geometry = make({.format = kFormats[format], .page_tokens = row.page_tokens});
      EXPECT_EQ(geometry.paged_bytes(), row.totals[format]) << row.page_tokens;
      EXPECT_EQ(geometry.paged_bytes(), row.page_tokens * kPerToken[format]) << row.page_tokens;
    }
  }
}

TEST(CacheGeometry, PartsOfAPageOf256Tokens) {
  const CacheGeometry geometry = make({.format = kBF16Fp8});
  EXPECT_EQ(geometry.page_bytes, 655'360);
  EXPECT_EQ(geometry.index_page_bytes, 84'480);
  EXPECT_EQ(geometry.main_row_bytes, 1024);
  EXPECT_EQ(geometry.index_row_bytes, 132);
  ASSERT_EQ(geometry.owners.size(), 4u);
  constexpr int kLayers[] = {2, 8, 14, 20};
  constexpr int32_t kRows[] = {128, 128, 128, 256};
  for (size_t owner = 0; owner < 4; ++owner) {
    EXPECT_EQ(geometry.owners[owner].layer, kLayers[owner]);
    EXPECT_EQ(geometry.owners[owner].rows_per_page, kRows[owner]);
    EXPECT_EQ(geometry.owners[owner].ratio, owner < 3 ? 2 : 1);
    EXPECT_EQ(geometry.owners[owner].main_offset_bytes, static_cast<int64_t>(owner) * 128 * 1024);
    EXPECT_EQ(geometry.owners[owner].index_bytes(), owner < 3 ? 16'896 : 33'792);
    EXPECT_EQ(geometry.owners[owner].index_scale_bytes, 0);
  }
}

TEST(CacheGeometry, RowFormats) {
  const CacheGeometry bf16 = make({.format = kBF16Fp4});
  EXPECT_EQ(bf16.window_row_bytes, 1024);
  EXPECT_EQ(bf16.index_row_bytes, 68);
  EXPECT_EQ(bf16.owners[3].index_value_bytes, 256 * 64);
  EXPECT_EQ(bf16.owners[3].index_scale_bytes, 256 * 4);
  const CacheGeometry packed = make({.format = kPackedFp4});
  EXPECT_EQ(packed.main_row_bytes, 288);
  EXPECT_EQ(packed.window_row_bytes, 528);
}

TEST(CacheGeometry, MillionTokens) {
  constexpr double kGiB = 1 << 30;
  constexpr int64_t kTokens = 1'048'576;
  const CacheGeometry bf16 = make({.format = kBF16Fp8});
  const CacheGeometry packed = make({.format = kPackedFp8});
  EXPECT_NEAR(static_cast<double>(bf16.pages_for(kTokens) * bf16.paged_bytes()) / kGiB, 2.822, 0.0005);
  EXPECT_NEAR(static_cast<double>(packed.pages_for(kTokens) * packed.paged_bytes()) / kGiB, 1.025, 0.0005);
  EXPECT_EQ(bf16.pages_for(0), 0);
  EXPECT_EQ(bf16.pages_for(1), 1);
  EXPECT_EQ(bf16.pages_for(257), 2);
}

TEST(CacheGeometry, StateTotals) {
  struct Row {
    CacheFormat format;
    int64_t spec, layers, ring, compressor, bytes;
    int64_t slot_units[2], image_units[2];  // of 128 and 256 tokens: of a whole slot (runtime.md 1.4), of an image
  };
  // runtime.md 1.4 counts PAGEs with an FP8 index plane. An image lacks the compressor rings.
  constexpr Row kRows[] = {
      {kBF16Fp8, 0, 40, 128, 2, 5'276'672, {15, 8}, {15, 8}},
      {kBF16Fp8, 5, 43, 133, 7, 5'971'968, {17, 9}, {16, 8}},
      {kPackedFp8, 0, 40, 128, 2, 2'736'384, {21, 11}, {21, 11}},
      {kPackedFp8, 5, 43, 133, 7, 3'134'720, {24, 12}, {23, 12}},
  };
  for (const Row& row : kRows) {
    const CacheGeometry at128 = make({.format = row.format, .page_tokens = 128, .spec_tokens = row.spec});
    const CacheGeometry at256 = make({.format = row.format, .page_tokens = 256, .spec_tokens = row.spec});
    EXPECT_EQ(at128.layers, row.layers);
    EXPECT_EQ(at128.ring_slots, row.ring);
    EXPECT_EQ(at128.compressor_slots, row.compressor);
    EXPECT_EQ(at128.state_bytes, row.bytes);
    EXPECT_EQ(at256.state_bytes, row.bytes);
    for (size_t i = 0; i < 2; ++i) {
      const CacheGeometry& geometry = i == 0 ? at128 : at256;
      EXPECT_EQ((geometry.state_bytes + geometry.paged_bytes() - 1) / geometry.paged_bytes(), row.slot_units[i]);
      EXPECT_EQ(geometry.pages_per_state_image(), row.image_units[i]);
    }
  }
}

TEST(CacheGeometry, StateFields) {
  const CacheGeometry geometry = make({.format = kBF16Fp8});
  EXPECT_EQ(geometry.window_layer_bytes, 128 * 1024);
  EXPECT_EQ(geometry.compress_kv_offset, 5'242'880);
  EXPECT_EQ(geometry.compressor_owner_bytes, 4096);
  EXPECT_EQ(geometry.compress_score_offset, 5'242'880 + 16'384);
  EXPECT_EQ(geometry.cursor_offset, 5'242'880 + 2 * 16'384);
  EXPECT_EQ(geometry.history, 3);
  EXPECT_EQ(geometry.state_bytes / 1024, 5153);
  const CacheGeometry packed = make({.format = kPackedFp4, .spec_tokens = 5});
  for (const int64_t at : {packed.compress_kv_offset, packed.compress_score_offset, packed.cursor_offset,
                           packed.state_bytes, packed.page_bytes}) {
    EXPECT_EQ(at % 256, 0) << at;
  }
}

// runtime.md 1.7: BF16 + FP8 index, B = 128, 10 PAGEs, no draft.
class AddressVectors : public testing::Test {
 protected:
  const PoolLayout layout_ = place(make({.format = kBF16Fp8, .page_tokens = 128}), 10, 6);
  const std::vector<int32_t> table_ = {7, 2, 9};
};

TEST_F(AddressVectors, PlaneStarts) {
  EXPECT_EQ(layout_.geometry.page_bytes, 327'680);
  EXPECT_THAT(layout_.index_start, testing::ElementsAre(3'276'800, 3'361'792, 3'446'784, 3'531'776));
  EXPECT_EQ(layout_.state_start, 3'700'736);
  EXPECT_EQ(layout_.total_bytes, 3'700'736 + 6 * 5'276'672);
}

TEST_F(AddressVectors, MainAndIndexRows) {
  struct Row {
    int owner;
    int64_t position, row, main_row, main_byte, block, in_block, dim37_byte, scale_byte;
  };
  constexpr Row kRows[] = {
      {0, 0, 0, 2240, 2'293'760, 56, 0, 3'336'197, 3'336'960},
      {1, 301, 150, 2966, 3'037'184, 74, 6, 3'440'293, 3'440'984},
      {2, 255, 127, 831, 850'944, 23, 7, 3'471'445, 3'472'124},
      {3, 128, 128, 832, 851'968, 32, 0, 3'565'829, 3'566'592},
      {3, 300, 300, 3116, 3'190'784, 149, 4, 3'689'445, 3'690'160},
  };
  for (const Row& row : kRows) {
    const ops::MainPlane main = layout_.main_plane(fake_base(), row.owner);
    const ops::IndexPlane index = layout_.index_plane(fake_base(), row.owner);
    ASSERT_EQ(row.position / main.ratio, row.row);
    EXPECT_EQ(offset(main.row(table_.data(), row.row)), row.main_byte) << row.position;
    EXPECT_EQ(row.main_byte / 1024, row.main_row);
    const int64_t flat = index.flat_row(table_.data(), row.row);
    EXPECT_EQ(flat / 8, row.block);
    EXPECT_EQ(flat % 8, row.in_block);
    const int64_t block_start = offset(index.values) + flat / 8 * 1056;
    EXPECT_EQ(block_start + ops::fp8_index_offset(flat % 8, 37), row.dim37_byte);
    EXPECT_EQ(block_start + 8 * 128 + 4 * (flat % 8), row.scale_byte);
    EXPECT_EQ(index.scales, nullptr);
  }
}

TEST_F(AddressVectors, WindowRows) {
  struct Row {
    int32_t slot;
    int layer;
    int32_t position;
    int64_t row;
  };
  for (const Row& row : {Row{0, 0, 0, 3614}, Row{5, 3, 300, 29'807}, Row{1, 39, 127, 13'886}}) {
    const ops::WindowRing ring = layout_.window_ring(fake_base(), row.layer);
    EXPECT_EQ(offset(ring.row(row.slot, row.position)), row.row * 1024);
  }
}

TEST_F(AddressVectors, CompressorRows) {
  const ops::CompressorRing ring = layout_.compressor_ring(fake_base(), 3);
  const int64_t slot = 3'700'736 + 2 * 5'276'672;
  EXPECT_EQ(offset(ring.kv_row(2, 301)), slot + 5'242'880 + 3 * 4096 + 2048);
  EXPECT_EQ(offset(ring.score_row(2, 300)), slot + 5'242'880 + 16'384 + 3 * 4096);
}

TEST(CacheGeometry, InterleavedIndexBytes) {
  EXPECT_EQ(ops::fp4_index_offset(5, 17, 128), 177);
  EXPECT_EQ(ops::fp4_index_offset(7, 63, 128), 511);
  EXPECT_EQ(ops::fp4_index_offset(2, 40, 128), 328);
  EXPECT_EQ(ops::fp4_index_scale_offset(5, 1), 13);
  EXPECT_EQ(ops::fp4_index_scale_offset(7, 3), 31);
  EXPECT_EQ(ops::fp4_index_scale_offset(2, 2), 18);
  for (const int64_t dim : {32, 64, 128, 160}) {
    std::set<int64_t> fp8, fp4, scales;
    for (int64_t row = 0; row < 8; ++row) {
      for (int64_t d = 0; d < dim; ++d) fp8.insert(ops::fp8_index_offset(row, d));
      for (int64_t byte = 0; byte < dim / 2; ++byte) fp4.insert(ops::fp4_index_offset(row, byte, dim));
      for (int64_t group = 0; group < dim / 32; ++group) scales.insert(ops::fp4_index_scale_offset(row, group));
    }
    EXPECT_EQ(std::ssize(fp8), 8 * dim);
    EXPECT_EQ(*fp8.rbegin(), 8 * dim - 1);
    EXPECT_EQ(std::ssize(fp4), 4 * dim);
    EXPECT_EQ(*fp4.rbegin(), 4 * dim - 1);
    EXPECT_EQ(std::ssize(scales), dim / 4);
    EXPECT_EQ(*scales.rbegin(), dim / 4 - 1);
  }
}

TEST(CacheGeometry, Fp4IndexPlaneHoldsValuesThenScales) {
  const PoolLayout layout = place(make({.format = kPackedFp4, .page_tokens = 32}), 5, 2);
  ASSERT_EQ(layout.index_start.size(), 4u);
  for (size_t owner = 0; owner < 4; ++owner) {
    const int64_t rows = 5 * layout.geometry.owners[owner].rows_per_page;
    const ops::IndexPlane plane = layout.index_plane(fake_base(), static_cast<int>(owner));
    EXPECT_EQ(offset(plane.values), layout.index_start[owner]);
    EXPECT_EQ(layout.index_start[owner] % 256, 0);
    EXPECT_EQ(offset(plane.scales), layout.index_start[owner] + rows * 64);
    const int64_t end = layout.scale_start[owner] + rows * 4;
    const int64_t next = owner + 1 < 4 ? layout.index_start[owner + 1] : layout.state_start;
    EXPECT_GE(next, end);
    EXPECT_LT(next, end + 256);
  }
}

TEST(CacheGeometry, AddressesBeyondTwoGiB) {
  constexpr int64_t kPages = 4'000'000;
  const PoolLayout layout = place(make({.format = kBF16Fp4}), kPages, 1000);
  const int32_t table[] = {3'999'999};
  const ops::MainPlane main = layout.main_plane(fake_base(), 3);
  EXPECT_EQ(offset(main.row(table, 255)), 3'999'999 * int64_t{655'360} + 3 * 131'072 + 255 * 1024);
  const ops::IndexPlane index = layout.index_plane(fake_base(), 3);
  EXPECT_EQ(index.flat_row(table, 255), 1'023'999'999);
  EXPECT_EQ(offset(index.values), kPages * (int64_t{655'360} + 3 * 8704));
  EXPECT_EQ(offset(index.scales), offset(index.values) + kPages * 256 * 64);
  EXPECT_EQ(layout.state_start, kPages * int64_t{698'880});
  const ops::WindowRing ring = layout.window_ring(fake_base(), 39);
  EXPECT_EQ(offset(ring.row(999, 1'048'575)), layout.state_start + 999 * int64_t{5'276'672} + (39 * 128 + 127) * 1024);
}

TEST(CacheGeometry, DraftStagesHaveRingsAfterTheBackbone) {
  const PoolLayout layout = place(make({.format = kBF16Fp4, .spec_tokens = 5}), 1, 1);
  const ops::WindowRing ring = layout.window_ring(fake_base(), 42);
  EXPECT_EQ(ring.ring_slots, 133);
  EXPECT_EQ(offset(ring.base), layout.state_start + 42 * 133 * 1024);
  EXPECT_EQ(layout.compressor_ring(fake_base(), 0).ring_slots, 7);
}

TEST(CacheGeometry, SmallDims) {
  const TextConfig text = small();
  for (const CacheFormat& format : kFormats) {
    for (const int64_t spec : {0, 3}) {
      const PoolLayout layout = place(make({.format = format, .page_tokens = 16, .spec_tokens = spec}, text), 3, 2);
      const CacheGeometry& geometry = layout.geometry;
      const bool packed = format.main == MainFormat::kFp4;
      EXPECT_EQ(geometry.main_row_bytes, packed ? 36 : 128);
      EXPECT_EQ(geometry.window_row_bytes, packed ? 66 : 128);
      EXPECT_EQ(geometry.index_row_bytes, format.index == IndexFormat::kFp4 ? 17 : 36);
      EXPECT_EQ(geometry.layers, spec > 0 ? 8 : 6);
      EXPECT_EQ(geometry.ring_slots, 40 + spec);
      EXPECT_EQ(geometry.compressor_slots, 2 + spec);
      EXPECT_EQ(geometry.owners[1].main_offset_bytes, 8 * geometry.main_row_bytes);
      EXPECT_EQ(geometry.page_bytes, (24 * geometry.main_row_bytes + geometry.alignment_bytes - 1) /
                                         geometry.alignment_bytes * geometry.alignment_bytes);
      EXPECT_EQ(geometry.index_page_bytes, 24 * geometry.index_row_bytes);
      EXPECT_EQ(layout.state_start % geometry.alignment_bytes, 0);
      EXPECT_EQ(layout.total_bytes, layout.state_start + 2 * geometry.state_bytes);
    }
  }
}

TEST(CacheGeometry, ModelWithoutOwnersHasEmptyPages) {
  TextConfig text = small();
  text.compress_ratios = {0, 0, 0, 0, 0, 0, 0, 0};
  text.kv_source_layer_ids = {};
  text.index_source_layer_ids = {};
  text.candidate_source_layer_id = -1;
  text.engram_layer_ids = {};
  const CacheGeometry geometry = make({}, text);
  EXPECT_EQ(geometry.paged_bytes(), 0);
  EXPECT_EQ(geometry.max_pages(1 << 30, 1), 0);
  EXPECT_EQ(geometry.pages_per_state_image(), 0);
  EXPECT_EQ(geometry.history, 0);
  EXPECT_EQ(geometry.state_bytes, 6 * 40 * 128 + 1024);
  const PoolLayout layout = place(geometry, 7, 1);
  EXPECT_EQ(layout.total_bytes, geometry.state_bytes);
}

TEST(CacheGeometry, MaxPagesIsExact) {
  for (const CacheFormat& format : kFormats) {
    for (const TextConfig& text : {published(), small()}) {
      const CacheGeometry geometry = make({.format = format, .page_tokens = 16}, text);
      for (const int64_t slots : {0, 1, 3}) {
        for (const int64_t bytes : {int64_t{20} << 20, (int64_t{20} << 20) + 12'345, int64_t{64} << 30}) {
          const int64_t pages = geometry.max_pages(bytes, slots);
          EXPECT_LE(place(geometry, pages, slots).total_bytes, bytes);
          EXPECT_GT(place(geometry, pages + 1, slots).total_bytes, bytes);
        }
      }
      EXPECT_EQ(geometry.max_pages(geometry.state_bytes - 1, 1), 0);
      EXPECT_EQ(geometry.max_pages(-1, 0), 0);
      EXPECT_EQ(geometry.max_pages(INT64_MAX, INT64_MAX), 0);
      EXPECT_EQ(geometry.max_pages(INT64_MAX, 1), INT32_MAX);
    }
  }
}

TEST(CacheGeometry, RefusesIllegalPages) {
  for (const int64_t page : {-16, 0, 1, 7, 8, 15, 24, 127, 129, 255, 65'552}) {
    const Result<CacheGeometry> geometry = geometry_of(published(), {.page_tokens = page});
    ASSERT_FALSE(geometry.ok()) << page;
    EXPECT_EQ(geometry.status().code(), Code::kInvalid);
    EXPECT_THAT(geometry.status().message(), HasSubstr("page_tokens " + std::to_string(page)));
    EXPECT_THAT(geometry.status().message(), HasSubstr("multiple of 16"));
  }
  TextConfig text = small();
  text.compress_ratios = {0, 0, 0, 1, 1, 1, 0, 0};
  text.kv_source_layer_ids = {3};
  text.index_source_layer_ids = {3, 5};
  EXPECT_TRUE(geometry_of(text, {.page_tokens = 24}).ok());  // 8-row blocks of ratio 1 alone
  EXPECT_FALSE(geometry_of(text, {.page_tokens = 12}).ok());
}

TEST(CacheGeometry, RefusesIllegalDimsAndDraftWidths) {
  const auto message = [](const TextConfig& text, const CacheOptions& options) {
    const LayerTopology topology = checkpoint::layer_topology(small());
    const Result<CacheGeometry> geometry = CacheGeometry::create(text, topology, options);
    EXPECT_FALSE(geometry.ok());
    return std::string(geometry.status().message());
  };
  const auto with = [](const std::function<void(TextConfig&)>& change) {
    TextConfig text = small();
    change(text);
    return text;
  };
  const CacheOptions packed{.format = kPackedFp4};
  EXPECT_THAT(message(with([](TextConfig& text) { text.head_dim = 48; }), packed), HasSubstr("multiple of 32"));
  EXPECT_THAT(message(with([](TextConfig& text) { text.head_dim = 96; }), {}),
              HasSubstr("32, 64 or a multiple of 128"));
  EXPECT_THAT(message(with([](TextConfig& text) { text.index_head_dim = 40; }), {}), HasSubstr("index_head_dim 40"));
  EXPECT_THAT(message(with([](TextConfig& text) { text.sliding_window = 0; }), {}), HasSubstr("sliding_window 0"));
  EXPECT_THAT(message(with([](TextConfig& text) { text.candidate_block_size = 16; }), {}), HasSubstr("must be 8"));
  EXPECT_THAT(message(small(), {.spec_tokens = 5}), HasSubstr("0 or the draft width of the checkpoint, 3"));
  EXPECT_THAT(message(small(), {.spec_tokens = -3}), HasSubstr("spec_tokens -3"));
  EXPECT_THAT(message(with([](TextConfig& text) { text.num_nextn_predict_layers = 0; }), {.spec_tokens = 3}),
              HasSubstr("no draft stages"));
  EXPECT_TRUE(geometry_of(with([](TextConfig& text) { text.head_dim = 96; }), packed).ok());
}

TEST(CacheGeometry, RefusesSumsBeyondInt64) {
  const CacheGeometry geometry = make({.page_tokens = 65'536});
  EXPECT_FALSE(PoolLayout::create(geometry, -1, 0).ok());
  EXPECT_FALSE(PoolLayout::create(geometry, 0, int64_t{1} << 31).ok());
  TextConfig wide = small();
  wide.head_dim = 65'536;
  const CacheGeometry huge = make({.page_tokens = 65'536}, wide);
  const Result<PoolLayout> layout = PoolLayout::create(huge, INT32_MAX, INT32_MAX);
  ASSERT_FALSE(layout.ok());
  EXPECT_THAT(layout.status().message(), HasSubstr("exceeds 2^63"));
}

TEST(CacheGeometry, FormatNames) {
  for (const std::string_view name : {"bf16", "fp4"}) {
    EXPECT_EQ(main_format_name(parse_main_format(name).value()), name);
  }
  for (const std::string_view name : {"fp4", "fp8"}) {
    EXPECT_EQ(index_format_name(parse_index_format(name).value()), name);
  }
  EXPECT_THAT(parse_main_format("fp8").status().message(), HasSubstr("bf16 or fp4"));
  EXPECT_THAT(parse_index_format("bf16").status().message(), HasSubstr("fp4 or fp8"));
}

TEST(CacheGeometry, LayoutIdChangesWithEveryField) {
  const CacheOptions base{.format = kBF16Fp4, .page_tokens = 32, .spec_tokens = 0};
  std::vector<std::pair<std::string, std::string>> ids;
  const auto add = [&ids](std::string_view name, const TextConfig& text, const CacheOptions& options) {
    ids.emplace_back(name, make(options, text).layout_id);
  };
  add("base", small(), base);
  add("main format", small(), {.format = kPackedFp4, .page_tokens = 32});
  add("index format", small(), {.format = kBF16Fp8, .page_tokens = 32});
  add("both formats", small(), {.format = kPackedFp8, .page_tokens = 32});
  add("page_tokens", small(), {.format = kBF16Fp4, .page_tokens = 64});
  add("spec_tokens", small(), {.format = kBF16Fp4, .page_tokens = 32, .spec_tokens = 3});
  const auto change = [&](std::string_view name, const std::function<void(TextConfig&)>& edit) {
    TextConfig text = small();
    edit(text);
    add(name, text, base);
  };
  change("layers", [](TextConfig& text) {
    text.num_hidden_layers = 7;
    text.compress_ratios = {0, 2, 2, 1, 1, 1, 1, 0, 0};
  });
  change("owners", [](TextConfig& text) {
    text.kv_source_layer_ids = {2, 3};
    text.index_source_layer_ids = {2, 3, 5};
    text.compress_ratios = {0, 0, 2, 1, 1, 1, 0, 0};
  });
  change("ratios", [](TextConfig& text) { text.compress_ratios = {0, 2, 2, 2, 2, 2, 0, 0}; });
  change("head_dim", [](TextConfig& text) { text.head_dim = 128; });
  change("rope dims", [](TextConfig& text) { text.qk_rope_head_dim = 16; });
  change("index_head_dim", [](TextConfig& text) { text.index_head_dim = 64; });
  change("sliding_window", [](TextConfig& text) { text.sliding_window = 41; });
  change("engram", [](TextConfig& text) { text.engram_layer_ids = {}; });
  change("engram history", [](TextConfig& text) { text.engram_max_ngram_size = 3; });
  change("index sources", [](TextConfig& text) { text.index_source_layer_ids = {1, 3, 4}; });
  change("index heads", [](TextConfig& text) { text.index_n_heads = 16; });
  change("index_topk", [](TextConfig& text) { text.index_topk = 256; });
  change("candidate source", [](TextConfig& text) { text.candidate_source_layer_id = -1; });
  change("candidate blocks", [](TextConfig& text) { text.candidate_topk_blocks = 1024; });
  for (size_t a = 0; a < ids.size(); ++a) {
    for (size_t b = a + 1; b < ids.size(); ++b) {
      EXPECT_NE(ids[a].second, ids[b].second) << ids[a].first << " and " << ids[b].first;
    }
  }
  EXPECT_EQ(make(base, small()).layout_id, ids[0].second);
  TextConfig other_dim_draft = small();  // what is not stored and selects nothing leaves the id alone
  other_dim_draft.n_routed_experts = 16;
  EXPECT_EQ(make(base, other_dim_draft).layout_id, ids[0].second);
}

}  // namespace
}  // namespace ps::cache
