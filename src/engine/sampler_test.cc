#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

namespace ps::engine {
namespace {

TEST(Sampler, GreedyTakesTheLowestIdOfATie) {
  Sampler sampler(4, {});
  const std::vector<float> logits = {1, 3, 3, 2};
  EXPECT_EQ(sampler.sample(logits, {}, {.position = 0}), 1);
}

TEST(Sampler, NeverPicksMaskedOrNan) {
  const std::vector<int32_t> never = {1, 2};
  Sampler sampler(4, never);
  const std::vector<float> logits = {std::numeric_limits<float>::quiet_NaN(), 9, 8, -50};
  EXPECT_EQ(sampler.sample(logits, {}, {.position = 0}), 3);
  EXPECT_EQ(sampler.sample(logits, {.temperature = 1}, {.position = 5}), 3);
  // Pitfall 34 of the prompt: no bias makes a masked id legal.
  SamplingOptions biased;
  biased.logit_bias = {{1, 100.0f}, {2, 100.0f}};
  EXPECT_EQ(sampler.sample(logits, biased, {.position = 0}), 3);
}

TEST(Sampler, EqualSeedAndPositionGiveEqualDraws) {
  Sampler sampler(64, {});
  std::vector<float> logits(64);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = std::sin(static_cast<float>(i));
  const SamplingOptions options{.temperature = 1, .seed = 9};
  for (int64_t position = 0; position < 50; ++position) {
    EXPECT_EQ(sampler.sample(logits, options, {.position = position}),
              sampler.sample(logits, options, {.position = position}));
  }
}

// Frequencies of 40,000 positions against the softmax: five standard deviations.
TEST(Sampler, FollowsTheDistribution) {
  Sampler sampler(3, {});
  const std::vector<float> logits = {0.0f, 1.0f, 2.0f};
  const double total = 1 + std::exp(1.0) + std::exp(2.0);
  std::map<int32_t, int> count;
  constexpr int kDraws = 40000;
  for (int position = 0; position < kDraws; ++position)
    ++count[sampler.sample(logits, {.temperature = 1}, {.position = position})];
  for (int32_t id = 0; id < 3; ++id) {
    const double p = std::exp(static_cast<double>(id)) / total;
    EXPECT_NEAR(count[id], kDraws * p, 5 * std::sqrt(kDraws * p * (1 - p))) << id;
  }
}

TEST(Sampler, TopPKeepsTheSmallestSetThatReachesIt) {
  Sampler sampler(4, {});
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.15f), std::log(0.05f)};
  std::map<int32_t, int> count;
  for (int position = 0; position < 2000; ++position) {
    ++count[sampler.sample(logits, {.temperature = 1, .top_p = 0.75}, {.position = position})];
  }
  EXPECT_EQ(count.size(), 2u);
  EXPECT_NEAR(count[0], 2000 * 0.625, 110);
}

TEST(Sampler, TopKAndMinPCut) {
  Sampler sampler(200, {});
  std::vector<float> logits(200, 0.0f);
  logits[7] = 1.0f;
  logits[9] = 0.5f;
  std::map<int32_t, int> count;
  for (int position = 0; position < 500; ++position) {
    ++count[sampler.sample(logits, {.temperature = 1, .top_k = 2}, {.position = position})];
    ++count[sampler.sample(logits, {.temperature = 1, .min_p = 0.5}, {.position = position})];
  }
  EXPECT_EQ(count.size(), 2u);
}

TEST(Sampler, PenaltiesAndBiasMoveLogits) {
  Sampler sampler(4, {});
  const std::vector<float> logits = {1.0f, 1.5f, 1.2f, -1.0f};
  const std::vector<int32_t> prompt = {1, 1};
  const std::vector<int32_t> generated = {2, 2};
  const SampleContext context{.position = 3, .prompt = prompt, .generated = generated};
  EXPECT_EQ(sampler.sample(logits, {}, context), 1);
  EXPECT_EQ(sampler.sample(logits, {.repetition_penalty = 2}, context), 0);
  EXPECT_EQ(sampler.sample(logits, {.frequency_penalty = 0.2}, context), 1);
  EXPECT_EQ(sampler.sample(logits, {.logit_bias = {{3, 5.0f}}}, context), 3);
  EXPECT_EQ(sampler.sample(logits, {.presence_penalty = -2}, context), 2);
  EXPECT_EQ(sampler.sample(logits, {}, context), 1);  // nothing sticks
}

TEST(Sampler, LogprobsAreTheRawSoftmax) {
  Sampler sampler(3, {});
  const std::vector<float> logits = {0.0f, 2.0f, 1.0f};
  std::vector<TokenLogprob> top(2);
  sampler.top_logprobs(logits, top);
  const double total = 1 + std::exp(1.0) + std::exp(2.0);
  EXPECT_EQ(top[0].id, 1);
  EXPECT_EQ(top[1].id, 2);
  EXPECT_NEAR(top[1].logprob, 1 - std::log(total), 1e-6);
  EXPECT_NEAR(Sampler::logprob(logits, 0), -std::log(total), 1e-6);
}

TEST(Sampler, OptionsOutsideTheirRangesAreRefused) {
  EXPECT_FALSE(check(SamplingOptions{.temperature = -1}).ok());
  EXPECT_FALSE(check(SamplingOptions{.temperature = std::nan("")}).ok());
  EXPECT_FALSE(check(SamplingOptions{.top_p = 0}).ok());
  EXPECT_FALSE(check(SamplingOptions{.top_k = -1}).ok());
  EXPECT_FALSE(check(SamplingOptions{.min_p = 2}).ok());
  EXPECT_TRUE(check(SamplingOptions{.temperature = 0.7, .top_p = 0.95}).ok());
}

}  // namespace
}  // namespace ps::engine
