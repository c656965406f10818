#include "text/token_trie.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace ps::text {
namespace {

TEST(TokenTrie, LeftmostThenLongest) {
  TokenTrie trie;
  trie.add("ab", 1);
  trie.add("abcd", 2);
  trie.add("bcde", 3);
  trie.add("c", 4);
  const auto find = [&trie](std::string_view text, size_t from = 0) {
    const TokenTrie::Match match = trie.find(text, from);
    return std::pair(match.id, std::string(text.substr(match.begin, match.end - match.begin)));
  };
  EXPECT_EQ(find("xabcde"), std::pair(2, std::string("abcd")));
  EXPECT_EQ(find("xabce"), std::pair(1, std::string("ab")));
  EXPECT_EQ(find("xbcde"), std::pair(3, std::string("bcde")));
  EXPECT_EQ(find("xbcd"), std::pair(4, std::string("c")));
  EXPECT_EQ(find("abcd", 1), std::pair(4, std::string("c")));
  EXPECT_EQ(find("xyz").first, -1);
  EXPECT_EQ(find("").first, -1);
  EXPECT_EQ(TokenTrie().find("abc", 0).id, -1);
}

TEST(TokenTrie, AgreesWithTryingEveryString) {
  std::mt19937 random(1);
  const auto word = [&random](size_t longest) {
    std::string text;
    for (size_t i = 1 + random() % longest; i > 0; --i) text += static_cast<char>('a' + random() % 3);
    return text;
  };
  for (int round = 0; round < 2000; ++round) {
    TokenTrie trie;
    std::vector<std::string> strings;
    for (int i = 0; i < 6; ++i) {
      std::string candidate = word(5);
      if (std::find(strings.begin(), strings.end(), candidate) != strings.end()) continue;
      trie.add(candidate, static_cast<TokenId>(strings.size()));
      strings.push_back(std::move(candidate));
    }
    const std::string text = word(20);
    TokenTrie::Match expected;
    for (size_t begin = 0; begin < text.size() && expected.id < 0; ++begin) {
      for (size_t i = 0; i < strings.size(); ++i) {
        const size_t end = begin + strings[i].size();
        if (text.compare(begin, strings[i].size(), strings[i]) != 0 || end <= expected.end) continue;
        expected = {begin, end, static_cast<TokenId>(i)};
      }
    }
    const TokenTrie::Match found = trie.find(text, 0);
    ASSERT_EQ(found.id, expected.id) << text;
    ASSERT_EQ(found.begin, expected.begin) << text;
    ASSERT_EQ(found.end, expected.end) << text;
  }
}

}  // namespace
}  // namespace ps::text
