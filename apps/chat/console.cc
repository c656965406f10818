#include "apps/chat/console.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "text/utf8.h"

namespace ps::apps::chat {
namespace {

constexpr std::string_view kDim = "\x1b[2m";
constexpr std::string_view kPlain = "\x1b[0m";

bool wants_escapes() {
  const char* no_color = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  if (no_color != nullptr && *no_color != '\0') return false;
  return terminal != nullptr && std::string_view(terminal) != "dumb";
}

void put(std::FILE* file, std::string_view text) { std::fwrite(text.data(), 1, text.size(), file); }

}  // namespace

std::string visible(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const text::Utf8Step step = text::utf8_step(text.data(), text.size());
    const bool is_control = step.code < 0x20 || (step.code >= 0x7f && step.code < 0xa0);
    if (step.kind != text::Utf8Step::Kind::kValid || (is_control && step.code != '\n' && step.code != '\t')) {
      shown += text::kReplacement;
    } else {
      shown += text.substr(0, step.length);
    }
    text.remove_prefix(step.length);
  }
  return shown;
}

Console::Console() : is_terminal_(isatty(STDOUT_FILENO) != 0), is_dimmed_(is_terminal_ && wants_escapes()) {}

void Console::write(std::string_view text) {
  put(stdout, text);
  is_writable_ = std::fflush(stdout) == 0 && is_writable_;
}

void Console::enter(Section section) {
  if (section == section_) return;
  if (section_ == Section::kReasoning) {
    if (is_dimmed_) write(kPlain);
    if (is_terminal_) {
      write(is_line_open_ ? "\n\n" : "\n");
    } else if (is_line_open_) {
      put(stderr, "\n");
    }
    is_line_open_ = false;
  }
  section_ = section;
  if (section == Section::kReasoning && is_dimmed_) write(kDim);
  if (section == Section::kReasoning && is_terminal_ && !is_dimmed_) write("[thinking]\n");
}

void Console::reasoning(std::string_view text) {
  enter(Section::kReasoning);
  if (is_terminal_) {
    write(visible(text));
  } else {
    put(stderr, text);
  }
  is_line_open_ = !text.ends_with('\n');
}

void Console::content(std::string_view text) {
  enter(Section::kContent);
  is_terminal_ ? write(visible(text)) : write(text);
  is_line_open_ = !text.ends_with('\n');
}

void Console::end_answer() {
  if (section_ == Section::kContent && is_line_open_) write("\n");
  enter(Section::kNone);
  is_line_open_ = false;
}

void Console::notice(std::string_view line) {
  if (!is_terminal_) {
    put(stderr, fmt::format("{}\n", line));
  } else {
    write(is_dimmed_ ? fmt::format("{}{}{}\n", kDim, line, kPlain) : fmt::format("{}\n", line));
  }
}

void Console::problem(std::string_view line) {
  std::fflush(stdout);
  put(stderr, isatty(STDERR_FILENO) != 0 ? visible(line) + "\n" : std::string(line) + "\n");
}

void Console::print(std::string_view text) { is_terminal_ ? write(visible(text)) : write(text); }

}  // namespace ps::apps::chat
