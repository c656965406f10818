// When an image can be seen, what it holds, and who may take its units, case by case (runtime.md 2.7.1).
#include "cache/state_images.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/pcg64.h"
#include "cache/testing.h"

namespace ps::cache {
namespace {

using ops::IndexFormat;

constexpr int64_t kPageTokens = 32;
constexpr int32_t kSlots = 4;

std::vector<int32_t> tokens(int64_t count, int32_t first = 100) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

// A pool with its manager and images, and the acts of an engine on them.
struct Cache {
  explicit Cache(int32_t count, const CacheOptions& options = {.page_tokens = kPageTokens})
      : geometry(test::small_geometry(options)),
        pool(CachePool::allocate(geometry, count, kSlots).value()),
        pages({.pages = count, .page_tokens = kPageTokens, .layout_id = geometry.layout_id, .name_space = ""}),
        images(pages, geometry, kSlots) {}
  ~Cache() { expect_whole(); }

  // PAGEs of a request whose `count` blocks are published; still held.
  std::vector<PageId> publish(int64_t count, int32_t first_token) {
    std::vector<PageId> table;
    EXPECT_TRUE(pages.reserve(count, table));
    PublishCursor cursor;
    pages.publish(table, tokens(count * kPageTokens, first_token), count * kPageTokens, cursor);
    EXPECT_EQ(cursor.pages, count);
    return table;
  }
  // A slot as a forward up to `position` leaves it: arbitrary bytes, all different by seed.
  void fill(SlotId slot, int64_t position, uint64_t seed) {
    Pcg64 random(seed);
    for (std::byte& byte : pool.slot_bytes(slot)) byte = static_cast<std::byte>(random.next32());
    pool.position(slot) = position;
  }
  std::vector<std::byte> bytes(SlotId slot) {
    const auto span = pool.slot_bytes(slot);
    return {span.begin(), span.end()};
  }
  // Stores `slot`, filled from `seed`, at the end of `table` and lets a batch carry it.
  ChainHash store(std::span<const PageId> table, SlotId slot, uint64_t seed) {
    const int64_t position = std::ssize(table) * kPageTokens;
    fill(slot, position, seed);
    const ChainHash hash = pages.hash_of(table.back());
    EXPECT_EQ(images.queue_store(hash, position, slot), StoreResult::kQueued);
    step();
    EXPECT_TRUE(images.has_image(hash));
    return hash;
  }
  bool restore(ChainHash hash, SlotId slot) { return images.queue_restore(hash, slot, geometry.layout_id); }
  void step() {
    images.run_copies(pool);
    images.complete_step(true);
    expect_whole();
  }
  void expect_whole() const {
    Status status = images.check_integrity();
    EXPECT_TRUE(status.ok()) << status.to_string();
    status = pages.check_integrity();
    EXPECT_TRUE(status.ok()) << status.to_string();
  }

