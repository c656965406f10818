#include "server/http_message.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

namespace ps::server {
namespace {

const std::filesystem::path kRoot = std::filesystem::path(PAGESTATE_TEST_DATA).parent_path();

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::set<int> numbers_in(const std::string& text, const std::regex& expression) {
  std::set<int> found;
  for (std::sregex_iterator it(text.begin(), text.end(), expression), end; it != end; ++it) {
    found.insert(std::stoi((*it)[1]));
  }
  return found;
}

std::set<int> listed(int least) {
  std::set<int> statuses;
  for (const HttpStatus& known : http_statuses()) {
    if (known.status >= least) statuses.insert(known.status);
  }
  return statuses;
}

TEST(HttpStatuses, TheTableOfTheDocumentHasAllErrorsAndNoOther) {
  const std::string page = read_text(kRoot / "docs/serve.md");
  const size_t start = page.find("\n| status |");
  ASSERT_NE(start, std::string::npos);
  std::istringstream lines(page.substr(start + 1));
  std::string cells;  // the first of each row
  for (std::string line; std::getline(lines, line) && line.starts_with("|");) {
    cells += line.substr(1, line.find('|', 1) - 1) + "\n";
  }
  EXPECT_EQ(numbers_in(cells, std::regex("(\\d{3})")), listed(400));
}

TEST(HttpStatuses, TheCodeSendsNoOther) {
  std::set<int> sent = {200};  // of HttpReply and of streams
  for (const auto& entry : std::filesystem::directory_iterator(kRoot / "src/server")) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(".cc") || name.ends_with("_test.cc")) continue;
    // ApiError::http(404, ...), return {404, ...}, reply.status = 204
    sent.merge(numbers_in(read_text(entry.path()), std::regex(R"((?:\bhttp\(|return \{|status = )(\d{3})\b)")));
  }
  EXPECT_EQ(sent, listed(0));
}

}  // namespace
}  // namespace ps::server
