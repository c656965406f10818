// The conversation at the command line: messages and commands in, answers out.
//
// Owns the turns, the settings that commands change, and the figures of /stats. Knows neither terminal nor engine.
// Threading: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "apps/chat/backend.h"
#include "apps/chat/console.h"
#include "apps/chat/interrupt.h"
#include "apps/chat/line_source.h"
#include "base/status.h"
#include "text/chat.h"

namespace ps::apps::chat {

struct SessionSettings {
  bool is_thinking = true;
  text::ReasoningEffort effort = text::ReasoningEffort::high();
  std::string system;  // empty: none
  SamplingWishes sampling;
};

// "off", "low", "high" or "max" into the settings; invalid names the legal ones.
[[nodiscard]] Status set_thinking(SessionSettings& settings, std::string_view level);

class Session {
 public:
  Session(Backend& backend, LineSource& lines, Console& console, InterruptFlag& interrupt, SessionSettings settings);

  // Until the user leaves. With somebody at a terminal, problems are shown and the session goes on; in a pipe the first
  // one ends it and is returned, since what follows was written for another course.
  [[nodiscard]] Status run();

 private:
  enum class Next : uint8_t { kGoOn, kQuit };
  struct Totals {
    int64_t answers = 0;
    int64_t prompt_tokens = 0;
    int64_t cached_tokens = 0;
    int64_t answer_tokens = 0;
  };

  [[nodiscard]] Result<Next> step();
  [[nodiscard]] Result<Next> command(std::string_view line);
  [[nodiscard]] Status ask(std::string text);
  void count(const AnswerFigures& figures);
  void print_stats();
  void reset();

  Backend& backend_;
  LineSource& lines_;
  Console& console_;
  InterruptFlag& interrupt_;
  SessionSettings settings_;
  std::vector<text::ChatMessage> turns_;  // without the system message
  Totals totals_;
  AnswerFigures last_;
};

}  // namespace ps::apps::chat