  CacheGeometry geometry;
  CachePool pool;
  PageManager pages;
  StateImages images;
};

// Rings and cursor of `actual` are those of `stored`; everything else is as in `before`.
void expect_restored(const CacheGeometry& geometry, std::span<const std::byte> stored,
                     std::span<const std::byte> before, std::span<const std::byte> actual) {
  const auto same = [&](std::span<const std::byte> expected, int64_t begin, int64_t end) {
    return std::equal(expected.begin() + begin, expected.begin() + end, actual.begin() + begin, actual.begin() + end);
  };
  const int64_t cursor_end = geometry.cursor_offset + geometry.cursor_bytes();
  EXPECT_TRUE(same(stored, 0, geometry.window_bytes()));
  EXPECT_TRUE(same(before, geometry.window_bytes(), geometry.cursor_offset));
  EXPECT_TRUE(same(stored, geometry.cursor_offset, cursor_end));
  EXPECT_TRUE(same(before, cursor_end, geometry.state_bytes));
}

class Formats : public testing::TestWithParam<std::tuple<MainFormat, IndexFormat, int64_t>> {};

TEST_P(Formats, RestoreGivesRingsAndCursorAndNothingElse) {
  const auto [main, index, spec] = GetParam();
  Cache cache(40, {.format = {main, index}, .page_tokens = kPageTokens, .spec_tokens = spec});
  EXPECT_GT(cache.images.units_per_image(), 1);
  EXPECT_EQ(cache.images.units_per_image(), cache.geometry.pages_per_state_image());
  const std::vector<PageId> held = cache.publish(3, 0);
  cache.pool.poison_pages(PageId{0}, 40);
  const ChainHash hash = cache.store(held, SlotId{1}, 7);
  const auto stored = cache.bytes(SlotId{1});
  cache.fill(SlotId{1}, 5, 8);  // the slot moves on
  cache.fill(SlotId{2}, 0, 9);
  const auto before = cache.bytes(SlotId{2});
  const auto neighbour = cache.bytes(SlotId{3});
  ASSERT_TRUE(cache.restore(hash, SlotId{2}));
  cache.step();
  expect_restored(cache.geometry, stored, before, cache.bytes(SlotId{2}));
  EXPECT_EQ(cache.pool.position(SlotId{2}), 3 * kPageTokens);
  EXPECT_EQ(cache.bytes(SlotId{3}), neighbour);
  // The rows of the held PAGEs are untouched.
  for (const PageId page : held) {
    for (int part = 0; part < cache.pool.layout().page_parts(); ++part) {
      EXPECT_TRUE(
          std::ranges::all_of(cache.pool.page_part(page, part), [](std::byte b) { return b == std::byte{0xFF}; }));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Formats,
                         testing::Combine(testing::Values(MainFormat::kBF16, MainFormat::kFp4),
                                          testing::Values(IndexFormat::kFp4, IndexFormat::kFp8),
                                          testing::Values(int64_t{0}, int64_t{3})));

TEST(StateImages, PartsOfAPageAreItsBytes) {
  for (const IndexFormat index : {IndexFormat::kFp4, IndexFormat::kFp8}) {
    Cache cache(3, {.format = {MainFormat::kFp4, index}, .page_tokens = kPageTokens});
    std::vector<int> seen(static_cast<size_t>(cache.pool.size_bytes()), 0);
    const PoolLayout& layout = cache.pool.layout();
    for (int32_t page = 0; page < 3; ++page) {
      int64_t total = 0;
      for (int part = 0; part < layout.page_parts(); ++part) {
        const ByteRange range = layout.page_part(page, part);
        total += range.size_bytes;
        for (int64_t i = 0; i < range.size_bytes; ++i) ++seen[static_cast<size_t>(range.start_bytes + i)];
      }
      EXPECT_EQ(total, cache.geometry.paged_bytes());
    }
    EXPECT_EQ(*std::ranges::max_element(seen), 1);
    EXPECT_EQ(std::accumulate(seen.begin(), seen.begin() + layout.state_start, int64_t{0}),
              3 * cache.geometry.paged_bytes());
  }
}

TEST(StateImages, CopyingIsNotVisible) {
  Cache cache(20);
  const auto table = cache.publish(2, 0);
  const ChainHash hash = cache.pages.hash_of(table.back());
  cache.fill(SlotId{0}, 2 * kPageTokens, 1);
  ASSERT_EQ(cache.images.queue_store(hash, 2 * kPageTokens, SlotId{0}), StoreResult::kQueued);
  EXPECT_FALSE(cache.images.has_image(hash));
  EXPECT_FALSE(cache.restore(hash, SlotId{1}));
  EXPECT_EQ(cache.images.restorable_pages(table), 0);
  cache.images.run_copies(cache.pool);
  EXPECT_FALSE(cache.restore(hash, SlotId{1}));
  EXPECT_EQ(cache.images.counters().copying, 1);
  cache.images.complete_step(true);
  EXPECT_TRUE(cache.images.has_image(hash));
  EXPECT_EQ(cache.images.restorable_pages(table), 2);
}

TEST(StateImages, EmptyBatchCompletesNothing) {
  Cache cache(20);
  const auto table = cache.publish(1, 0);
  const ChainHash hash = cache.pages.hash_of(table.back());
  cache.fill(SlotId{0}, kPageTokens, 1);
  ASSERT_EQ(cache.images.queue_store(hash, kPageTokens, SlotId{0}), StoreResult::kQueued);
  cache.images.complete_step(false);
  cache.images.complete_step(true);  // a batch, but the copy was not in it
  EXPECT_FALSE(cache.images.has_image(hash));
  cache.images.run_copies(cache.pool);
  cache.images.complete_step(false);
  EXPECT_FALSE(cache.images.has_image(hash));
  cache.step();
  EXPECT_TRUE(cache.images.has_image(hash));
  // Nor does it drop a pin.
  ASSERT_TRUE(cache.restore(hash, SlotId{1}));
  cache.images.run_copies(cache.pool);
  cache.images.complete_step(false);
  EXPECT_EQ(cache.images.counters().pinned, 1);
  cache.images.complete_step(true);
  EXPECT_EQ(cache.images.counters().pinned, 0);
  EXPECT_EQ(cache.images.counters().restores, 1);
}

TEST(StateImages, SlotPassesFromAStoreToARestoreInOneBatch) {
  Cache cache(40);
  const auto first = cache.publish(1, 0);
  const auto second = cache.publish(1, 5000);
  const ChainHash known = cache.store(first, SlotId{0}, 1);
  const auto known_bytes = cache.bytes(SlotId{0});
  const ChainHash fresh = cache.pages.hash_of(second.back());
  cache.fill(SlotId{0}, kPageTokens, 2);
  const auto fresh_bytes = cache.bytes(SlotId{0});
  // The request that stands on slot 0 leaves; the restore of the next one is queued before the store.
  ASSERT_TRUE(cache.restore(known, SlotId{0}));
  ASSERT_EQ(cache.images.queue_store(fresh, kPageTokens, SlotId{0}), StoreResult::kQueued);
  cache.step();
  expect_restored(cache.geometry, known_bytes, fresh_bytes, cache.bytes(SlotId{0}));
  ASSERT_TRUE(cache.restore(fresh, SlotId{1}));
  cache.step();
  expect_restored(cache.geometry, fresh_bytes, cache.bytes(SlotId{1}), cache.bytes(SlotId{1}));
}

TEST(StateImages, DuplicateIsDropped) {
  Cache cache(20);
  const auto table = cache.publish(1, 0);
  const ChainHash hash = cache.pages.hash_of(table.back());
  cache.fill(SlotId{0}, kPageTokens, 1);
  ASSERT_EQ(cache.images.queue_store(hash, kPageTokens, SlotId{0}), StoreResult::kQueued);
  EXPECT_EQ(cache.images.queue_store(hash, kPageTokens, SlotId{1}), StoreResult::kDuplicate);
  cache.step();
  EXPECT_EQ(cache.images.queue_store(hash, kPageTokens, SlotId{1}), StoreResult::kDuplicate);
  EXPECT_EQ(cache.pages.counters().units, cache.images.units_per_image());
}

TEST(StateImages, UnpublishedBoundaryIsNotStored) {
  Cache cache(20);
  EXPECT_EQ(cache.images.queue_store(ChainHash{5}, kPageTokens, SlotId{0}), StoreResult::kNotPublished);
  EXPECT_EQ(cache.pages.counters().units, 0);
}

TEST(StateImages, HitShrinksToTheLastImage) {
  Cache cache(40);
  const auto table = cache.publish(4, 0);
  EXPECT_EQ(cache.images.restorable_pages(table), 0);
  cache.store(std::span(table).first(1), SlotId{0}, 1);
  EXPECT_EQ(cache.images.restorable_pages(table), 1);
  cache.store(std::span(table).first(3), SlotId{0}, 2);
  EXPECT_EQ(cache.images.restorable_pages(table), 3);
  EXPECT_EQ(cache.images.restorable_pages(std::span(table).first(2)), 1);
  EXPECT_EQ(cache.images.restorable_pages({}), 0);
}

TEST(StateImages, OtherLayoutIsRefusedNotRead) {
  Cache cache(20);
  const auto table = cache.publish(1, 0);
  const ChainHash hash = cache.store(table, SlotId{0}, 1);
  const CacheOptions others[] = {
      {.format = {MainFormat::kFp4, IndexFormat::kFp4}, .page_tokens = kPageTokens},
      {.format = {MainFormat::kBF16, IndexFormat::kFp8}, .page_tokens = kPageTokens},
      {.page_tokens = kPageTokens, .spec_tokens = 3},
      {.page_tokens = 2 * kPageTokens},
  };
  for (const CacheOptions& other : others) {
    const CacheGeometry geometry = test::small_geometry(other);
    EXPECT_FALSE(cache.images.queue_restore(hash, SlotId{1}, geometry.layout_id)) << geometry.layout_id;
  }
  EXPECT_EQ(cache.images.counters().pinned, 0);
  EXPECT_TRUE(cache.restore(hash, SlotId{1}));
}

TEST(StateImages, EvictedPageTakesItsImageAlong) {
  Cache cache(6);
  const auto units = static_cast<int32_t>(cache.images.units_per_image());
  const auto table = cache.publish(2, 0);
  const ChainHash first = cache.store(std::span(table).first(1), SlotId{0}, 1);
  const ChainHash second = cache.store(table, SlotId{0}, 2);
  ASSERT_EQ(cache.pages.available(), 6 - 2 - 2 * units);
  cache.pages.release(table);
  std::vector<PageId> fresh;
  ASSERT_TRUE(cache.pages.reserve(1, fresh));  // evicts the second PAGE, whose units become vacant
  EXPECT_FALSE(cache.images.has_image(second));
  EXPECT_TRUE(cache.images.has_image(first));
  EXPECT_EQ(cache.pages.counters().units, units);
  EXPECT_EQ(cache.pages.counters().vacant, units);
  cache.expect_whole();
}

TEST(StateImages, EvictedPageCancelsAQueuedStore) {
  Cache cache(4);
  const auto table = cache.publish(1, 0);
  const ChainHash hash = cache.pages.hash_of(table.back());
  cache.fill(SlotId{0}, kPageTokens, 1);
  ASSERT_EQ(cache.images.queue_store(hash, kPageTokens, SlotId{0}), StoreResult::kQueued);
  cache.pages.release(table);
  std::vector<PageId> fresh;
  ASSERT_TRUE(cache.pages.reserve(2, fresh));
  EXPECT_EQ(cache.pages.counters().units, 0);
  cache.pool.poison_pages(PageId{0}, 4);
  cache.step();  // writes nothing
  EXPECT_TRUE(std::ranges::all_of(cache.pool.page_part(fresh[0], 0), [](std::byte b) { return b == std::byte{0xFF}; }));
  EXPECT_FALSE(cache.images.has_image(hash));
}

TEST(StateImages, EvictedWhileReadOrWrittenKeepsItsUnits) {
  Cache cache(6);
  const int64_t units = cache.images.units_per_image();
  const auto table = cache.publish(1, 0);
  const ChainHash hash = cache.store(table, SlotId{0}, 1);
  ASSERT_TRUE(cache.restore(hash, SlotId{1}));
  cache.pages.release(table);
  std::vector<PageId> fresh;
  ASSERT_TRUE(cache.pages.reserve(cache.pages.available(), fresh));
  EXPECT_FALSE(cache.images.has_image(hash));
  EXPECT_EQ(cache.images.counters().evicting, 1);
  EXPECT_EQ(cache.pages.counters().units, units);
  cache.expect_whole();
  cache.step();
  EXPECT_EQ(cache.images.counters().evicting, 0);
  EXPECT_EQ(cache.pages.counters().units, 0);

  // The same for a store that ran, but whose batch is not complete.
  cache.pages.release(fresh);
  const auto next = cache.publish(1, 900);
  cache.fill(SlotId{0}, kPageTokens, 1);
  ASSERT_EQ(cache.images.queue_store(cache.pages.hash_of(next.back()), kPageTokens, SlotId{0}), StoreResult::kQueued);
  cache.images.run_copies(cache.pool);
  cache.pages.release(next);
  fresh.clear();
  ASSERT_TRUE(cache.pages.reserve(cache.pages.available(), fresh));
  EXPECT_EQ(cache.pages.counters().units, units);
  cache.images.complete_step(true);
  EXPECT_EQ(cache.pages.counters().units, 0);
  EXPECT_EQ(cache.images.counters().ready, 0);
}

TEST(StateImages, LiveKvTakesTheLeastRecentlyUsed) {
  Cache cache(20);
  const auto units = cache.images.units_per_image();
  const auto table = cache.publish(3, 0);
  ChainHash hashes[3];
  for (size_t i = 0; i < 3; ++i) hashes[i] = cache.store(std::span(table).first(i + 1), SlotId{0}, i);
  ASSERT_TRUE(cache.restore(hashes[0], SlotId{1}));
  cache.step();  // used: the second is the oldest
  const int64_t free = cache.pages.available();
  EXPECT_EQ(cache.images.available(), free + 3 * units);
  EXPECT_EQ(cache.images.available(hashes[1]), free + 2 * units);
  EXPECT_EQ(cache.images.available(ChainHash{5}), free + 3 * units);
  EXPECT_FALSE(cache.images.make_room(free + 3 * units + 1));
  EXPECT_EQ(cache.images.counters().ready, 3);  // refused before anything is evicted
  EXPECT_TRUE(cache.images.make_room(free));
  EXPECT_EQ(cache.images.counters().ready, 3);
  EXPECT_TRUE(cache.images.make_room(free + 1));
  EXPECT_TRUE(cache.images.has_image(hashes[0]));
  EXPECT_FALSE(cache.images.has_image(hashes[1]));
  EXPECT_TRUE(cache.images.make_room(free + 2 * units));
  EXPECT_TRUE(cache.images.has_image(hashes[0]));
  EXPECT_FALSE(cache.images.has_image(hashes[2]));
  EXPECT_EQ(cache.images.counters().evictions, 2);
}

TEST(StateImages, PinProtectsTheHitOfTheSameAdmission) {
  Cache cache(10);
  const auto units = cache.images.units_per_image();
  const auto table = cache.publish(1, 0);
  const ChainHash hash = cache.store(table, SlotId{0}, 1);
  const auto stored = cache.bytes(SlotId{0});
  cache.pages.release(table);
  const std::vector<PageId> hits = table;
  const int64_t most = cache.images.available(hash) - cache.pages.admission_demand(hits, 0);
  ASSERT_TRUE(cache.restore(hash, SlotId{1}));
  EXPECT_EQ(cache.images.available(hash), cache.images.available());
  EXPECT_FALSE(cache.images.make_room(cache.pages.admission_demand(hits, most + 1)));
  ASSERT_TRUE(cache.images.make_room(cache.pages.admission_demand(hits, most)));
  cache.pages.claim(hits);
  std::vector<PageId> fresh = hits;
  ASSERT_TRUE(cache.pages.reserve(most, fresh));
  EXPECT_EQ(cache.pages.available(), 0);
  EXPECT_EQ(cache.pages.counters().units, units);
  cache.step();
  expect_restored(cache.geometry, stored, cache.bytes(SlotId{1}), cache.bytes(SlotId{1}));
  EXPECT_TRUE(cache.images.has_image(hash));
}

TEST(StateImages, CancelledRestoreUnpinsAndWritesNothing) {
  Cache cache(20);
  const auto table = cache.publish(1, 0);
  const ChainHash hash = cache.store(table, SlotId{0}, 1);
  cache.fill(SlotId{1}, 0, 2);
  const auto before = cache.bytes(SlotId{1});
  ASSERT_TRUE(cache.restore(hash, SlotId{1}));
  ASSERT_TRUE(cache.restore(hash, SlotId{2}));
  cache.images.cancel_restore(SlotId{1});
  cache.images.cancel_restore(SlotId{1});
  EXPECT_EQ(cache.images.counters().pinned, 1);
  cache.step();
  EXPECT_EQ(cache.bytes(SlotId{1}), before);
  EXPECT_EQ(cache.images.counters().pinned, 0);
  EXPECT_EQ(cache.images.counters().restores, 1);
}

TEST(StateImages, StoreTakesItsShortfallFromOldImagesOnly) {
  Cache probe(2);
  const auto units = static_cast<int32_t>(probe.images.units_per_image());
  Cache cache(3 + 2 * units + units - 1);
  const auto table = cache.publish(3, 0);
  const ChainHash first = cache.store(std::span(table).first(1), SlotId{0}, 1);
  const ChainHash second = cache.store(std::span(table).first(2), SlotId{0}, 2);
  cache.store(table, SlotId{0}, 3);
  EXPECT_FALSE(cache.images.has_image(first));
  EXPECT_TRUE(cache.images.has_image(second));
  EXPECT_EQ(cache.pages.available(), units - 1);
}

TEST(StateImages, StoreWithoutRoomEvictsNothing) {
  Cache probe(2);
  const auto units = static_cast<int32_t>(probe.images.units_per_image());
  Cache cache(2 + units);
  const auto table = cache.publish(2, 0);
  const ChainHash first = cache.store(std::span(table).first(1), SlotId{0}, 1);
  ASSERT_TRUE(cache.restore(first, SlotId{1}));
  cache.fill(SlotId{0}, 2 * kPageTokens, 2);
  EXPECT_EQ(cache.images.queue_store(cache.pages.hash_of(table[1]), 2 * kPageTokens, SlotId{0}), StoreResult::kNoRoom);
  EXPECT_TRUE(cache.images.has_image(first));
}

TEST(StateImages, QueuedStoresCannotStarveAdmission) {
  Cache probe(2);
  const auto units = static_cast<int32_t>(probe.images.units_per_image());
  Cache cache(1 + units);
  const auto table = cache.publish(1, 0);
  cache.fill(SlotId{0}, kPageTokens, 1);
  const ChainHash hash = cache.pages.hash_of(table.back());
  ASSERT_EQ(cache.images.queue_store(hash, kPageTokens, SlotId{0}), StoreResult::kQueued);
  cache.pages.release(table);  // the request is gone, and no batch comes unless the whole pool can be had
  EXPECT_EQ(cache.images.available(), 1 + units);
  ASSERT_TRUE(cache.images.make_room(1 + units));
  std::vector<PageId> all;
  EXPECT_TRUE(cache.pages.reserve(1 + units, all));
  cache.step();
  EXPECT_EQ(cache.images.counters().evictions, 1);
}

TEST(StateImages, StoreThatWouldTakeItsOwnPageIsRefused) {
  Cache probe(2);
  const auto units = static_cast<int32_t>(probe.images.units_per_image());
  Cache cache(units);
  const auto table = cache.publish(1, 0);
  const ChainHash hash = cache.pages.hash_of(table.back());
  cache.pages.release(table);
  EXPECT_EQ(cache.images.queue_store(hash, kPageTokens, SlotId{0}), StoreResult::kNotPublished);
  EXPECT_EQ(cache.pages.available(), units);
}

TEST(StateImagesDeathTest, RefusesWhatWouldLoseState) {
  Cache cache(20);
  const auto table = cache.publish(1, 0);
  const ChainHash hash = cache.pages.hash_of(table.back());
  EXPECT_DEATH((void)cache.images.queue_store(hash, kPageTokens - 1, SlotId{0}), "is no boundary");
  EXPECT_DEATH((void)cache.images.queue_store(hash, 0, SlotId{0}), "is no boundary");
  cache.fill(SlotId{0}, kPageTokens, 1);
  ASSERT_EQ(cache.images.queue_store(hash, kPageTokens, SlotId{0}), StoreResult::kQueued);
  cache.pool.position(SlotId{0}) = kPageTokens + 1;
  EXPECT_DEATH(cache.images.run_copies(cache.pool), "left its boundary");
  cache.pool.position(SlotId{0}) = kPageTokens;
  cache.step();
  ASSERT_TRUE(cache.restore(hash, SlotId{1}));
  EXPECT_DEATH((void)cache.restore(hash, SlotId{1}), "slot");
  Cache other(20, {.format = {MainFormat::kFp4, IndexFormat::kFp4}, .page_tokens = kPageTokens});
  EXPECT_DEATH(cache.images.run_copies(other.pool), "layout_id");
}

}  // namespace
}  // namespace ps::cache
