// Picks the next token from logits (model.md 5). A draw depends on (seed, position) and the logits only, never on who
// else is in the batch: the random number is a hash of both, not a stream.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"

namespace ps::engine {

struct SamplingOptions {
  double temperature = 0;  // 0 = greedy: the largest logit, the lowest id on ties
  double top_p = 1;        // keeps the smallest set of most likely tokens whose probability reaches top_p
  int32_t top_k = 0;       // keeps the k most likely tokens; 0 = all
  double min_p = 0;        // drops tokens below min_p times the likeliest
  uint64_t seed = 0;
  double repetition_penalty =
      1;  // > 1 makes tokens of prompt and answer less likely: divides positive, multiplies negative logits
  double presence_penalty = 0;                        // subtracted once from tokens of the answer
  double frequency_penalty = 0;                       // subtracted per occurrence in the answer
  std::vector<std::pair<int32_t, float>> logit_bias;  // added first
};
// invalid, naming the option and its legal range.
[[nodiscard]] Status check(const SamplingOptions& options);

// Uniform in [0, 1) from (seed, position).
[[nodiscard]] double position_uniform(uint64_t seed, int64_t position) noexcept;

// One token with its log-probability under the raw logits (softmax at temperature 1, before bias, penalties and cuts).
struct TokenLogprob {
  int32_t id = 0;
  float logprob = 0;
};

// What the choice of one token looks at besides its logits.
struct SampleContext {
  int64_t position = 0;                // of the token to choose
  std::span<const int32_t> prompt;     // for the repetition penalty
  std::span<const int32_t> generated;  // for all penalties
};

// Threading: one thread at a time. Allocates at construction only.
class Sampler {
 public:
  // Ids in `never` are not sampled (encoding.md 1.3).
  Sampler(int32_t vocabulary, std::span<const int32_t> never);

  // REQUIRES: logits.size() == vocabulary, at least one id is legal. NaN logits count as -inf.
  [[nodiscard]] int32_t sample(std::span<const float> logits, const SamplingOptions& options,
                               const SampleContext& context);

  // Log-probability of one id.
  [[nodiscard]] static float logprob(std::span<const float> logits, int32_t id);
  // The `out.size()` likeliest tokens, likeliest first, lower id on ties.
  void top_logprobs(std::span<const float> logits, std::span<TokenLogprob> out);

 private:
  struct Candidate {
    float logit;
    int32_t id;
  };
  [[nodiscard]] std::span<const float> adjusted(std::span<const float> logits, const SamplingOptions& options,
                                                const SampleContext& context);
  [[nodiscard]] int32_t greedy(std::span<const float> logits) const;
  [[nodiscard]] int32_t draw(std::span<const float> logits, const SamplingOptions& options, int32_t likeliest,
                             double uniform);
  // How many of the candidates, sorted, top-k and top-p keep; their weights add up to `total` afterwards.
  [[nodiscard]] size_t cut(const SamplingOptions& options, float top, double& total);
  // Sorts the most likely `count` candidates to the front.
  void sort_front(size_t count);

  std::vector<uint8_t> is_legal_;      // [vocabulary]
  std::vector<Candidate> candidates_;  // capacity: vocabulary
  std::vector<float> adjusted_;        // [vocabulary]
  std::vector<int32_t> counts_;        // [vocabulary], all zero between calls
};

}  // namespace ps::engine
