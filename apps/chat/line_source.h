// Where the user's lines come from: a terminal with editing and history, or a pipe; and how lines make a message.
//
// Knows no command and no conversation. Threading: one thread.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "apps/chat/interrupt.h"
#include "base/status.h"

namespace ps::apps::chat {

struct Line {
  enum class Kind : uint8_t {
    kText,
    kInterrupted,  // Ctrl-C: what was typed is void
    kEnd,          // Ctrl-D, or the end of the pipe
  };
  Kind kind = Kind::kText;
  std::string text;       // without the newline; of a message: several lines
  bool is_block = false;  // of a message: it was quoted with """
};

class LineSource {
 public:
  virtual ~LineSource() = default;
  // `is_first`: the line begins a message.
  [[nodiscard]] virtual Result<Line> next(bool is_first) = 0;
  // Somebody types, and sees prompts.
  [[nodiscard]] virtual bool is_interactive() const noexcept = 0;
};

// A line of a pipe has at most kMaxLineBytes; a longer one is invalid.
inline constexpr size_t kMaxLineBytes = 16 << 20;

// Standard input: libedit when it and standard output are terminals, plain lines otherwise. `history`: file of earlier
// lines, made with its folders when missing; empty: none. The flag outlives the source.
[[nodiscard]] std::unique_ptr<LineSource> make_line_source(const std::filesystem::path& history,
                                                           InterruptFlag& interrupt);

// One message: a line; lines that end in a backslash and the one behind them; or what stands between """ and """.
// kInterrupted drops what was begun. invalid: the input ends inside a message.
[[nodiscard]] Result<Line> read_message(LineSource& source);

// $XDG_STATE_HOME/pagestate/chat_history, with the standard's default for the variable; empty without a home.
[[nodiscard]] std::filesystem::path default_history_path();

}  // namespace ps::apps::chat
