// Who gets which PAGE, what a prefix finds, and what eviction takes away, case by case (runtime.md 2.6).
#include "cache/page_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace ps::cache {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kPageTokens = 4;

PageManagerOptions options(int32_t pages) {
  return {.pages = pages, .page_tokens = kPageTokens, .layout_id = "layout", .name_space = "model"};
}

std::vector<int32_t> tokens(int32_t count, int32_t first = 100) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

std::vector<int32_t> ids_of(std::span<const PageId> pages) {
  std::vector<int32_t> ids;
  for (const PageId page : pages) ids.push_back(ordinal(page));
  return ids;
}

std::vector<PageId> reserve(PageManager& pages, int64_t count) {
  std::vector<PageId> table;
  EXPECT_TRUE(pages.reserve(count, table));
  return table;
}

std::vector<PageId> match(const PageManager& pages, std::span<const int32_t> prompt) {
  std::vector<PageId> hits;
  const int64_t hit_tokens = pages.match(prompt, std::ssize(prompt) - 1, hits);
  EXPECT_EQ(hit_tokens, std::ssize(hits) * pages.page_tokens());
  return hits;
}

// A request that ran: its PAGEs are published and free again.
std::vector<PageId> run_and_release(PageManager& pages, std::span<const int32_t> prompt) {
  const std::vector<PageId> table = reserve(pages, (std::ssize(prompt) + kPageTokens - 1) / kPageTokens);
  PublishCursor cursor;
  pages.publish(table, prompt, std::ssize(prompt), cursor);
  pages.release(table);
  return table;
}

void expect_whole(const PageManager& pages, int64_t table_entries) {
  const Status status = pages.check_integrity(table_entries);
  EXPECT_TRUE(status.ok()) << status.to_string();
}

TEST(PageManager, VacantLowestFirst) {
  PageManager pages(options(6));
  const std::vector<PageId> table = reserve(pages, 5);
  EXPECT_THAT(ids_of(table), ElementsAre(0, 1, 2, 3, 4));
  pages.release(std::span(table).subspan(1, 3));
  EXPECT_THAT(ids_of(reserve(pages, 4)), ElementsAre(1, 2, 3, 5));
  expect_whole(pages, 6);
}

TEST(PageManager, VacantBeforeCachedThenLeastRecentlyFreed) {
  PageManager pages(options(6));
  run_and_release(pages, tokens(8));       // PAGEs 0, 1, freed 1 first
  run_and_release(pages, tokens(8, 500));  // 2, 3: the vacant ones
  EXPECT_EQ(pages.counters().cached, 4);
  EXPECT_EQ(pages.counters().vacant, 2);
  EXPECT_THAT(ids_of(reserve(pages, 6)), ElementsAre(4, 5, 1, 0, 3, 2));
  EXPECT_EQ(pages.counters().evictions, 4);
  EXPECT_EQ(pages.counters().published, 0);
  expect_whole(pages, 6);
}

TEST(PageManager, ClaimRefreshesTheOrder) {
  PageManager pages(options(4));
  run_and_release(pages, tokens(4));       // 0
  run_and_release(pages, tokens(4, 500));  // 1
  std::vector<PageId> hits;
  ASSERT_EQ(pages.match(tokens(4), 4, hits), 4);
  pages.claim(hits);
  EXPECT_EQ(pages.references(PageId{0}), 1);
  pages.release(hits);
  EXPECT_THAT(ids_of(reserve(pages, 4)), ElementsAre(2, 3, 1, 0));
}

TEST(PageManager, RefusedReservationChangesNothing) {
  PageManager pages(options(4));
  run_and_release(pages, tokens(8));
  std::vector<PageId> table = reserve(pages, 1);
  EXPECT_FALSE(pages.reserve(4, table));
  EXPECT_THAT(ids_of(table), ElementsAre(2));
  EXPECT_EQ(pages.available(), 3);
  EXPECT_EQ(match(pages, tokens(9)).size(), 2u);
  std::vector<PageId> units(4);
  EXPECT_FALSE(pages.take_units(units));
  EXPECT_EQ(pages.counters().evictions, 0);
  EXPECT_TRUE(pages.reserve(0, table));
  expect_whole(pages, 1);
}

