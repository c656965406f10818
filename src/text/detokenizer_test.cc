#include "text/detokenizer.h"

#include <utility>

#include "text/test_data.h"

namespace ps::text {
namespace {

using test::released_tokenizer;
using Ids = std::vector<TokenId>;

// The rule of encoding.md 1.4 as written: decode all held ids together.
std::vector<std::pair<std::string, int>> by_rule(const Ids& ids) {
  std::vector<std::pair<std::string, int>> emissions;
  Ids held;
  for (const TokenId id : ids) {
    held.push_back(id);
    const std::string text = released_tokenizer().decode(held);
    if (text.empty() || text.ends_with(kReplacement)) continue;
    emissions.emplace_back(text, static_cast<int>(held.size()));
    held.clear();
  }
  return emissions;
}

std::vector<std::pair<std::string, int>> by_stream(const Ids& ids, int* held) {
  std::vector<std::pair<std::string, int>> emissions;
  Detokenizer stream(released_tokenizer());
  for (const TokenId id : ids) {
    const Detokenizer::Emission emission = stream.push(id);
    EXPECT_EQ(emission.tokens == 0, emission.text.empty());
    if (emission.tokens > 0) emissions.emplace_back(emission.text, emission.tokens);
  }
  *held = stream.held_tokens();
  return emissions;
}

Ids byte_tokens(std::string_view bytes) {
  Ids ids;
  for (const char byte : bytes) {
    const Ids id = released_tokenizer().encode(std::string(1, byte));
    ids.insert(ids.end(), id.begin(), id.end());
  }
  return ids;
}

TEST(Detokenizer, HoldsACharacterUntilItIsWhole) {
  Detokenizer stream(released_tokenizer());
  const Ids ids = byte_tokens("\U0001F600!");
  ASSERT_EQ(ids.size(), 5u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(stream.push(ids[i]).tokens, 0);
  EXPECT_EQ(stream.held_tokens(), 3);
  Detokenizer::Emission emission = stream.push(ids[3]);
  EXPECT_EQ(emission.text, "\U0001F600");
  EXPECT_EQ(emission.tokens, 4);
  emission = stream.push(ids[4]);
  EXPECT_EQ(emission.text, "!");
  EXPECT_EQ(emission.tokens, 1);
  EXPECT_EQ(stream.held_tokens(), 0);
}

TEST(Detokenizer, BrokenBytesWaitForTextBehindThem) {
  Detokenizer stream(released_tokenizer());
  for (const TokenId id : byte_tokens("\xF0\x9F")) EXPECT_EQ(stream.push(id).tokens, 0);
  const Detokenizer::Emission emission = stream.push(released_tokenizer().encode("a")[0]);
  EXPECT_EQ(emission.text, "\uFFFDa");
  EXPECT_EQ(emission.tokens, 3);
  // What is still held at the end is neither text nor usage.
  EXPECT_EQ(stream.push(byte_tokens("\xFF")[0]).tokens, 0);
  EXPECT_EQ(stream.held_tokens(), 1);
  stream.reset();
  EXPECT_EQ(stream.held_tokens(), 0);
  EXPECT_EQ(stream.push(released_tokenizer().encode("b")[0]).text, "b");
}

TEST(Detokenizer, KeepsControlTokensAndCountsUnknownIds) {
  Detokenizer stream(released_tokenizer());
  EXPECT_EQ(stream.push(0).text, "<｜begin▁of▁sentence｜>");
  EXPECT_EQ(stream.push(500000).tokens, 0);
  const Detokenizer::Emission emission = stream.push(128822);
  EXPECT_EQ(emission.text, "</think>");
  EXPECT_EQ(emission.tokens, 2);
}

TEST(Detokenizer, AgreesWithTheRuleOnEveryStream) {
  test::TextSource source(23);
  const Ids loose = byte_tokens("\x80\x9F\xBF\xC3\xE2\x82\xF0\x9F\x98\xFF\xEF\xBF\xBD");
  for (int round = 0; round < 5000; ++round) {
    Ids ids;
    while (ids.size() < 30) {
      switch (source.below(4)) {
        case 0: ids.push_back(loose[source.below(static_cast<uint32_t>(loose.size()))]); break;
        case 1: ids.push_back(static_cast<TokenId>(source.below(129300))); break;
        case 2: {
          const Ids cut = byte_tokens(source.text(2));  // one id per byte
          ids.insert(ids.end(), cut.begin(), cut.end());
          break;
        }
        default: {
          const Ids part = released_tokenizer().encode(source.text(4));
          ids.insert(ids.end(), part.begin(), part.end());
        }
      }
    }
    int held = 0;
    const auto emissions = by_stream(ids, &held);
    ASSERT_EQ(emissions, by_rule(ids));
    int covered = held;
    for (const auto& [text, tokens] : emissions) covered += tokens;
    ASSERT_EQ(covered, static_cast<int>(ids.size()));
  }
}

TEST(Detokenizer, WholeTextsComeOutWhole) {
  test::TextSource source(29);
  for (int round = 0; round < 3000; ++round) {
    const std::string text = source.text(30) + "a";
    int held = 0;
    std::string joined;
    for (const auto& [part, tokens] : by_stream(released_tokenizer().encode(text), &held)) joined += part;
    ASSERT_EQ(joined, text);
    ASSERT_EQ(held, 0);
  }
}

}  // namespace
}  // namespace ps::text
