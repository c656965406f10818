// Tables of runtime.md 4.1 and 3.5 over the plan builder.
#include "engine/step_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <numeric>

namespace ps::engine {
namespace {

using ::testing::ElementsAre;

struct Request {
  int32_t start;
  int32_t count;
  int32_t write_from = 0;
  int32_t cached_until = 0;
};

// Plans requests over one PAGE each and no Engram.
StepPlan plan_for(const std::vector<Request>& requests, int32_t spec_tokens = 0, LogitRows logits = LogitRows::kLast) {
  static const std::vector<int32_t> ids(64, 7);
  static const std::vector<cache::PageId> pages = {cache::PageId{3}};
  std::vector<SequenceRows> rows;
  for (size_t i = 0; i < requests.size(); ++i) {
    SequenceRows row;
    row.start = requests[i].start;
    row.ids = std::span(ids).first(static_cast<size_t>(requests[i].count));
    row.pages = pages;
    row.slot = cache::SlotId{static_cast<int32_t>(i)};
    row.logits = logits;
    row.write_from = requests[i].write_from;
    row.cached_until = requests[i].cached_until;
    rows.push_back(row);
  }
  StepPlan plan;
  plan.build({.engram = {}, .vocabulary = 16, .spec_tokens = spec_tokens}, rows);
  return plan;
}

std::vector<std::array<int32_t, 4>> groups(const StepPlan& plan, int ratio) {
  std::vector<std::array<int32_t, 4>> table;
  for (const ops::CompressedGroup& group : plan.groups(ratio)) {
    table.push_back({group.row, group.request, group.position, group.from_ring});
  }
  return table;
}

std::vector<std::array<int32_t, 3>> ring_rows(const StepPlan& plan) {
  std::vector<std::array<int32_t, 3>> table;
  for (const ops::CompressorRingRow& row : plan.ring_rows()) table.push_back({row.row, row.request, row.position});
  return table;
}

using Group = std::array<int32_t, 4>;
using Ring = std::array<int32_t, 3>;

TEST(StepPlan, PairsCloseAtOddPositions) {
  const StepPlan plan = plan_for({{5, 6}, {0, 3}, {9, 1}});
  EXPECT_THAT(groups(plan, 2), ElementsAre(Group{0, 0, 5, 1}, Group{2, 0, 7, 0}, Group{4, 0, 9, 0}, Group{7, 1, 1, 0},
                                           Group{9, 2, 9, 1}));
  EXPECT_THAT(ring_rows(plan), ElementsAre(Ring{4, 0, 9}, Ring{5, 0, 10}, Ring{7, 1, 1}, Ring{8, 1, 2}, Ring{9, 2, 9}));
}

TEST(StepPlan, RatioOneKeepsOneEntryPerRow) {
  const StepPlan plan = plan_for({{5, 2}, {0, 1}});
  EXPECT_THAT(groups(plan, 1), ElementsAre(Group{0, 0, 5, 0}, Group{1, 0, 6, 0}, Group{2, 1, 0, 0}));
}

TEST(StepPlan, GroupsThatEndBelowWriteFromAreDropped) {
  EXPECT_THAT(groups(plan_for({{4, 6, 8}}), 2), ElementsAre(Group{5, 0, 9, 0}));
  EXPECT_THAT(groups(plan_for({{4, 3, 5}}), 1), ElementsAre(Group{-1, 0, 4, 0}, Group{1, 0, 5, 0}, Group{2, 0, 6, 0}));
}

TEST(StepPlan, VerifyBlockRetainsItsWholeWidth) {
  const StepPlan plan = plan_for({{9, 6}}, 5);
  EXPECT_THAT(groups(plan, 2), ElementsAre(Group{0, 0, 9, 1}, Group{2, 0, 11, 0}, Group{4, 0, 13, 0}));
  EXPECT_EQ(plan.ring_rows().size(), 6u);
}

// Example H: the straddling pair (8, 9) takes token 8 from the compressor ring, where an exact forward left it.
TEST(StepPlan, PairAcrossAnOddResumeReadsTheRing) {
  const StepPlan plan = plan_for({{4, 6, 9, 9}});
  EXPECT_THAT(groups(plan, 2), ElementsAre(Group{5, 0, 9, 1}));
  EXPECT_THAT(ring_rows(plan), ElementsAre(Ring{5, 0, 9}));
}

TEST(StepPlan, LogitRowsAreTheLastOfEachRequestOrAll) {
  EXPECT_THAT(plan_for({{5, 6}, {0, 3}}).logit_rows(), ElementsAre(5, 8));
  EXPECT_EQ(plan_for({{5, 6}, {0, 3}}, 0, LogitRows::kAll).logit_row_count(), 9);
  EXPECT_EQ(plan_for({{5, 6}}, 0, LogitRows::kNone).logit_row_count(), 0);
}

TEST(StepPlan, ArraysDescribeTheBatch) {
  const StepPlan plan = plan_for({{5, 2}, {0, 3}});
  const model::ForwardPlan forward = plan.forward_plan(nullptr, 0, nullptr);
  EXPECT_EQ(forward.batch.tokens, 5);
  EXPECT_EQ(forward.batch.requests, 2);
  EXPECT_THAT(plan.positions(), ElementsAre(5, 6, 0, 1, 2));
  EXPECT_THAT(plan.row_start(), ElementsAre(0, 2, 5));
  EXPECT_EQ(forward.batch.block_tables[0], 3);
  EXPECT_EQ(forward.batch.block_tables[forward.batch.block_table_stride], 3);
  EXPECT_EQ(forward.batch.slots[1], 1);
}

TEST(StepPlan, EngramRowsLookBackThroughHistory) {
  checkpoint::EngramLayer layer;
  layer.max_ngram = 3;
  layer.heads = 1;
  layer.multipliers = {3, 5, 7};
  layer.primes = {101, 103};
  layer.offsets = {0, 101};
  layer.total_rows = 204;
  const std::vector<int32_t> ids = {4, 5};
  const std::vector<int32_t> classes = {1, 2, 4, 5};  // positions 6, 7 | 8, 9
  const std::vector<cache::PageId> pages = {cache::PageId{0}};
  SequenceRows rows;
  rows.start = 8;
  rows.ids = ids;
  rows.classes = classes;
  rows.pages = pages;
  StepPlan plan;
  plan.build({.engram = {layer}, .vocabulary = 16, .spec_tokens = 0}, std::span(&rows, 1));
  const model::ForwardPlan forward = plan.forward_plan(nullptr, 0, nullptr);
  const std::vector<int64_t> got(forward.engram_rows[0], forward.engram_rows[0] + 4);
  const int64_t two8 = (4 * 3) ^ (2 * 5);
  const int64_t two9 = (5 * 3) ^ (4 * 5);
  EXPECT_THAT(got, ElementsAre(two8 % 101, (two8 ^ (1 * 7)) % 103 + 101, two9 % 101, (two9 ^ (2 * 7)) % 103 + 101));
}

}  // namespace
}  // namespace ps::engine