TEST(PageManager, DemandCountsHitsOnFreePages) {
  PageManager pages(options(6));
  run_and_release(pages, tokens(8));
  const std::vector<PageId> hits = match(pages, tokens(12));
  ASSERT_EQ(hits.size(), 2u);
  EXPECT_EQ(pages.admission_demand(hits, 3), 5);
  pages.claim(hits);
  EXPECT_EQ(pages.admission_demand(hits, 3), 3);
  EXPECT_EQ(pages.available(), 4);
}

TEST(PageManager, SharedPageIsFreeWhenTheLastHolderLeaves) {
  PageManager pages(options(4));
  const std::vector<PageId> first = run_and_release(pages, tokens(8));
  pages.claim(first);
  pages.claim(first);
  EXPECT_EQ(pages.references(first[0]), 2);
  expect_whole(pages, 4);
  pages.release(first);
  EXPECT_EQ(pages.counters().used, 2);
  pages.release(first);
  EXPECT_EQ(pages.counters().used, 0);
  EXPECT_EQ(pages.available(), 4);
}

TEST(PageManager, LastBlockOfAPromptIsNeverAHit) {
  PageManager pages(options(8));
  run_and_release(pages, tokens(12));
  EXPECT_EQ(match(pages, tokens(12)).size(), 2u);
  EXPECT_EQ(match(pages, tokens(13)).size(), 3u);
  EXPECT_EQ(match(pages, tokens(11)).size(), 2u);
  EXPECT_EQ(match(pages, tokens(4)).size(), 0u);
  EXPECT_EQ(match(pages, tokens(1)).size(), 0u);
  std::vector<PageId> hits;
  EXPECT_EQ(pages.match({}, -1, hits), 0);
}

TEST(PageManager, FirstMissEndsTheWalk) {
  PageManager pages(options(8));
  run_and_release(pages, tokens(16));
  std::vector<int32_t> prompt = tokens(17);
  prompt[5] = 7;
  EXPECT_EQ(match(pages, prompt).size(), 1u);
  prompt[0] = 7;
  EXPECT_THAT(match(pages, prompt), IsEmpty());
}

TEST(PageManager, GeneratedBlocksServeTheNextTurn) {
  PageManager pages(options(8));
  std::vector<int32_t> sequence = tokens(6);
  const std::vector<PageId> table = reserve(pages, 3);
  PublishCursor cursor;
  pages.publish(table, sequence, 6, cursor);
  EXPECT_EQ(cursor.pages, 1);
  for (int32_t step = 0; step < 5; ++step) {
    sequence.push_back(900 + step);
    pages.publish(table, sequence, std::ssize(sequence) - 1, cursor);  // the newest token has no rows yet
  }
  EXPECT_EQ(cursor.pages, 2);
  pages.release(table);
  sequence.resize(30, 1);
  EXPECT_THAT(ids_of(match(pages, sequence)), ElementsAre(0, 1));
}

TEST(PageManager, UncommittedTailIsNotHashed) {
  PageManager pages(options(8));
  const std::vector<int32_t> sequence = tokens(12);
  const std::vector<PageId> table = reserve(pages, 3);
  PublishCursor cursor;
  pages.publish(table, sequence, 7, cursor);
  EXPECT_EQ(pages.counters().published, 1);
  EXPECT_EQ(match(pages, tokens(20)).size(), 1u);
  pages.publish(table, sequence, 7, cursor);
  pages.publish(table, sequence, 8, cursor);
  EXPECT_EQ(pages.counters().published, 2);
  EXPECT_FALSE(pages.is_published(table[2]));
}

TEST(PageManager, DuplicateContentKeepsThePublishedPage) {
  PageManager pages(options(8));
  const std::vector<int32_t> prompt = tokens(9);
  const std::vector<PageId> first = reserve(pages, 3);
  const std::vector<PageId> second = reserve(pages, 3);
  PublishCursor first_cursor;
  PublishCursor second_cursor;
  pages.publish(first, prompt, 4, first_cursor);
  pages.publish(second, prompt, 9, second_cursor);  // PAGE 0 of `first`, then its own PAGE 1
  pages.publish(first, prompt, 9, first_cursor);
  EXPECT_EQ(first_cursor.hash, second_cursor.hash);
  EXPECT_THAT(ids_of(match(pages, prompt)), ElementsAre(ordinal(first[0]), ordinal(second[1])));
  pages.release(second);
  EXPECT_EQ(pages.counters().cached, 1);
  EXPECT_EQ(pages.counters().vacant, 8 - 3 - 1);
  expect_whole(pages, 3);
}

