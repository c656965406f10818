#include "apps/chat/line_source.h"

#include <fmt/format.h>
#include <histedit.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cwchar>
#include <system_error>

#include "base/log.h"
#include "base/macros.h"

namespace ps::apps::chat {
namespace {

constexpr int kHistoryLines = 2000;

class PipeLines final : public LineSource {
 public:
  ~PipeLines() override { std::free(buffer_); }  // NOLINT: getline(3) allocates it

  Result<Line> next(bool /*is_first*/) override {
    const ssize_t size = ::getline(&buffer_, &capacity_, stdin);
    if (size < 0) {
      if (std::feof(stdin) != 0) return Line{Line::Kind::kEnd, {}};
      if (errno == EINTR) return Line{Line::Kind::kInterrupted, {}};
      return Status::unavailable(fmt::format("cannot read standard input: {}", std::strerror(errno)));
    }
    std::string text(buffer_, static_cast<size_t>(size));
    if (text.size() > kMaxLineBytes) {
      return Status::invalid(fmt::format("standard input: a line of {} bytes; at most {}", text.size(), kMaxLineBytes));
    }
    if (text.ends_with('\n')) text.pop_back();
    if (text.ends_with('\r')) text.pop_back();
    return Line{Line::Kind::kText, std::move(text)};
  }
  bool is_interactive() const noexcept override { return false; }

 private:
  char* buffer_ = nullptr;
  size_t capacity_ = 0;
};

class TerminalLines final : public LineSource {
 public:
  TerminalLines(std::filesystem::path history, InterruptFlag& interrupt)
      : path_(std::move(history)), interrupt_(interrupt), history_(history_init()) {
    // libedit reads characters in the encoding of the locale; C would refuse everything beyond ASCII.
    std::setlocale(LC_CTYPE, "");
    if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
    edit_ = el_init("pagestate", stdin, stdout, stderr);
    HistEvent event;
    ::history(history_, &event, H_SETSIZE, kHistoryLines);
    ::history(history_, &event, H_SETUNIQUE, 1);
    if (!path_.empty()) ::history(history_, &event, H_LOAD, path_.c_str());  // a missing file is an empty one
    el_set(edit_, EL_CLIENTDATA, this);
    el_set(edit_, EL_PROMPT, &TerminalLines::prompt);
    el_set(edit_, EL_EDITOR, "emacs");
    el_set(edit_, EL_HIST, ::history, history_);
    el_set(edit_, EL_GETCFN, &TerminalLines::read_character);
    el_set(edit_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    el_source(edit_, nullptr);  // the user's ~/.editrc
  }
  ~TerminalLines() override {
    save();
    el_end(edit_);
    history_end(history_);
  }

  Result<Line> next(bool is_first) override {
    is_first_ = is_first;
    el_resize(edit_);
    el_set(edit_, EL_PREP_TERM, 1);  // before the prompt, so that what is typed upon it is echoed once
    int size = 0;
    const char* typed = el_gets(edit_, &size);
    if (typed == nullptr || size <= 0) {
      std::fputc('\n', stdout);
      return Line{interrupt_.is_set() ? Line::Kind::kInterrupted : Line::Kind::kEnd, {}};
    }
    std::string text(typed, static_cast<size_t>(size));
    HistEvent event;
    if (text.find_first_not_of(" \t\r\n") != std::string::npos) ::history(history_, &event, H_ENTER, text.c_str());
    if (text.ends_with('\n')) text.pop_back();
    return Line{Line::Kind::kText, std::move(text)};
  }
  bool is_interactive() const noexcept override { return true; }

 private:
  static char* prompt(EditLine* edit) {
    static char first[] = "> ";
    static char further[] = "| ";
    TerminalLines* self = nullptr;
    el_get(edit, EL_CLIENTDATA, &self);
    return self->is_first_ ? first : further;
  }

  // libedit's own reader tries again after a signal; here Ctrl-C ends the line.
  static int read_character(EditLine* edit, wchar_t* out) {
    TerminalLines* self = nullptr;
    el_get(edit, EL_CLIENTDATA, &self);
    std::mbstate_t state = {};
    while (true) {
      char byte = 0;
      const ssize_t size = ::read(STDIN_FILENO, &byte, 1);
      if (size == 0) return 0;
      if (size < 0) {
        if (errno == EINTR && !self->interrupt_.is_set()) continue;  // another signal, such as a new window size
        return -1;
      }
      const size_t length = std::mbrtowc(out, &byte, 1, &state);
      if (length == static_cast<size_t>(-2)) continue;  // the character has more bytes
      if (length == static_cast<size_t>(-1)) {
        state = {};
        continue;  // no character: skipped
      }
      return 1;
    }
  }

  // By way of a second file: an end in the middle leaves the old one whole.
  void save() {
    if (path_.empty()) return;
    std::error_code error;
    std::filesystem::create_directories(path_.parent_path(), error);
    const std::string written = path_.string() + fmt::format(".{}", ::getpid());
    HistEvent event;
    if (::history(history_, &event, H_SAVE, written.c_str()) < 0) {
      log(LogLevel::kWarning, fmt::format("cannot write the history to {}", written));
      return;
    }
    std::filesystem::permissions(written, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write,
                                 error);
    std::filesystem::rename(written, path_, error);
    if (error) std::filesystem::remove(written, error);
  }

  std::filesystem::path path_;
  InterruptFlag& interrupt_;
  bool is_first_ = true;
  EditLine* edit_ = nullptr;
  History* history_ = nullptr;
};

constexpr std::string_view kQuote = R"(""")";

Result<Line> read_block(LineSource& source, std::string first) {
  Line message{Line::Kind::kText, std::move(first), true};
  bool is_begun = !message.text.empty();  // text behind the opening quote is a line of its own
  while (!message.text.ends_with(kQuote)) {
    PS_TRY(Line line, source.next(false));
    if (line.kind == Line::Kind::kInterrupted) return line;
    if (line.kind == Line::Kind::kEnd) return Status::invalid("the input ends inside \"\"\"; close it with \"\"\"");
    if (is_begun) message.text += '\n';
    message.text += line.text;
    is_begun = true;
  }
  message.text.resize(message.text.size() - kQuote.size());
  if (message.text.ends_with('\n')) message.text.pop_back();  // the closing quote may have a line of its own
  return message;
}

}  // namespace

std::unique_ptr<LineSource> make_line_source(const std::filesystem::path& history, InterruptFlag& interrupt) {
  if (isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0)
    return std::make_unique<TerminalLines>(history, interrupt);
  return std::make_unique<PipeLines>();
}

Result<Line> read_message(LineSource& source) {
  PS_TRY(Line message, source.next(true));
  if (message.kind != Line::Kind::kText) return message;
  if (message.text.starts_with(kQuote)) return read_block(source, message.text.substr(kQuote.size()));
  while (message.text.ends_with('\\')) {
    message.text.back() = '\n';
    PS_TRY(Line line, source.next(false));
    if (line.kind == Line::Kind::kInterrupted) return line;
    if (line.kind == Line::Kind::kEnd)
      return Status::invalid("the input ends behind a backslash; a line has to follow");
    message.text += line.text;
  }
  return message;
}

std::filesystem::path default_history_path() {
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  std::filesystem::path folder;
  // The standard ignores relative paths in the variable.
  if (state != nullptr && *state == '/') {
    folder = state;
  } else if (home != nullptr && *home != '\0') {
    folder = std::filesystem::path(home) / ".local" / "state";
  } else {
    return {};
  }
  return folder / "pagestate" / "chat_history";
}

}  // namespace ps::apps::chat
