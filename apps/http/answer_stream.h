// A streamed answer of OpenAI's surfaces, from bytes that arrive in any cuts: its chunks until "[DONE]", what it says
// of its end and its usage, and the error that takes the place of what was still to come.
//
// Must not know what a choice holds: text, deltas. Threading: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/http/sse_reader.h"
#include "base/json.h"
#include "base/status.h"

namespace ps::apps {

struct StreamUsage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompt
  int64_t answer_tokens = 0;
};

class AnswerStream {
 public:
  // Gets the first choice of every chunk that has one.
  using OnChoice = std::function<void(const JsonValue& choice)>;

  // unavailable: the server says that it failed. invalid: what came is no stream of chunks.
  [[nodiscard]] Status feed(std::string_view bytes, const OnChoice& on_choice);

  [[nodiscard]] bool is_done() const noexcept { return is_done_; }
  // Empty until the answer's end.
  [[nodiscard]] const std::string& finish_reason() const noexcept { return finish_reason_; }
  [[nodiscard]] const std::optional<StreamUsage>& usage() const noexcept { return usage_; }

 private:
  Status take_chunk(const JsonValue& chunk, const OnChoice& on_choice);

  SseReader sse_;
  std::vector<std::string> events_;
  std::string finish_reason_;
  std::optional<StreamUsage> usage_;
  bool is_done_ = false;
};

}  // namespace ps::apps
