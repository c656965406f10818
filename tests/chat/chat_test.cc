#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "apps/chat/console.h"
#include "apps/chat/line_source.h"
#include "apps/chat/session.h"
#include "apps/http/answer_stream.h"
#include "apps/http/sse_reader.h"
#include "base/macros.h"

namespace ps::apps::chat {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// ---- server-sent events

std::vector<std::string> events_of(std::string_view stream, size_t cut) {
  SseReader reader;
  std::vector<std::string> events;
  for (size_t at = 0; at < stream.size(); at += cut) EXPECT_TRUE(reader.feed(stream.substr(at, cut), events).ok());
  return events;
}

TEST(SseReader, GivesTheSameEventsForEveryCut) {
  constexpr std::string_view kStream =
      "data: {\"a\":1}\n\n: comment\n\nevent: x\r\ndata:no space\r\ndata:  two\r\n\r\nid: 3\n\ndata: \n\ndata: "
      "[DONE]\n\n"
      "data: unfinished\n";
  for (size_t cut = 1; cut <= kStream.size(); ++cut) {
    EXPECT_THAT(events_of(kStream, cut), ElementsAre("{\"a\":1}", "no space\n two", "", "[DONE]")) << cut;
  }
}

TEST(SseReader, RefusesAnEventWithoutEnd) {
  SseReader reader;
  std::vector<std::string> events;
  const std::string part = "data: " + std::string(1 << 20, 'x') + "\n";
  Status status;
  for (int i = 0; i < 20 && status.ok(); ++i) status = reader.feed(part, events);
  EXPECT_EQ(status.code(), Code::kInvalid);
  EXPECT_THAT(std::string(status.message()), HasSubstr("16777216 bytes"));
}

// ---- lines and messages

class ScriptedLines final : public LineSource {
 public:
  explicit ScriptedLines(std::deque<std::string> lines, bool is_interactive = false)
      : lines_(std::move(lines)), is_interactive_(is_interactive) {}
  Result<Line> next(bool is_first) override {
    firsts.push_back(is_first);
    if (lines_.empty()) return Line{Line::Kind::kEnd, {}};
    std::string text = std::move(lines_.front());
    lines_.pop_front();
    if (text == "^C") return Line{Line::Kind::kInterrupted, {}};
    return Line{Line::Kind::kText, std::move(text)};
  }
  bool is_interactive() const noexcept override { return is_interactive_; }
  std::vector<bool> firsts;

 private:
  std::deque<std::string> lines_;
  bool is_interactive_;
};

std::string message_from(std::deque<std::string> lines) {
  ScriptedLines source(std::move(lines));
  const auto message = read_message(source);
  if (!message.ok()) return "error: " + std::string(message.status().message());
  if (message.value().kind == Line::Kind::kInterrupted) return "interrupted";
  if (message.value().kind == Line::Kind::kEnd) return "end";
  return (message.value().is_block ? "block: " : "") + message.value().text;
}

// What a stream of chunks adds up to, at every cut.
TEST(AnswerStream, HandsOnChoicesAndKeepsEndAndUsage) {
  const std::string bytes =
      ": keep-alive\n\n"
      "data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":null}],\"usage\":null}\n\n"
      "data: {\"choices\":[{\"delta\":{\"content\":\"b\"},\"finish_reason\":\"length\"}]}\n\n"
      "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2,"
      "\"prompt_tokens_details\":{\"cached_tokens\":3}}}\n\n"
      "data: [DONE]\n\n";
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    AnswerStream stream;
    std::string text;
    const auto add = [&](const JsonValue& choice) { text += choice.find("delta")->find("content")->text(); };
    ASSERT_TRUE(stream.feed(std::string_view(bytes).substr(0, cut), add).ok());
    EXPECT_EQ(stream.is_done(), cut == bytes.size());
    ASSERT_TRUE(stream.feed(std::string_view(bytes).substr(cut), add).ok());
    EXPECT_EQ(text, "ab");
    EXPECT_EQ(stream.finish_reason(), "length");
    ASSERT_TRUE(stream.usage().has_value());
    EXPECT_EQ(stream.usage()->prompt_tokens, 7);
    EXPECT_EQ(stream.usage()->cached_tokens, 3);
    EXPECT_EQ(stream.usage()->answer_tokens, 2);
    EXPECT_TRUE(stream.is_done());
  }
}

TEST(AnswerStream, TellsAFailureOfTheServerFromNonsense) {
  const auto ignore = [](const JsonValue&) {};
  AnswerStream failed;
  const Status failure = failed.feed("data: {\"error\":{\"message\":\"the server stops\"}}\n\n", ignore);
  EXPECT_EQ(failure.code(), Code::kUnavailable);
  EXPECT_EQ(failure.message(), "the server stops");
  AnswerStream nonsense;
  EXPECT_THAT(std::string(nonsense.feed("data: <html>\n\n", ignore).message()), HasSubstr("the server's stream"));
  for (const std::string odd : {"3", "[]", "{}", R"({"choices":3,"usage":3})", R"({"choices":[3]})"}) {
    AnswerStream stream;
    EXPECT_TRUE(stream.feed("data: " + odd + "\n\n", ignore).ok()) << odd;
    EXPECT_FALSE(stream.usage().has_value());
  }
}

