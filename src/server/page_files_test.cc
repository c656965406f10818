#include "server/page_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <set>
#include <string>

#include "base/mapped_file.h"

namespace ps::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::filesystem::path kFolder = std::filesystem::path(PAGESTATE_TEST_DATA).parent_path() / "src/server/page";

TEST(PageFiles, HoldTheBytesOfEveryFileOfTheFolder) {
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    const std::string name = entry.path().filename();
    const PageFile* file = find_page_file(name == "index.html" ? "/" : "/page/" + name);
    ASSERT_NE(file, nullptr) << name;
    const auto bytes = read_file(entry.path(), 1 << 20);
    ASSERT_TRUE(bytes.ok()) << bytes.status().to_string();
    EXPECT_EQ(file->bytes, bytes.value()) << name;
    ++files;
  }
  EXPECT_EQ(page_files().size(), files);
}

TEST(PageFiles, AreFoundByExactPathOnly) {
  for (const char* path : {"", "/page", "/page/", "/index.html", "/page/page.js/", "/page/../page/page.js", "//"}) {
    EXPECT_EQ(find_page_file(path), nullptr) << path;
  }
}

TEST(PageFiles, SayTheirTypeAndHaveTagsOfTheirOwn) {
  EXPECT_EQ(find_page_file("/")->content_type, "text/html; charset=utf-8");
  EXPECT_EQ(find_page_file("/page/page.js")->content_type, "text/javascript; charset=utf-8");
  EXPECT_EQ(find_page_file("/page/page.css")->content_type, "text/css; charset=utf-8");
  EXPECT_EQ(find_page_file("/page/icon.svg")->content_type, "image/svg+xml");
  std::set<std::string_view> tags;
  for (const PageFile& file : page_files()) {
    EXPECT_THAT(std::string(file.etag), ::testing::MatchesRegex("\"[0-9a-f]{32}\"")) << file.path;
    tags.insert(file.etag);
  }
  EXPECT_EQ(tags.size(), page_files().size());
}

// What the page refers to is there, under paths that also work behind a proxy's prefix.
TEST(PageFiles, ReferToEachOtherByRelativePaths) {
  const std::string html(find_page_file("/")->bytes);
  const std::regex reference("(?:src|href)=\"([^\"#][^\"]*)\"");
  int references = 0;
  for (std::sregex_iterator at(html.begin(), html.end(), reference), end; at != end; ++at, ++references) {
    EXPECT_NE(find_page_file("/" + (*at)[1].str()), nullptr) << (*at)[1];
  }
  EXPECT_GE(references, 3);
}

// The policy forbids what is inline, so the page must not need it.
TEST(PageFiles, HaveNothingInlineAndNoOtherHost) {
  const std::string html(find_page_file("/")->bytes);
  EXPECT_FALSE(std::regex_search(html, std::regex("<style|style=|\\son[a-z]+=|<script(?![^>]* src=)")));
  for (const PageFile& file : page_files()) {
    const std::string text(file.bytes);
    EXPECT_FALSE(std::regex_search(text, std::regex("innerHTML|outerHTML|insertAdjacentHTML|\\beval\\("))) << file.path;
    // Namespaces of SVG look like addresses; nothing else may.
    const std::string rest = std::regex_replace(text, std::regex("http://www\\.w3\\.org/2000/svg"), "");
    EXPECT_FALSE(std::regex_search(rest, std::regex("https?://|url\\(|@import"))) << file.path;
  }
  EXPECT_THAT(std::string(kPageSecurityPolicy), HasSubstr("default-src 'none'"));
  EXPECT_THAT(std::string(kPageSecurityPolicy), Not(HasSubstr("unsafe")));
}

}  // namespace
}  // namespace ps::server
