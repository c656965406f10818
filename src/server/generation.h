// One answer as text: ids in, text deltas out, with stop strings cut and log-probabilities kept in step with the text.
// Every surface stands on it; it knows no HTTP and no engine thread, only the engine's events.
//
// Text comes out in whole characters (text/detokenizer.h); what may become a stop string is held back. A token's
// details come out with the last of its text. Tokens that never became text give details at the end and no usage.
// Threading: one thread at a time; the tokenizer outlives it.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "engine/request.h"
#include "server/stop_matcher.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace ps::server {

// A token with what the logits in its place said.
struct TokenDetail {
  int32_t id = 0;
  float logprob = 0;
  std::vector<engine::TokenLogprob> top;
  int64_t offset = 0;  // characters of the answer that have begun before it
};

// Characters of a text that arrives in tokens: broken bytes count as the replacement characters that they become.
class CharacterCount {
 public:
  void add(std::string_view bytes);
  // Those that have begun, an unfinished one included.
  [[nodiscard]] int64_t begun() const noexcept { return whole_ + (decoder_.has_tail() ? 1 : 0); }

 private:
  text::LossyUtf8 decoder_;
  int64_t whole_ = 0;
};

struct TextDelta {
  std::string text;
  std::vector<TokenDetail> tokens;  // when details are kept
  [[nodiscard]] bool empty() const noexcept { return text.empty() && tokens.empty(); }
};

struct TokenUsage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompt
  int64_t completion_tokens = 0;
};

enum class AnswerEnd : uint8_t {
  kNone,        // goes on
  kStop,        // end-of-sentence token or a stop id
  kStopString,  // stop_string()
  kLength,
  kAborted,
};

class Generation {
 public:
  struct Options {
    std::vector<std::string> stops;
    bool keeps_details = false;
  };
  Generation(const text::Tokenizer& tokenizer, Options options);

  // Takes the next event of its sequence; appends to `delta` what can be shown. After the end it takes nothing.
  void take(const engine::Event& event, TextDelta& delta);
  // Ends here for a reason outside: what is held back comes out.
  void finish(AnswerEnd end, TextDelta& delta);

  [[nodiscard]] AnswerEnd end() const noexcept { return end_; }
  // REQUIRES: kStopString.
  [[nodiscard]] const std::string& stop_string() const noexcept { return *matcher_.match(); }
  [[nodiscard]] const TokenUsage& usage() const noexcept { return usage_; }

  // Once the first event came, when the request asked for them: entry i belongs to prompt token i + 1.
  [[nodiscard]] std::span<const float> prompt_logprobs() const noexcept { return prompt_logprobs_; }
  // An equal number of entries for each of them.
  [[nodiscard]] std::span<const engine::TokenLogprob> prompt_top() const noexcept { return prompt_top_; }

 private:
  struct Waiting {
    TokenDetail detail;
    size_t begin = 0;  // of its text in the answer, in bytes
    size_t end = 0;
    bool has_text = false;
  };
  void push(const engine::Event& event, TextDelta& delta);
  void keep_detail(int32_t id, const engine::Event& event);
  void release_details(TextDelta& delta);

  const text::Tokenizer& tokenizer_;
  bool keeps_details_;
  text::Detokenizer detokenizer_;
  StopMatcher matcher_;
  AnswerEnd end_ = AnswerEnd::kNone;
  TokenUsage usage_;
  std::deque<Waiting> waiting_;  // details whose text is not out
  size_t decoded_bytes_ = 0;     // of text out of the detokenizer
  size_t shown_bytes_ = 0;
  CharacterCount characters_;
  std::vector<float> prompt_logprobs_;
  std::vector<engine::TokenLogprob> prompt_top_;
};

// Characters of whole UTF-8.
[[nodiscard]] int64_t count_characters(std::string_view text) noexcept;

}  // namespace ps::server