TEST(PageManager, DuplicateStandsByForThePublishedPage) {
  PageManager pages(options(6));
  const std::vector<int32_t> prompt = tokens(9);
  PublishCursor cursors[2];
  const std::vector<PageId> first = reserve(pages, 2);
  const std::vector<PageId> second = reserve(pages, 3);
  pages.publish(first, prompt, 8, cursors[0]);
  pages.publish(second, prompt, 8, cursors[1]);
  EXPECT_FALSE(pages.is_published(second[0]));
  pages.release(first);
  const std::vector<PageId> fresh = reserve(pages, 3);  // the vacant one, then those of the first request
  EXPECT_THAT(ids_of(fresh), ElementsAre(5, 1, 0));
  EXPECT_EQ(match(pages, prompt), std::vector(second.begin(), second.begin() + 2));
  expect_whole(pages, 6);
  pages.release(second);
  EXPECT_EQ(pages.counters().cached, 2);
  EXPECT_EQ(match(pages, prompt).size(), 2u);
  expect_whole(pages, 3);
}

TEST(PageManager, CursorAfterAHitContinuesItsChain) {
  PageManager pages(options(8));
  run_and_release(pages, tokens(8));
  const std::vector<int32_t> prompt = tokens(16);
  std::vector<PageId> table = match(pages, prompt);
  ASSERT_EQ(table.size(), 2u);
  pages.claim(table);
  PublishCursor cursor = pages.cursor_after(table);
  ASSERT_TRUE(pages.reserve(2, table));
  pages.publish(table, prompt, 16, cursor);
  EXPECT_EQ(cursor.pages, 4);
  EXPECT_EQ(match(pages, tokens(17)), table);
  PublishCursor fresh;  // the same, hashed again from the start
  pages.publish(table, prompt, 16, fresh);
  EXPECT_EQ(fresh.hash, cursor.hash);
  expect_whole(pages, 4);
}

TEST(PageManager, UnpublishedParentMintsNoChain) {
  PageManager pages(options(8));
  const std::vector<PageId> table = reserve(pages, 3);
  PublishCursor cursor = pages.cursor_after(std::span(table).first(1));
  pages.publish(table, tokens(12), 12, cursor);
  EXPECT_TRUE(cursor.is_broken);
  EXPECT_EQ(pages.counters().published, 0);
  EXPECT_FALSE(pages.cursor_after({}).is_broken);
}

ChainHash colliding(ChainHash previous, std::span<const int32_t> block) noexcept {
  return ChainHash{static_cast<uint64_t>(previous) * 31 + static_cast<uint64_t>(block.size())};
}

TEST(PageManager, CollisionServesNobodyElsesRows) {
  PageManagerOptions with_collisions = options(8);
  with_collisions.hash = colliding;
  PageManager pages(with_collisions);
  run_and_release(pages, tokens(8));
  EXPECT_EQ(match(pages, tokens(9)).size(), 2u);
  EXPECT_THAT(match(pages, tokens(9, 500)), IsEmpty());
  std::vector<int32_t> fork = tokens(13);
  fork[5] = 7;
  EXPECT_THAT(ids_of(match(pages, fork)), ElementsAre(0));
  // Nothing of the colliding chain is published, not even where hashes are free again.
  const std::vector<PageId> table = reserve(pages, 3);
  PublishCursor cursor;
  pages.publish(table, fork, 12, cursor);
  EXPECT_TRUE(cursor.is_broken);
  EXPECT_EQ(cursor.pages, 1);
  pages.publish(table, fork, 12, cursor);
  EXPECT_EQ(pages.counters().published, 2);
  expect_whole(pages, 3);
}

ChainHash blind_to_previous(ChainHash, std::span<const int32_t> block) noexcept {
  return ChainHash{static_cast<uint64_t>(block[0])};
}

TEST(PageManager, EqualBlocksAfterOtherPrefixesAreNotHits) {
  PageManagerOptions with_collisions = options(8);
  with_collisions.hash = blind_to_previous;
  PageManager pages(with_collisions);
  std::vector<int32_t> prompt = tokens(12);
  run_and_release(pages, prompt);
  std::vector<int32_t> other = tokens(12, 500);
  std::copy(prompt.begin() + 4, prompt.end(), other.begin() + 4);
  EXPECT_THAT(match(pages, other), IsEmpty());
  run_and_release(pages, other);
  EXPECT_EQ(match(pages, other).size(), 1u);
}

