// POST /v1/completions, OpenAI's legacy shape: raw prompts, echo, log-probabilities of prompt and answer.
// Threading: parse_completion(), make_answer() and CompletionFormat::whole() run on workers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "server/answer_job.h"
#include "server/api_context.h"
#include "server/sampling_fields.h"

namespace ps::server {

struct CompletionCall {
  struct Prompt {
    std::vector<int32_t> ids;
    std::string text;            // what echo repeats
    bool has_bos_added = false;  // ids begins with a token that the text lacks
  };
  std::vector<Prompt> prompts;
  SamplingFields sampling;
  int64_t n = 1;            // answers per prompt
  int64_t max_tokens = 16;  // 0: only the prompt is looked at
  bool echo = false;
  int32_t logprobs = -1;  // -1: none; else further tokens beside the chosen one
};

// What the parser needs to know of the server.
struct CompletionLimits {
  const text::Tokenizer* tokenizer = nullptr;
  int64_t max_context = 0;
  int32_t vocabulary = 0;
};

[[nodiscard]] std::variant<CompletionCall, ApiError> parse_completion(const JsonValue& body,
                                                                      const CompletionLimits& limits);

// The sequences of a call, prompt by prompt, and the format of its answer.
[[nodiscard]] AnswerRequest make_answer(CompletionCall call, std::shared_ptr<const text::Tokenizer> tokenizer,
                                        const std::string& model);

void add_completions_route(Router& router, ApiContext& context);

}  // namespace ps::server
