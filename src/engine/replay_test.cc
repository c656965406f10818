// The worked examples of runtime.md 3.5 (W = H = 4) as tables over the row planner.
#include "engine/replay.h"

#include <gtest/gtest.h>

namespace ps::engine {
namespace {

constexpr ReplayRules kRules{.window = 4, .page_tokens = 4, .encoder_replay = true, .decoder_replay = true};

void expect_rows(const PrefillRows& rows, int32_t start, int32_t window_start, int32_t cached_until, int32_t write_from,
                 int32_t decoder_start) {
  EXPECT_EQ(rows.start, start);
  EXPECT_EQ(rows.window_start, window_start);
  EXPECT_EQ(rows.cached_until, cached_until);
  EXPECT_EQ(rows.write_from, write_from);
  EXPECT_EQ(rows.decoder_start, decoder_start);
}

TEST(Replay, ExampleAColdPromptInOneChunk) {
  expect_rows(prefill_rows(kRules, Resume::kContinue, 10, 0, 10), 0, 0, 0, 0, 6);
}

TEST(Replay, ExampleBShortLastChunkBacksOff) {
  expect_rows(prefill_rows(kRules, Resume::kContinue, 10, 0, 4), 0, 0, 0, 0, 4);  // no decoder row
  expect_rows(prefill_rows(kRules, Resume::kContinue, 10, 4, 8), 4, 0, 0, 0, 8);
  expect_rows(prefill_rows(kRules, Resume::kContinue, 10, 8, 10), 4, 0, 8, 8, 6);
}

TEST(Replay, ExampleCHitWithAShortSuffix) {
  expect_rows(prefill_rows(kRules, Resume::kFreshSlot, 9, 8, 9), 4, 4, 0, 8, 5);
}

TEST(Replay, ExampleDHitWithALongSuffix) {
  expect_rows(prefill_rows(kRules, Resume::kFreshSlot, 14, 8, 14), 4, 4, 0, 8, 10);
}

TEST(Replay, ExampleEPromptShorterThanTheWindow) {
  const PrefillRows rows = prefill_rows(kRules, Resume::kContinue, 2, 0, 2);
  expect_rows(rows, 0, 0, 0, 0, 0);
  EXPECT_FALSE(rows.decoder_truncated);
}

TEST(Replay, ExampleFEnoughRowsNeedNoBackOff) {
  expect_rows(prefill_rows(kRules, Resume::kContinue, 10, 5, 10), 5, 0, 0, 0, 6);
}

TEST(Replay, ExampleGMiddleChunkRunsNoDecoder) {
  expect_rows(prefill_rows(kRules, Resume::kContinue, 20, 4, 8), 4, 0, 0, 0, 8);
}

TEST(Replay, ExampleHOffGridResume) { expect_rows(prefill_rows(kRules, Resume::kContinue, 10, 9, 10), 4, 0, 9, 9, 6); }

TEST(Replay, HitInAMiddleChunkStartsBelowToo) {
  expect_rows(prefill_rows(kRules, Resume::kFreshSlot, 40, 8, 16), 4, 4, 0, 8, 16);
}

TEST(Replay, WithoutDecoderReplayEveryRowRunsEveryLayer) {
  ReplayRules rules = kRules;
  rules.decoder_replay = false;
  expect_rows(prefill_rows(rules, Resume::kContinue, 10, 8, 10), 8, 0, 0, 0, 8);
  expect_rows(prefill_rows(rules, Resume::kFreshSlot, 9, 8, 9), 4, 4, 0, 8, 4);
  EXPECT_FALSE(prefill_rows(rules, Resume::kContinue, 10, 8, 10).decoder_truncated);
}

// The finishing forward holds min(W, prompt) decoder rows whatever the cut before it.
TEST(Replay, FinishingForwardHoldsTheWholeTail) {
  for (int32_t window : {3, 4, 5}) {
    for (int32_t prompt = 1; prompt < 3 * window + 3; ++prompt) {
      for (int32_t resume = 0; resume < prompt; ++resume) {
        for (int32_t page_tokens : {2, 6}) {
          ReplayRules rules = kRules;
          rules.window = window;
          rules.page_tokens = page_tokens;
          const PrefillRows rows = prefill_rows(rules, Resume::kContinue, prompt, resume, prompt);
          EXPECT_EQ(rows.end - rows.decoder_start, std::min(window, prompt))
              << window << ' ' << prompt << ' ' << resume;
          EXPECT_LE(rows.start, resume);
        }
      }
    }
  }
}

}  // namespace
}  // namespace ps::engine
