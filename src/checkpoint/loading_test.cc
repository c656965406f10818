#include "checkpoint/loading.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/testing.h"

namespace ps::checkpoint {
namespace {

constexpr int64_t kMegabyte = 1 << 20;

// A file of 64 MB, on the disk and no longer in the page cache.
class LoadingTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string content(static_cast<size_t>(64 * kMegabyte), '\0');
    for (size_t i = 0; i < content.size(); i += 509) content[i] = static_cast<char>(i / 509);
    ASSERT_TRUE(write_file(folder_.path() / "file", content).ok());  // synced
    file_ = MappedFile::open(folder_.path() / "file").value();
    file_.forget(0, file_.size_bytes());
    if (cached(0, 64) != 0) GTEST_SKIP() << "the file system keeps its files in memory";
  }
  // In pages, of megabytes [begin, end).
  [[nodiscard]] int64_t cached(int64_t begin, int64_t end) const {
    const auto pages = file_.cached_pages(begin * kMegabyte, (end - begin) * kMegabyte);
    return pages ? pages->cached : -1;
  }
  [[nodiscard]] LoadRange range(int64_t begin, int64_t end, std::byte* copy = nullptr) const {
    return {&file_, begin * kMegabyte, (end - begin) * kMegabyte, copy};
  }

  test::TemporaryFolder folder_;
  MappedFile file_;
};

constexpr int64_t kPagesOfMegabyte = 256;

TEST_F(LoadingTest, ReadsTheRangesAndNothingElse) {
  const LoadFigures figures = load({range(40, 50), range(0, 10)}, 2, {}).value();
  EXPECT_EQ(figures.total_bytes, 20 * kMegabyte);
  EXPECT_EQ(figures.cached_bytes, 0);
  EXPECT_EQ(cached(40, 50), 10 * kPagesOfMegabyte);
  EXPECT_EQ(cached(0, 10), 10 * kPagesOfMegabyte);
  EXPECT_EQ(cached(52, 64), 0);
}

TEST_F(LoadingTest, TellsWhatWasThereAndDoesTheRest) {
  ASSERT_TRUE(load({range(0, 16)}, 1, {}).ok());
  int64_t total = -1;
  const LoadFigures figures = load({range(0, 32)}, 2, [&](int64_t, int64_t all) {
                                total = all;
                                return true;
                              }).value();
  EXPECT_EQ(figures.cached_bytes, 16 * kMegabyte);
  EXPECT_EQ(total, 16 * kMegabyte);
  EXPECT_EQ(cached(0, 32), 32 * kPagesOfMegabyte);
}

// A range that fails shows where the one thread stands.
TEST_F(LoadingTest, ReadsInTheOrderGivenUntilOneFails) {
  ASSERT_TRUE(write_file(folder_.path() / "short", std::string(8192, 'x')).ok());
  const MappedFile shrunk = MappedFile::open(folder_.path() / "short").value();
  std::filesystem::resize_file(folder_.path() / "short", 100);
  std::vector<std::byte> copies(static_cast<size_t>(3 * kMegabyte));
  const LoadRange bad = {&shrunk, 0, 8192, copies.data() + 2 * kMegabyte};
  const Status status =
      load({range(40, 41, copies.data()), bad, range(3, 4, copies.data() + kMegabyte)}, 1, {}).status();
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_NE(status.message().find("short: shrank"), std::string::npos) << status.message();
  EXPECT_EQ(std::memcmp(copies.data(), file_.bytes().data() + 40 * kMegabyte, kMegabyte), 0);
  EXPECT_EQ(copies[kMegabyte + 401], std::byte{0}) << "behind the failure";
}

TEST_F(LoadingTest, ACopyLeavesThePageCacheAsItWas) {
  ASSERT_TRUE(load({range(0, 11)}, 1, {}).ok());
  std::vector<std::byte> copy(static_cast<size_t>(24 * kMegabyte));
  const LoadFigures figures = load({range(0, 24, copy.data())}, 2, {}).value();
  EXPECT_GE(figures.cached_bytes, 11 * kMegabyte);
  EXPECT_EQ(cached(0, 11), 11 * kPagesOfMegabyte);
  EXPECT_LT(cached(16, 24), 8 * kPagesOfMegabyte / 4) << "what is copied need not lie in memory twice";
  EXPECT_TRUE(std::equal(copy.begin(), copy.end(), file_.bytes().begin()));
}

TEST_F(LoadingTest, NothingIsDoneAtOnce) {
  EXPECT_EQ(load({}, 4, {}).value().total_bytes, 0);
  EXPECT_EQ(load({range(3, 3)}, 4, {}).value().total_bytes, 0);
}

}  // namespace
}  // namespace ps::checkpoint
