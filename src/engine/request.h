// What a caller asks of the engine and what comes back.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/sampler.h"

namespace ps::engine {

enum class SequenceId : int64_t {};

struct Request {
  std::vector<int32_t> prompt;
  SamplingOptions sampling;
  int64_t max_tokens = 0;  // of the answer; 0: the prompt is computed, nothing is sampled into an answer
  bool ignore_eos = false;
  std::vector<int32_t> stop_ids;  // end the answer like the end-of-sentence token; not part of it
  int32_t top_logprobs = 0;       // per answer token, at most kMaxTopLogprobs
  // Log-probability of every prompt token but the first, and the top_logprobs likeliest tokens in its place; computes
  // the whole prompt anew.
  bool prompt_logprobs = false;
};

inline constexpr int32_t kMaxTopLogprobs = 20;

enum class FinishReason : uint8_t {
  kNone,     // still running
  kStop,     // end-of-sentence token or a stop id
  kLength,   // max_tokens
  kAborted,  // by abort()
};
[[nodiscard]] std::string_view finish_reason_name(FinishReason reason) noexcept;

// One thing that happened to a sequence in a step. The spans live until the next step.
struct Event {
  SequenceId sequence{};
  int32_t token = -1;                        // of the answer; -1: none
  int32_t stop_token = -1;                   // the token that stopped the answer, which is not part of it; -1: none
  float logprob = 0;                         // of `token` or `stop_token`
  std::span<const TokenLogprob> top;         // top_logprobs entries, in the place of that token
  std::span<const float> prompt_logprobs;    // once, with the prompt's end: entry i belongs to prompt token i + 1
  std::span<const TokenLogprob> prompt_top;  // with prompt_logprobs: top_logprobs entries for each of its entries
  FinishReason finish = FinishReason::kNone;
  int64_t cached_tokens = 0;  // of the prompt, served from the prefix cache at admission
  int64_t prompt_tokens = 0;
  int64_t answer_tokens = 0;  // so far
};

// How far the prompt of a sequence is.
struct PromptProgress {
  int64_t computed_tokens = 0;  // of those that must be computed or found before the next answer token
  int64_t total_tokens = 0;
  bool is_waiting = true;  // for admission
};

}  // namespace ps::engine
