// Who answers in `pagestate chat`: the engine in this process, or a server. The session knows only this interface.
//
// Every question carries the whole conversation; keeping a prefix is the backend's business. Threading: one thread; a
// backend calls the sink inside answer().
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "text/chat.h"

namespace ps::apps::chat {

// What the user asked for; nothing: the backend's default.
struct SamplingWishes {
  std::optional<double> temperature;  // 0..2; 0 is greedy
  std::optional<double> top_p;        // (0, 1]
  std::optional<int64_t> max_tokens;  // of the answer, thinking included
  std::optional<int64_t> seed;        // 0 .. 2^63 - 1
};

struct Question {
  text::ChatRequest chat;
  SamplingWishes sampling;
};

enum class AnswerEnd : uint8_t {
  kComplete,
  kLength,   // max_tokens or the context
  kStopped,  // by the user
};

struct AnswerFigures {
  AnswerEnd end = AnswerEnd::kComplete;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompt, served from the prefix cache
  int64_t answer_tokens = 0;
  double first_seconds = 0;  // from the question to the first token
  double total_seconds = 0;

  // Tokens behind the first one; 0 where there are none.
  [[nodiscard]] double tokens_per_second() const noexcept {
    const double seconds = total_seconds - first_seconds;
    return answer_tokens > 1 && seconds > 0 ? static_cast<double>(answer_tokens - 1) / seconds : 0;
  }
};

// Gets the answer as it comes, in whole characters.
class AnswerSink {
 public:
  virtual ~AnswerSink() = default;
  virtual void reasoning(std::string_view text) = 0;
  virtual void content(std::string_view text) = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  // `is_stopped` is asked often; once it is true, the answer ends with what came so far.
  [[nodiscard]] virtual Result<AnswerFigures> answer(const Question& question, AnswerSink& sink,
                                                     const std::function<bool()>& is_stopped) = 0;
  // Lines for /stats: who answers, and in which state that is.
  [[nodiscard]] virtual std::string describe() = 0;
};

}  // namespace ps::apps::chat
