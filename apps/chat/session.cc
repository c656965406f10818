#include "apps/chat/session.h"

#include <fmt/format.h>

#include "apps/units.h"
#include "base/macros.h"

namespace ps::apps::chat {
namespace {

constexpr std::string_view kHelp =
    R"(A line is a message. A line that ends in \ goes on in the next one; lines between """ and """ are one message.
  /think off|low|high|max   how long the model thinks before it answers
  /system TEXT              the system prompt; without TEXT there is none
  /stats                    tokens, cache hits, who answers
  /reset                    forget the conversation
  /help                     this list
  /quit                     leave, as Ctrl-D does
Ctrl-C stops an answer.
)";
constexpr std::string_view kCommands = "/think, /system, /stats, /reset, /help, /quit";

text::ChatMessage message_of(text::Role role, std::string text) {
  text::ChatMessage message;
  message.role = role;
  message.has_content = true;
  message.content.push_back({.kind = text::ContentPart::Kind::kText, .text = std::move(text), .image_url = {}});
  return message;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t";
  const size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

// Shows an answer and keeps it.
class KeepingSink final : public AnswerSink {
 public:
  explicit KeepingSink(AnswerSink& shown) : shown_(shown) {}
  void reasoning(std::string_view text) override {
    kept_reasoning += text;
    shown_.reasoning(text);
  }
  void content(std::string_view text) override {
    kept_content += text;
    shown_.content(text);
  }
  std::string kept_reasoning;
  std::string kept_content;

 private:
  AnswerSink& shown_;
};

std::string describe(const AnswerFigures& figures) {
  std::string text = fmt::format("{} tokens", grouped(figures.answer_tokens));
  if (figures.tokens_per_second() > 0) text += fmt::format(", {:.1f} tokens/s", figures.tokens_per_second());
  text += fmt::format("; prompt {} tokens, {} cached", grouped(figures.prompt_tokens), grouped(figures.cached_tokens));
  if (figures.first_seconds > 0) text += fmt::format("; first token after {:.2f} s", figures.first_seconds);
  if (figures.end == AnswerEnd::kStopped) text = "stopped; " + text;
  if (figures.end == AnswerEnd::kLength) text = "cut off at the most tokens; " + text;
  return text;
}

}  // namespace

Status set_thinking(SessionSettings& settings, std::string_view level) {
  settings.is_thinking = level != "off";
  if (level == "off") return {};
  if (level == "low") settings.effort = text::ReasoningEffort::low();
  if (level == "high") settings.effort = text::ReasoningEffort::high();
  if (level == "max") settings.effort = text::ReasoningEffort::max();
  if (level == "low" || level == "high" || level == "max") return {};
  return Status::invalid(fmt::format("think is \"{}\"; legal values are off, low, high, max", level));
}

Session::Session(Backend& backend, LineSource& lines, Console& console, InterruptFlag& interrupt,
                 SessionSettings settings)
    : backend_(backend), lines_(lines), console_(console), interrupt_(interrupt), settings_(std::move(settings)) {}

Status Session::run() {
  if (lines_.is_interactive()) console_.notice("/help lists the commands; Ctrl-C stops an answer, Ctrl-D quits");
  while (true) {
    Result<Next> next = step();
    if (!console_.is_writable()) return Status::unavailable("cannot write to standard output");
    if (next.ok()) {
      if (next.value() == Next::kQuit) return {};
      continue;
    }
    if (!lines_.is_interactive()) return std::move(next).status();
    console_.problem(next.status().message());
  }
}

Result<Session::Next> Session::step() {
  interrupt_.clear();
  PS_TRY(Line message, read_message(lines_));
  if (message.kind == Line::Kind::kEnd) return Next::kQuit;
  if (message.kind == Line::Kind::kInterrupted) {
    if (lines_.is_interactive()) return Next::kGoOn;
    return Status::cancelled("interrupted");
  }
  if (trimmed(message.text).empty()) return Next::kGoOn;
  if (!message.is_block && message.text.starts_with('/')) return command(message.text);
  PS_RETURN_IF_ERROR(ask(std::move(message.text)));
  return Next::kGoOn;
}

Result<Session::Next> Session::command(std::string_view line) {
  const size_t end = line.find_first_of(" \t");
  const std::string_view name = line.substr(0, end);
  const std::string_view rest = end == std::string_view::npos ? std::string_view() : trimmed(line.substr(end));
  if (name == "/think") {
    SessionSettings changed = settings_;
    PS_RETURN_IF_ERROR(set_thinking(changed, rest).with("/think"));
    settings_ = std::move(changed);
    return Next::kGoOn;
  }
  if (name == "/system") {
    settings_.system = rest;
    return Next::kGoOn;
  }
  const bool is_known = name == "/stats" || name == "/reset" || name == "/help" || name == "/quit";
  if (!is_known) {
    return Status::invalid(
        fmt::format("unknown command {}; legal are {}; a message that begins with / goes between "
                    "\"\"\" and \"\"\"",
                    name, kCommands));
  }
  if (!rest.empty()) return Status::invalid(fmt::format("{} takes nothing behind it, found \"{}\"", name, rest));
  if (name == "/quit") return Next::kQuit;
  if (name == "/stats") print_stats();
  if (name == "/help") console_.print(kHelp);
  if (name == "/reset") reset();
  return Next::kGoOn;
}

// A failed question is taken back; a stopped answer stays as far as it came, and without any text leaves its question.
Status Session::ask(std::string text) {
  turns_.push_back(message_of(text::Role::kUser, std::move(text)));
  Question question;
  question.sampling = settings_.sampling;
  question.chat.is_thinking = settings_.is_thinking;
  question.chat.effort = settings_.effort;
  if (!settings_.system.empty()) question.chat.messages.push_back(message_of(text::Role::kSystem, settings_.system));
  question.chat.messages.insert(question.chat.messages.end(), turns_.begin(), turns_.end());

  KeepingSink sink(console_);
  const auto figures = backend_.answer(question, sink, [this] { return interrupt_.is_set(); });
  console_.end_answer();
  if (!figures.ok()) {
    turns_.pop_back();
    return Status(figures.status().code(), std::string(figures.status().message()));
  }
  if (!sink.kept_content.empty()) {
    turns_.push_back(message_of(text::Role::kAssistant, std::move(sink.kept_content)));
    turns_.back().reasoning = std::move(sink.kept_reasoning);
  }
  count(figures.value());
  console_.notice(fmt::format("[{}]", describe(figures.value())));
  return {};
}

void Session::count(const AnswerFigures& figures) {
  last_ = figures;
  ++totals_.answers;
  totals_.prompt_tokens += figures.prompt_tokens;
  totals_.cached_tokens += figures.cached_tokens;
  totals_.answer_tokens += figures.answer_tokens;
}

void Session::print_stats() {
  const double hit_rate = totals_.prompt_tokens == 0 ? 0
                                                     : 100 * static_cast<double>(totals_.cached_tokens) /
                                                           static_cast<double>(totals_.prompt_tokens);
  std::string text = backend_.describe();
  text += fmt::format("turns: {}\nanswers: {}\nprompt tokens: {}\ncached tokens: {} ({:.1f} %)\nanswer tokens: {}\n",
                      turns_.size(), totals_.answers, grouped(totals_.prompt_tokens), grouped(totals_.cached_tokens),
                      hit_rate, grouped(totals_.answer_tokens));
  if (totals_.answers > 0) text += fmt::format("last answer: {}\n", describe(last_));
  text += fmt::format("thinking: {}\n", settings_.is_thinking ? text::effort_name(settings_.effort) : "off");
  console_.print(text);
}

void Session::reset() {
  turns_.clear();
  console_.notice("The conversation is forgotten.");
}

}  // namespace ps::apps::chat
