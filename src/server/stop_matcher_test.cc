#include "server/stop_matcher.h"

#include <gtest/gtest.h>

#include <random>

namespace ps::server {
namespace {

struct Outcome {
  std::string text;
  std::string match;  // empty: none
  bool operator==(const Outcome&) const = default;
};

Outcome feed(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  StopMatcher matcher(stops);
  Outcome outcome;
  for (const std::string& piece : pieces) matcher.push(piece, outcome.text);
  matcher.finish(outcome.text);
  if (matcher.match() != nullptr) outcome.match = *matcher.match();
  return outcome;
}

// By definition: the shortest prefix of the text that ends with a stop string; the first such string in the list.
Outcome defined(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    for (const std::string& stop : stops) {
      if (!stop.empty() && std::string_view(text).substr(0, end).ends_with(stop)) {
        return {text.substr(0, end - stop.size()), stop};
      }
    }
  }
  return {text, ""};
}

TEST(StopMatcher, CutsBeforeTheStopStringAtEverySplit) {
  const std::string text = "one two END three";
  for (size_t a = 0; a <= text.size(); ++a) {
    for (size_t b = a; b <= text.size(); ++b) {
      const Outcome outcome = feed({"END"}, {text.substr(0, a), text.substr(a, b - a), text.substr(b)});
      EXPECT_EQ(outcome, (Outcome{"one two ", "END"})) << a << " " << b;
    }
  }
}

TEST(StopMatcher, NeverShowsAPartOfAStopString) {
  StopMatcher matcher({"\n\nHuman:"});
  std::string shown;
  for (const char c : std::string("Hi\n\nHuma")) matcher.push({&c, 1}, shown);
  EXPECT_EQ(shown, "Hi");
  matcher.push("n:", shown);
  EXPECT_EQ(shown, "Hi");
  EXPECT_NE(matcher.match(), nullptr);
}

TEST(StopMatcher, ReleasesAtOnceWhatIsDecided) {
  StopMatcher matcher({"abc"});
  std::string shown;
  matcher.push("xxab", shown);
  EXPECT_EQ(shown, "xx");
  matcher.push("d", shown);
  EXPECT_EQ(shown, "xxabd");
}

TEST(StopMatcher, ReleasesWhatWasHeldAtTheEnd) { EXPECT_EQ(feed({"abc"}, {"zab"}), (Outcome{"zab", ""})); }

TEST(StopMatcher, TakesTheMatchThatEndsFirst) {
  EXPECT_EQ(feed({"bcd", "c"}, {"abcd"}), (Outcome{"ab", "c"}));
  EXPECT_EQ(feed({"c", "bc"}, {"abc"}), (Outcome{"ab", "c"}));
  EXPECT_EQ(feed({"bc", "c"}, {"abc"}), (Outcome{"a", "bc"}));
}

TEST(StopMatcher, IgnoresEmptyStrings) { EXPECT_EQ(feed({"", "x"}, {"ab", "xc"}), (Outcome{"ab", "x"})); }

TEST(StopMatcher, AgreesWithTheDefinitionOnRandomText) {
  std::mt19937 random(7);
  const auto word = [&](int longest) {
    std::string text;
    for (int i = static_cast<int>(random() % static_cast<unsigned>(longest + 1)); i > 0; --i) {
      text += static_cast<char>('a' + random() % 2);
    }
    return text;
  };
  for (int round = 0; round < 20000; ++round) {
    const std::vector<std::string> stops = {word(4), word(5), word(6)};
    const std::string text = word(24);
    std::vector<std::string> pieces;
    for (size_t at = 0; at < text.size();) {
      const size_t length = 1 + random() % 4;
      pieces.push_back(text.substr(at, length));
      at += length;
    }
    ASSERT_EQ(feed(stops, pieces), defined(stops, text)) << text;
  }
}

}  // namespace
}  // namespace ps::server