TEST(PageManager, NamespaceAndLayoutSeparate) {
  EXPECT_NE(root_hash("a", "b"), root_hash("ab", ""));
  EXPECT_NE(root_hash("a", "b"), root_hash("b", "a"));
  EXPECT_EQ(root_hash("a", "b"), root_hash("a", "b"));
  EXPECT_NE(chain_hash(root_hash("a", ""), tokens(4)), chain_hash(root_hash("b", ""), tokens(4)));
  EXPECT_NE(chain_hash(ChainHash{1}, tokens(4)), chain_hash(ChainHash{1}, tokens(4, 101)));
}

// XXH3-64 of eight bytes 01 00.. followed by the int32 values 100..103: the chain is a format, e.g. for keys of offload
// tiers.
TEST(PageManager, ChainHashIsPinned) {
  EXPECT_EQ(static_cast<uint64_t>(chain_hash(ChainHash{1}, tokens(4))), 0x4d92a2f6fe63ae7u);
}

TEST(PageManager, EvictionHappensAtAllocationAndIsReported) {
  PageManager pages(options(3));
  std::vector<std::pair<int32_t, ChainHash>> evicted;
  pages.on_evict([&](PageId page, ChainHash hash) {
    EXPECT_FALSE(pages.is_published(page));
    EXPECT_FALSE(pages.find(hash).has_value());
    evicted.emplace_back(ordinal(page), hash);
  });
  run_and_release(pages, tokens(8));
  const ChainHash second = pages.hash_of(PageId{1});
  EXPECT_THAT(evicted, IsEmpty());
  const std::vector<PageId> table = reserve(pages, 2);  // 2, then 1: the end of the sequence goes first
  EXPECT_THAT(evicted, ElementsAre(std::pair(1, second)));
  EXPECT_THAT(ids_of(match(pages, tokens(9))), ElementsAre(0));
}

TEST(PageManager, IndexIsBoundedByThePages) {
  PageManager pages(options(5));
  for (int32_t turn = 0; turn < 2000; ++turn) {
    run_and_release(pages, tokens(17, turn * 1000));
    ASSERT_LE(pages.counters().published, 5);
  }
  EXPECT_EQ(pages.counters().evictions + pages.counters().published, 2000 * 4);
  expect_whole(pages, 0);
}

TEST(PageManager, UnitsAreCountedAndComeBackVacant) {
  PageManager pages(options(5));
  run_and_release(pages, tokens(8));
  std::vector<PageId> units(4);
  ASSERT_TRUE(pages.take_units(units));
  EXPECT_THAT(ids_of(units), ElementsAre(2, 3, 4, 1));
  EXPECT_EQ(pages.counters().units, 4);
  EXPECT_EQ(pages.counters().used, 0);
  EXPECT_EQ(pages.available(), 1);
  expect_whole(pages, 0);
  pages.return_units(units);
  EXPECT_EQ(pages.counters().vacant, 4);
  expect_whole(pages, 0);
}

TEST(PageManager, CountsLookups) {
  PageManager pages(options(2));
  pages.count_lookup(100, 96);
  pages.count_lookup(50, 0);
  EXPECT_EQ(pages.counters().lookup_tokens, 150);
  EXPECT_EQ(pages.counters().hit_tokens, 96);
}

TEST(PageManager, IntegrityNamesWhatIsWrong) {
  PageManager pages(options(4));
  const std::vector<PageId> table = reserve(pages, 2);
  EXPECT_TRUE(pages.check_integrity().ok());
  const Status leak = pages.check_integrity(1);
  EXPECT_EQ(leak.code(), Code::kInternal);
  EXPECT_THAT(std::string(leak.message()), HasSubstr("references: 2, counted 1"));
}

TEST(PageManagerDeathTest, RefusesMisuse) {
  PageManager pages(options(4));
  std::vector<PageId> table = reserve(pages, 2);
  EXPECT_DEATH(pages.release(std::vector{PageId{3}}), "is not held");
  EXPECT_DEATH(pages.release(std::vector{PageId{4}}), "of 4");
  EXPECT_DEATH(pages.return_units(table), "is not held");
  EXPECT_DEATH(pages.claim(table), "lost its content");
  PublishCursor cursor;
  EXPECT_DEATH(pages.publish(table, tokens(20), 12, cursor), "full");
  pages.publish(table, tokens(8), 8, cursor);
  PublishCursor other;
  EXPECT_DEATH(pages.publish(table, tokens(8, 500), 8, other), "has the hash of other content");
}

}  // namespace
}  // namespace ps::cache
