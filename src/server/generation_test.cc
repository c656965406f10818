#include "server/generation.h"

#include <gtest/gtest.h>

#include "server/testing.h"

namespace ps::server {
namespace {

using test::byte_id;
using test::small_tokenizer;

engine::Event token(int32_t id, float logprob = -1) {
  engine::Event event;
  event.token = id;
  event.logprob = logprob;
  event.prompt_tokens = 9;
  event.cached_tokens = 4;
  return event;
}

engine::Event ending(engine::FinishReason reason) {
  engine::Event event;
  event.finish = reason;
  event.prompt_tokens = 9;
  return event;
}

// Feeds the bytes of `text` as one token each; returns the texts of the deltas.
std::vector<std::string> feed(Generation& generation, std::string_view text) {
  std::vector<std::string> deltas;
  for (const char byte : text) {
    TextDelta delta;
    generation.take(token(byte_id(byte)), delta);
    deltas.push_back(delta.text);
  }
  return deltas;
}

std::string joined(const std::vector<std::string>& parts) {
  std::string all;
  for (const std::string& part : parts) all += part;
  return all;
}

TEST(Generation, GivesWholeCharacters) {
  Generation generation(*small_tokenizer(), {});
  EXPECT_EQ(feed(generation, "a\xC3\xA9z"), (std::vector<std::string>{"a", "", "\xC3\xA9", "z"}));
  EXPECT_EQ(generation.usage().completion_tokens, 4);
  EXPECT_EQ(generation.usage().prompt_tokens, 9);
  EXPECT_EQ(generation.usage().cached_tokens, 4);
}

TEST(Generation, EndsAtAStopStringWhereverItIsCut) {
  Generation generation(*small_tokenizer(), {{"STOP"}, false});
  EXPECT_EQ(joined(feed(generation, "go STOP on")), "go ");
  EXPECT_EQ(generation.end(), AnswerEnd::kStopString);
  EXPECT_EQ(generation.stop_string(), "STOP");
  EXPECT_EQ(generation.usage().completion_tokens, 7);
}

TEST(Generation, ShowsWhatWasHeldWhenTheAnswerEnds) {
  Generation generation(*small_tokenizer(), {{"STOP"}, false});
  EXPECT_EQ(joined(feed(generation, "go STO")), "go ");
  TextDelta delta;
  generation.take(ending(engine::FinishReason::kStop), delta);
  EXPECT_EQ(delta.text, "STO");
  EXPECT_EQ(generation.end(), AnswerEnd::kStop);
}

TEST(Generation, DropsAnUnfinishedCharacterAtTheEnd) {
  Generation generation(*small_tokenizer(), {{}, true});
  feed(generation, "a");
  TextDelta delta;
  generation.take(token(byte_id('\xC3')), delta);
  EXPECT_TRUE(delta.empty());
  generation.take(ending(engine::FinishReason::kLength), delta);
  EXPECT_EQ(delta.text, "");
  ASSERT_EQ(delta.tokens.size(), 1u);  // scoring needs the token all the same
  EXPECT_EQ(delta.tokens[0].id, byte_id('\xC3'));
  EXPECT_EQ(generation.usage().completion_tokens, 1);
}

TEST(Generation, TakesNothingAfterItsEnd) {
  Generation generation(*small_tokenizer(), {{"x"}, false});
  EXPECT_EQ(joined(feed(generation, "axbc")), "a");
  TextDelta delta;
  generation.take(ending(engine::FinishReason::kLength), delta);
  EXPECT_EQ(generation.end(), AnswerEnd::kStopString);
  EXPECT_TRUE(delta.empty());
}

TEST(Generation, DetailsLeaveWithTheirText) {
  Generation generation(*small_tokenizer(), {{"bc"}, true});
  TextDelta first;
  generation.take(token(byte_id('a'), -0.5F), first);
  ASSERT_EQ(first.tokens.size(), 1u);
  EXPECT_EQ(first.tokens[0].logprob, -0.5F);
  EXPECT_EQ(first.tokens[0].offset, 0);
  TextDelta held;
  generation.take(token(byte_id('b')), held);
  EXPECT_TRUE(held.empty());
  TextDelta freed;
  generation.take(token(byte_id('d')), freed);
  EXPECT_EQ(freed.text, "bd");
  ASSERT_EQ(freed.tokens.size(), 2u);
  EXPECT_EQ(freed.tokens[1].offset, 2);
}

TEST(Generation, TokensOfAStopStringHaveNoDetails) {
  Generation generation(*small_tokenizer(), {{"bc"}, true});
  TextDelta delta;
  for (const char byte : std::string("abc")) generation.take(token(byte_id(byte)), delta);
  EXPECT_EQ(delta.text, "a");
  EXPECT_EQ(delta.tokens.size(), 1u);
}

TEST(Generation, OffsetsCountCharacters) {
  Generation generation(*small_tokenizer(), {{}, true});
  TextDelta delta;
  for (const char byte : std::string("\xC3\xA9z")) generation.take(token(byte_id(byte)), delta);
  ASSERT_EQ(delta.tokens.size(), 3u);
  EXPECT_EQ(delta.tokens[0].offset, 0);
  EXPECT_EQ(delta.tokens[1].offset, 1);  // the character has begun
  EXPECT_EQ(delta.tokens[2].offset, 1);
}

// Whatever the bytes are, the text between two offsets is the text of the token between them.
TEST(Generation, OffsetsOfBrokenBytesFollowTheTextThatTheyBecome) {
  Generation generation(*small_tokenizer(), {{}, true});
  TextDelta delta;
  for (const char byte : std::string("\x80\xE2\x80z\xE2\xE2\x80\xA6z")) generation.take(token(byte_id(byte)), delta);
  EXPECT_EQ(delta.text, "\uFFFD\uFFFDz\uFFFD\u2026z");
  std::vector<int64_t> offsets;
  for (const TokenDetail& detail : delta.tokens) offsets.push_back(detail.offset);
  EXPECT_EQ(offsets, (std::vector<int64_t>{0, 1, 2, 2, 3, 4, 5, 5, 5}));
}

TEST(Generation, TheStoppingTokenHasDetailsButNoText) {
  Generation generation(*small_tokenizer(), {{}, true});
  TextDelta delta;
  generation.take(token(byte_id('a')), delta);
  engine::Event stop = ending(engine::FinishReason::kStop);
  stop.stop_token = 1;
  stop.logprob = -3;
  generation.take(stop, delta);
  EXPECT_EQ(delta.text, "a");
  ASSERT_EQ(delta.tokens.size(), 2u);
  EXPECT_EQ(delta.tokens[1].id, 1);
  EXPECT_EQ(delta.tokens[1].logprob, -3);
  EXPECT_EQ(generation.usage().completion_tokens, 1);
}

TEST(Generation, KeepsPromptLogprobs) {
  Generation generation(*small_tokenizer(), {{}, true});
  const std::vector<float> logprobs = {-1, -2};
  const std::vector<engine::TokenLogprob> top = {{3, -1}, {4, -2}};
  engine::Event event = token(byte_id('a'));
  event.prompt_logprobs = logprobs;
  event.prompt_top = top;
  TextDelta delta;
  generation.take(event, delta);
  ASSERT_EQ(generation.prompt_logprobs().size(), 2u);
  EXPECT_EQ(generation.prompt_logprobs()[1], -2);
  EXPECT_EQ(generation.prompt_top()[0].id, 3);
}

}  // namespace
}  // namespace ps::server
