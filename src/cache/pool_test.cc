// The pool's bytes seen through its views: nothing overlaps, nothing lies outside, slots and PAGEs are independent.
#include "cache/pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/number_formats.h"
#include "cache/testing.h"

namespace ps::cache {
namespace {

using ops::IndexFormat;
using testing::HasSubstr;

constexpr int64_t kPages = 3;
constexpr int64_t kSlots = 2;
constexpr int64_t kPageTokens = 32;
constexpr int32_t kIdentity[] = {0, 1, 2};

CacheGeometry make(MainFormat main, IndexFormat index, int64_t spec = 0, int64_t page_tokens = kPageTokens) {
  return test::small_geometry({.format = {main, index}, .page_tokens = page_tokens, .spec_tokens = spec});
}

CachePool allocate(const CacheGeometry& geometry) {
  Result<CachePool> pool = CachePool::allocate(geometry, kPages, kSlots);
  EXPECT_TRUE(pool.ok()) << pool.status().to_string();
  return std::move(pool).value();
}

// Calls visit(address, bytes) for every row that a view of the pool can name: main, index, window, compressor, cursor.
void visit_rows(CachePool& pool, const std::function<void(void*, int64_t)>& visit) {
  const CacheGeometry& geometry = pool.geometry();
  for (int owner = 0; owner < std::ssize(geometry.owners); ++owner) {
    const ops::MainPlane main = pool.main_plane(owner);
    const ops::IndexPlane index = pool.index_plane(owner);
    for (int64_t row = 0; row < kPages * main.rows_per_page; ++row) {
      visit(main.row(kIdentity, row), geometry.main_row_bytes);
    }
    const int64_t blocks = kPages * index.rows_per_page / ops::kIndexBlockRows;
    const bool fp4 = index.format == IndexFormat::kFp4;
    const int64_t value_bytes = fp4 ? 4 * index.dim : 8 * index.dim + 32;
    const int64_t scale_bytes = fp4 ? index.dim / 4 : 0;
    for (int64_t block = 0; block < blocks; ++block) {
      visit(index.values + block * value_bytes, value_bytes);
      if (fp4) visit(index.scales + block * scale_bytes, scale_bytes);
    }
    const ops::CompressorRing ring = pool.compressor_ring(owner);
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      for (int32_t position = 0; position < ring.ring_slots; ++position) {
        visit(ring.kv_row(slot, position), geometry.head_dim * 4);
        visit(ring.score_row(slot, position), geometry.head_dim * 4);
      }
    }
  }
  for (int32_t slot = 0; slot < kSlots; ++slot) {
    for (int layer = 0; layer < geometry.layers; ++layer) {
      const ops::WindowRing ring = pool.window_ring(layer);
      for (int32_t position = 0; position < ring.ring_slots; ++position) {
        visit(ring.row(slot, position), geometry.window_row_bytes);
      }
    }
    visit(pool.cursor(SlotId{slot}).data(), static_cast<int64_t>(pool.cursor(SlotId{slot}).size_bytes()));
  }
}

class Pools : public testing::TestWithParam<std::tuple<MainFormat, IndexFormat, int64_t>> {
 protected:
  const CacheGeometry geometry_ = make(std::get<0>(GetParam()), std::get<1>(GetParam()), std::get<2>(GetParam()));
};

TEST_P(Pools, RowsAreDisjointAndInside) {
  CachePool pool = allocate(geometry_);
  std::vector<std::pair<std::byte*, int64_t>> rows;
  visit_rows(pool, [&rows](void* at, int64_t bytes) { rows.emplace_back(static_cast<std::byte*>(at), bytes); });
  std::ranges::sort(rows);
  for (size_t i = 1; i < rows.size(); ++i) ASSERT_LE(rows[i - 1].first + rows[i - 1].second, rows[i].first) << i;
  // The first row is the pool's first byte; the last one ends inside.
  EXPECT_EQ(rows.front().first, pool.main_plane(0).base);
  EXPECT_LE(rows.back().first + rows.back().second, rows.front().first + pool.size_bytes());
  // Rows fill all bytes but the alignment gaps: at most one per PAGE, per plane and per field of a slot.
  int64_t used = 0;
  for (const auto& row : rows) used += row.second;
  EXPECT_LE(pool.size_bytes() - used, geometry_.alignment_bytes * (kPages + 2 + 1 + kSlots * 4));
}

TEST_P(Pools, FreshBytesAreZero) {
  CachePool pool = allocate(geometry_);
  const std::byte* start = pool.main_plane(0).base;
  EXPECT_TRUE(std::all_of(start, start + pool.size_bytes(), [](std::byte byte) { return byte == std::byte{0}; }));
}

TEST_P(Pools, PoisonedPagesAreExactlyThose) {
  CachePool pool = allocate(geometry_);
  pool.poison_pages(PageId{1}, 1);
  int64_t poisoned = 0;
  visit_rows(pool, [&poisoned](void* at, int64_t bytes) {
    const auto* row = static_cast<const std::byte*>(at);
    const int64_t hit = std::count(row, row + bytes, std::byte{0xFF});
    EXPECT_TRUE(hit == 0 || hit == bytes);
    poisoned += hit;
  });
  int64_t expected = geometry_.index_page_bytes;
  for (const OwnerGeometry& owner : geometry_.owners) expected += owner.rows_per_page * geometry_.main_row_bytes;
  EXPECT_EQ(poisoned, expected);
}

TEST_P(Pools, PoisonedSlotsAreExactlyThose) {
  CachePool pool = allocate(geometry_);
  pool.poison_slot(SlotId{1});
  EXPECT_EQ(pool.position(SlotId{1}), -1);
  EXPECT_EQ(pool.position(SlotId{0}), 0);
  const std::byte* start = pool.main_plane(0).base;
  EXPECT_EQ(std::count(start, start + pool.size_bytes(), std::byte{0xFF}), geometry_.state_bytes);
  EXPECT_EQ(std::to_integer<int>(*pool.window_ring(0).row(1, 5)), 0xFF);
  EXPECT_EQ(std::to_integer<int>(*pool.window_ring(0).row(0, 5)), 0);
  EXPECT_TRUE(std::isnan(*pool.compressor_ring(1).score_row(1, 1)));
}

TEST_P(Pools, ZeroSlotClearsOneSlot) {
  CachePool pool = allocate(geometry_);
  pool.poison_slot(SlotId{0});
  pool.poison_slot(SlotId{1});
  pool.zero_slot(SlotId{0});
  EXPECT_EQ(pool.position(SlotId{0}), 0);
  EXPECT_THAT(pool.history(SlotId{0}), testing::ElementsAre(kDeadId, kDeadId, kDeadId));
  const auto bytes = pool.slot_bytes(SlotId{0});
  EXPECT_EQ(std::ssize(bytes), geometry_.state_bytes);
  EXPECT_EQ(std::ranges::count(bytes, std::byte{0}), geometry_.state_bytes - 3 * 8);
  EXPECT_EQ(std::ranges::count(pool.slot_bytes(SlotId{1}), std::byte{0xFF}), geometry_.state_bytes);
}

TEST_P(Pools, CursorKeepsPositionAndHistory) {
  CachePool pool = allocate(geometry_);
  pool.zero_slot(SlotId{1});
  pool.position(SlotId{1}) = 41;
  pool.history(SlotId{1})[2] = 99'091;
  CachePool moved = std::move(pool);
  EXPECT_THAT(moved.cursor(SlotId{1}), testing::ElementsAre(41, -1, -1, 99'091));
  EXPECT_THAT(moved.cursor(SlotId{0}), testing::ElementsAre(0, 0, 0, 0));
}

INSTANTIATE_TEST_SUITE_P(Formats, Pools,
                         testing::Combine(testing::Values(MainFormat::kBF16, MainFormat::kFp4),
                                          testing::Values(IndexFormat::kFp4, IndexFormat::kFp8),
                                          testing::Values(int64_t{0}, int64_t{3})));

TEST(CachePool, PoisonIsNaNInEveryFormat) {
  EXPECT_TRUE(std::isnan(to_float(bf16{0xFFFF})));
  EXPECT_TRUE(std::isnan(e8m0_to_float(0xFF)));
  float value = 0;
  std::memset(&value, 0xFF, sizeof(value));
  EXPECT_TRUE(std::isnan(value));
}

TEST(CachePool, SaysHowMuchItCouldNotGet) {
  const CacheGeometry geometry =
      make(MainFormat::kBF16, IndexFormat::kFp8, 0, kMaxPageTokens);  // beyond any address space
  const Result<CachePool> pool = CachePool::allocate(geometry, INT32_MAX, INT32_MAX);
  ASSERT_FALSE(pool.ok());
  EXPECT_EQ(pool.status().code(), Code::kExhausted);
  const Result<PoolLayout> layout = PoolLayout::create(geometry, INT32_MAX, INT32_MAX);
  ASSERT_TRUE(layout.ok());
  EXPECT_THAT(pool.status().message(), HasSubstr("cache of " + std::to_string(layout->total_bytes) + " bytes"));
  EXPECT_THAT(pool.status().message(), HasSubstr(std::to_string(geometry.state_bytes)));
}

TEST(CachePool, EmptyPool) {
  const Result<CachePool> pool = CachePool::allocate(make(MainFormat::kBF16, IndexFormat::kFp4), 0, 0);
  ASSERT_TRUE(pool.ok());
  EXPECT_EQ(pool.value().size_bytes(), 0);
}

}  // namespace
}  // namespace ps::cache