TEST(ReadMessage, JoinsLinesThatEndInABackslash) {
  EXPECT_EQ(message_from({"one"}), "one");
  EXPECT_EQ(message_from({"one\\", "two\\", "", "three"}), "one\ntwo\n");
  EXPECT_EQ(message_from({"one\\"}), "error: the input ends behind a backslash; a line has to follow");
  EXPECT_EQ(message_from({"one\\", "^C"}), "interrupted");
}

TEST(ReadMessage, TakesWhatStandsBetweenQuotes) {
  EXPECT_EQ(message_from({R"("""one)", "two\\", R"(three""")"}), "block: one\ntwo\\\nthree");
  EXPECT_EQ(message_from({R"(""")", "one", "", "two", R"(""")"}), "block: one\n\ntwo");
  EXPECT_EQ(message_from({R"(""")", "", "one", R"(""")"}), "block: \none");
  EXPECT_EQ(message_from({R"("""/one""")"}), "block: /one");
  EXPECT_EQ(message_from({R"("""""")"}), "block: ");
  EXPECT_THAT(message_from({R"(""")", "one"}), HasSubstr("error: the input ends inside"));
  EXPECT_EQ(message_from({R"(""")", "^C"}), "interrupted");
}

TEST(ReadMessage, PromptsForFurtherLinesDifferently) {
  ScriptedLines source({"one\\", "two"});
  ASSERT_TRUE(read_message(source).ok());
  EXPECT_THAT(source.firsts, ElementsAre(true, false));
}

TEST(HistoryPath, FollowsTheStandard) {
  ASSERT_EQ(setenv("HOME", "/somewhere", 1), 0);
  ASSERT_EQ(setenv("XDG_STATE_HOME", "/state", 1), 0);
  EXPECT_EQ(default_history_path(), "/state/pagestate/chat_history");
  ASSERT_EQ(setenv("XDG_STATE_HOME", "relative", 1), 0);
  EXPECT_EQ(default_history_path(), "/somewhere/.local/state/pagestate/chat_history");
  ASSERT_EQ(unsetenv("XDG_STATE_HOME"), 0);
  EXPECT_EQ(default_history_path(), "/somewhere/.local/state/pagestate/chat_history");
  ASSERT_EQ(unsetenv("HOME"), 0);
  EXPECT_EQ(default_history_path(), "");
}

TEST(Visible, ReplacesWhatATerminalWouldObey) {
  EXPECT_EQ(visible("a\tb\nc é 世"), "a\tb\nc é 世");
  EXPECT_EQ(visible("\x1b[2J"), "\xEF\xBF\xBD[2J");
  EXPECT_EQ(visible("\r\x07\x7f"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(visible("\xC2\x9B"), "\xEF\xBF\xBD");  // U+009B, the one-character form of ESC [
  EXPECT_EQ(visible("\xFFz"), "\xEF\xBF\xBDz");
}

// ---- the session

// Remembers the questions; answers as told.
class ScriptedBackend final : public Backend {
 public:
  using Answer = std::function<Result<AnswerFigures>(AnswerSink&)>;
  Result<AnswerFigures> answer(const Question& question, AnswerSink& sink,
                               const std::function<bool()>& /*is_stopped*/) override {
    questions.push_back(question);
    const Answer answer = answers.empty() ? says("a", "r") : std::move(answers.front());
    if (!answers.empty()) answers.pop_front();
    return answer(sink);
  }
  std::string describe() override { return "scripted\n"; }

  static Answer says(std::string content, std::string reasoning, AnswerEnd end = AnswerEnd::kComplete) {
    return [=](AnswerSink& sink) {
      if (!reasoning.empty()) sink.reasoning(reasoning);
      if (!content.empty()) sink.content(content);
      return AnswerFigures{.end = end, .prompt_tokens = 10, .cached_tokens = 4, .answer_tokens = 3};
    };
  }
  static Answer fails() {
    return [](AnswerSink& sink) -> Result<AnswerFigures> {
      sink.content("half an");
      return Status::unavailable("the wire broke");
    };
  }

  std::deque<Answer> answers;
  std::vector<Question> questions;
};

// "user:one assistant:a(r) ..." of the question.
std::string course(const Question& question) {
  std::string text;
  for (const text::ChatMessage& message : question.chat.messages) {
    text += std::string(text.empty() ? "" : " ") + std::string(text::role_name(message.role)) + ":";
    for (const text::ContentPart& part : message.content) text += part.text;
    if (!message.reasoning.empty()) text += "(" + message.reasoning + ")";
  }
  return text;
}

class SessionTest : public ::testing::Test {
 protected:
  Status run(std::deque<std::string> script, bool is_interactive = false) {
    ScriptedLines lines(std::move(script), is_interactive);
    Console console;
    InterruptFlag interrupt;
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    Session session(backend_, lines, console, interrupt, settings_);
    Status status = session.run();
    output_ = ::testing::internal::GetCapturedStdout();
    errors_ = ::testing::internal::GetCapturedStderr();
    return status;
  }
  std::vector<std::string> courses() const {
    std::vector<std::string> all;
    for (const Question& question : backend_.questions) all.push_back(course(question));
    return all;
  }
  ScriptedBackend backend_;
  SessionSettings settings_;
  std::string output_;  // standard output
  std::string errors_;  // standard error
};

TEST_F(SessionTest, SendsTheWholeConversationEachTime) {
  ASSERT_TRUE(run({"one", "", "two", "/reset", "three"}).ok());
  EXPECT_THAT(courses(), ElementsAre("user:one", "user:one assistant:a(r) user:two", "user:three"));
  EXPECT_EQ(output_, "a\na\na\n");
}

TEST_F(SessionTest, ChangesSettingsByCommand) {
  settings_.sampling.seed = 7;
  ASSERT_TRUE(run({"one", "/think low", "two", "/think off", "/system Be brief.", "three", "/system", "four",
                   "/think max", "five"})
                  .ok());
  std::vector<std::string> thinking;
  for (const Question& question : backend_.questions) {
    thinking.push_back(question.chat.is_thinking ? text::effort_name(question.chat.effort) : "off");
    EXPECT_EQ(question.sampling.seed, 7);
  }
  EXPECT_THAT(thinking, ElementsAre("high", "low", "off", "off", "max"));
  EXPECT_THAT(courses()[2], HasSubstr("system:Be brief. user:one"));
  EXPECT_THAT(courses()[3], ::testing::StartsWith("user:one"));
}

TEST_F(SessionTest, TakesAFailedQuestionBack) {
  backend_.answers = {ScriptedBackend::says("a", ""), ScriptedBackend::fails(), ScriptedBackend::says("c", "")};
  ASSERT_TRUE(run({"one", "two", "three"}, true).ok());
  EXPECT_EQ(courses().back(), "user:one assistant:a user:three");
  EXPECT_THAT(errors_, HasSubstr("the wire broke\n"));
}

TEST_F(SessionTest, EndsAPipeAtTheFirstProblem) {
  backend_.answers = {ScriptedBackend::fails()};
  const Status status = run({"one", "two"});
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_EQ(backend_.questions.size(), 1);
  EXPECT_EQ(output_, "half an\n");
}

TEST_F(SessionTest, KeepsWhatAStoppedAnswerSaid) {
  backend_.answers = {ScriptedBackend::says("half", "", AnswerEnd::kStopped),
                      ScriptedBackend::says("", "only thought", AnswerEnd::kStopped)};
  ASSERT_TRUE(run({"one", "two", "three"}).ok());
  EXPECT_EQ(courses().back(), "user:one assistant:half user:two user:three");
}

TEST_F(SessionTest, PrintsFiguresOfTheWholeSession) {
  ASSERT_TRUE(run({"one", "two", "/stats"}).ok());
  EXPECT_THAT(output_, HasSubstr("scripted\n"));
  EXPECT_THAT(output_, HasSubstr("prompt tokens: 20\ncached tokens: 8 (40.0 %)\nanswer tokens: 6\n"));
  EXPECT_THAT(output_, HasSubstr("turns: 4\n"));
}

TEST_F(SessionTest, RefusesUnknownCommandsAndValuesByName) {
  for (const auto& [line, words] : std::vector<std::pair<std::string, std::string>>{
           {"/what now", "unknown command /what; legal are /think, /system, /stats, /reset, /help, /quit"},
           {"/", "unknown command /;"},
           {"/think medium", "/think: think is \"medium\"; legal values are off, low, high, max"},
           {"/think", "legal values are off, low, high, max"},
           {"/reset all", "/reset takes nothing behind it, found \"all\""},
           {"/quit now", "/quit takes nothing"}}) {
    const Status status = run({line, "one"});
    EXPECT_EQ(status.code(), Code::kInvalid) << line;
    EXPECT_THAT(std::string(status.message()), HasSubstr(words)) << line;
  }
  EXPECT_TRUE(backend_.questions.empty());
}

TEST_F(SessionTest, GoesOnAtATerminalAndLeavesByCommand) {
  ASSERT_TRUE(run({"/what", "^C", "/help", "one", "/quit", "two"}, true).ok());
  EXPECT_THAT(courses(), ElementsAre("user:one"));
  EXPECT_THAT(output_, HasSubstr("/reset"));
}

TEST_F(SessionTest, TakesABlockForAMessageWhateverItSays) {
  ASSERT_TRUE(run({R"("""/quit""")", "two"}).ok());
  EXPECT_EQ(courses().front(), "user:/quit");
  EXPECT_EQ(backend_.questions.size(), 2);
}

}  // namespace
}  // namespace ps::apps::chat
