// What the user sees: answers on standard output, everything else where it does not mix with them.
//
// On a terminal reasoning is dim, figures and notices too, and control characters of the model are made visible, so
// that a text cannot move the cursor or change the title. In a pipe standard output holds the answers and what commands
// print, byte for byte; reasoning, figures and notices go to standard error. Threading: one thread.
#pragma once

#include <string>
#include <string_view>

#include "apps/chat/backend.h"

namespace ps::apps::chat {

class Console final : public AnswerSink {
 public:
  Console();

  void reasoning(std::string_view text) override;
  void content(std::string_view text) override;
  // Ends an answer: closes the line.
  void end_answer();

  void notice(std::string_view line);   // dim
  void problem(std::string_view line);  // always standard error
  void print(std::string_view text);    // what a command was asked for
  // False once standard output takes nothing any more.
  [[nodiscard]] bool is_writable() const noexcept { return is_writable_; }

 private:
  enum class Section : uint8_t { kNone, kReasoning, kContent };
  void enter(Section section);
  void write(std::string_view text);

  bool is_terminal_;  // standard output
  bool is_dimmed_;    // escape sequences are welcome there
  bool is_writable_ = true;
  Section section_ = Section::kNone;
  bool is_line_open_ = false;
};

// Control characters but newline and tab become U+FFFD.
[[nodiscard]] std::string visible(std::string_view text);

}  // namespace ps::apps::chat
