// The answer of /v1/completions as JSON: "text_completion" objects, whole or in chunks, with the legacy lists of
// log-probabilities (tokens, token_logprobs, top_logprobs, text_offset).
// Threading: see AnswerFormat.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "server/answer_job.h"
#include "server/completions.h"

namespace ps::server {

class CompletionFormat final : public AnswerFormat {
 public:
  CompletionFormat(CompletionCall call, std::shared_ptr<const text::Tokenizer> tokenizer, const std::string& model);

  bool take(size_t index, const Generation& generation, TextDelta delta, std::string* events) override;
  void close(const std::vector<Generation>& generations, std::string& events) override;
  HttpReply whole(const std::vector<Generation>& generations) override;

 private:
  // The four lists of one choice, as far as they go.
  struct Lists {
    std::vector<TokenDetail> tokens;
    size_t without_logprob = 0;  // the first so many have none: a prompt's first token
  };
  [[nodiscard]] const CompletionCall::Prompt& prompt_of(size_t index) const {
    return call_.prompts[index / static_cast<size_t>(call_.n)];
  }
  [[nodiscard]] bool wants_logprobs() const noexcept { return call_.logprobs >= 0; }
  // Puts the echoed prompt before the first part of a choice.
  void echo(size_t index, const Generation& generation, TextDelta& delta, Lists& lists);
  void write_choice(JsonWriter& json, size_t index, const std::string& text, const Lists& lists, AnswerEnd end) const;
  void write_lists(JsonWriter& json, const Lists& lists) const;
  void write_usage(JsonWriter& json, const std::vector<Generation>& generations) const;

  CompletionCall call_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::string head_;  // the members that every object begins with
  struct Choice {
    std::string text;
    Lists lists;
    int64_t shift = 0;  // characters of the echoed prompt
    bool has_begun = false;
  };
  std::vector<Choice> choices_;
};

}  // namespace ps::server
