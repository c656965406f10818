#include "engine/view.h"

#include <gtest/gtest.h>

#include <vector>

namespace ps::engine {
namespace {

// Ten PAGEs: 0 and 1 cached, 2 used, 3 of an image, the rest vacant.
class PageMapTest : public ::testing::Test {
 protected:
  PageMapTest() {
    std::vector<int32_t> tokens(8, 7);
    tokens[5] = 9;
    std::vector<cache::PageId> table;
    EXPECT_TRUE(pages_.reserve(2, table));
    cache::PublishCursor cursor;
    pages_.publish(table, tokens, 8, cursor);
    std::vector<cache::PageId> used;
    EXPECT_TRUE(pages_.reserve(1, used));
    std::vector<cache::PageId> unit(1);
    EXPECT_TRUE(pages_.take_units(unit));
    pages_.release(table);
  }
  cache::PageManager pages_{{.pages = 10, .page_tokens = 4, .layout_id = "layout", .name_space = "model"}};
};

TEST_F(PageMapTest, HasALetterForEachPage) {
  const PageMap map = draw_pages(pages_);
  EXPECT_EQ(map.pages_per_cell, 1);
  EXPECT_EQ(map.cells, "ccuiffffff");
}

TEST_F(PageMapTest, ShowsTheMostTellingPageOfACell) {
  EXPECT_EQ(draw_pages(pages_, 5).pages_per_cell, 2);
  EXPECT_EQ(draw_pages(pages_, 5).cells, "cufff");
  EXPECT_EQ(draw_pages(pages_, 4).pages_per_cell, 3);
  EXPECT_EQ(draw_pages(pages_, 4).cells, "uiff");
  EXPECT_EQ(draw_pages(pages_, 1).cells, "u");
}

TEST(PageMap, StaysWithinItsCells) {
  for (const int32_t count : {1, 2047, 2048, 2049, 4096, 5000, 100000}) {
    const cache::PageManager pages({.pages = count, .page_tokens = 4, .layout_id = "layout", .name_space = "model"});
    const PageMap map = draw_pages(pages);
    const auto cells = static_cast<int64_t>(map.cells.size());
    EXPECT_LE(cells, kMaxPageCells) << count;
    EXPECT_GE(cells * map.pages_per_cell, count) << count;
    EXPECT_LT((cells - 1) * map.pages_per_cell, count) << count;
  }
}

}  // namespace
}  // namespace ps::engine
