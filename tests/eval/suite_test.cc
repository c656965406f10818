#include "apps/eval/suite.h"

#include <gmock/gmock.h>

#include <set>

#include "base/testing.h"

namespace ps::apps::eval {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SuiteFile : public ::testing::Test {
 protected:
  Result<Suite> read(std::string_view content) {
    EXPECT_TRUE(write_file(path(), content).ok());
    return read_suite(path());
  }
  std::filesystem::path path() const { return folder_.path() / "cases.jsonl"; }

  // The message of a suite that is refused.
  std::string refusal(std::string_view content) {
    const Result<Suite> suite = read(content);
    EXPECT_FALSE(suite.ok()) << content;
    return suite.ok() ? "" : suite.status().to_string();
  }

  test::TemporaryFolder folder_;
};

constexpr std::string_view kFiller =
    R"({"kind":"filler","head":"<","tail":">","lines":["aaaa","bbbb","cccc","dddd","eeee"]})"
    "\n";

std::string needle(double depth, int characters, int first, int step) {
  return std::string(kFiller) + R"({"kind":"needle","id":"n","tokens":7,"depth":)" + std::to_string(depth) +
         R"(,"characters":)" + std::to_string(characters) + R"(,"first":)" + std::to_string(first) + R"(,"step":)" +
         std::to_string(step) + R"(,"intro":"I","fact":"F","question":"Q","answer":"A"})";
}

TEST_F(SuiteFile, ANeedleIsHiddenAtItsDepth) {
  const auto prompt = [&](double depth) { return read(needle(depth, 15, 3, 2)).value().answers.at(0).prompt; };
  // Lines 3, 0, 2: the first three of the stride, 5 characters each.
  EXPECT_EQ(prompt(0), "<I\nF\ndddd\naaaa\ncccc\nQ>");
  EXPECT_EQ(prompt(0.34), "<I\ndddd\nF\naaaa\ncccc\nQ>");
  EXPECT_EQ(prompt(1), "<I\ndddd\naaaa\ncccc\nF\nQ>");
}

TEST_F(SuiteFile, LinesAreTakenUntilThereAreEnoughCharacters) {
  EXPECT_EQ(read(needle(0, 0, 0, 1)).value().answers.at(0).prompt, "<I\nF\nQ>");
  EXPECT_EQ(read(needle(0, 1, 4, 1)).value().answers.at(0).prompt, "<I\nF\neeee\nQ>");
  EXPECT_EQ(read(needle(0, 6, 4, 1)).value().answers.at(0).prompt, "<I\nF\neeee\naaaa\nQ>");
}

TEST_F(SuiteFile, TurnsGoOnWhereTheAnswerBeforeThemEnded) {
  const Suite suite = read(R"({"kind":"conversation","id":"c","skill":"s","turns":[{"prompt":"p","answer":"a"},)"
                           R"({"prompt":"q","answer":"b"}]})")
                          .value();
  ASSERT_EQ(suite.answers.size(), 2U);
  EXPECT_EQ(suite.answers[0].id, "c");
  EXPECT_EQ(suite.answers[0].prompt, "p");
  EXPECT_EQ(suite.answers[1].id, "c/1");
  EXPECT_EQ(suite.answers[1].prompt, "paq");
  EXPECT_EQ(suite.answers[1].answer, "b");
}

TEST_F(SuiteFile, AFaultIsNamedWithFileAndLine) {
  const std::string text = R"({"kind":"text","id":"t","source":"s","text":"x","ends":true})";
  const std::string place = path().string();
  EXPECT_THAT(refusal(text + "\n\n{]"), HasSubstr(place + ":3: "));
  EXPECT_THAT(refusal(text + "\n" + text), HasSubstr(place + ":2: \"id\": t occurs twice"));
  EXPECT_THAT(refusal("3"), HasSubstr(place + ":1: a record is an object"));
  EXPECT_THAT(refusal(R"({"kind":"song"})"), HasSubstr("text, conversation, filler, needle"));
  EXPECT_THAT(refusal(R"({"id":"t"})"), HasSubstr("\"kind\" is missing"));
  EXPECT_THAT(refusal(R"({"kind":"text","id":"t","source":"s","text":"","ends":true})"),
              HasSubstr("\"text\" is empty"));
  EXPECT_THAT(refusal(R"({"kind":"text","id":"t","source":"s","text":"x","ends":1})"), HasSubstr("true or false"));
  EXPECT_THAT(refusal(R"({"kind":"text","id":7})"), HasSubstr("\"id\" is a number; a string is legal"));
  EXPECT_THAT(refusal(R"({"kind":"conversation","id":"c","skill":"s","turns":[]})"), HasSubstr("one or more"));
  EXPECT_THAT(refusal(R"({"kind":"conversation","id":"c","skill":"s","turns":[{"prompt":"p"}]})"),
              HasSubstr("turn 0: \"answer\" is missing"));
  EXPECT_THAT(refusal(R"({"kind":"conversation","id":"c","skill":"needle","turns":[]})"), HasSubstr("kept for"));
  EXPECT_THAT(refusal(R"({"kind":"needle","id":"n"})"), HasSubstr("filler record"));
  EXPECT_THAT(refusal(needle(1.5, 1, 0, 1)), HasSubstr("\"depth\" is 1.500000; legal values are 0 to 1"));
  EXPECT_THAT(refusal(needle(1, 1, 5, 1)), HasSubstr("\"first\" is 5; legal values are 0 to 4"));
  EXPECT_THAT(refusal(needle(1, 1, 0, 0)), HasSubstr("\"step\" is 0; legal values are 1 to 4"));
  EXPECT_THAT(refusal(needle(1, -1, 0, 1)), HasSubstr("\"characters\""));
  EXPECT_THAT(refusal("\n"), HasSubstr("no cases"));
  EXPECT_THAT(read_suite(folder_.path() / "nowhere").status().to_string(), HasSubstr("nowhere"));
}

TEST_F(SuiteFile, AFolderIsReadInTheOrderOfItsNames) {
  EXPECT_THAT(read_suite(folder_.path()).status().to_string(), HasSubstr("no *.jsonl file"));
  for (const char* name : {"b", "a"}) {
    const std::string record =
        std::string(R"({"kind":"text","id":")") + name + R"(","source":"s","text":"x","ends":true})";
    ASSERT_TRUE(write_file(folder_.path() / (std::string(name) + ".jsonl"), record).ok());
  }
  ASSERT_TRUE(write_file(folder_.path() / "README.md", "no records").ok());
  const Suite suite = read_suite(folder_.path()).value();
  ASSERT_EQ(suite.windows.size(), 2U);
  EXPECT_EQ(suite.windows[0].id, "a");
  EXPECT_EQ(suite.sha256.size(), 64U);
}

Suite shipped() {
  auto suite = read_suite(PAGESTATE_SUITE);
  EXPECT_TRUE(suite.ok()) << suite.status().to_string();
  return suite.ok() ? std::move(suite).value() : Suite();
}

TEST(ShippedSuite, HasEverySkillAndEveryDepth) {
  const Suite suite = shipped();
  EXPECT_GE(suite.windows.size(), 64U);
  std::set<std::string> skills;
  std::set<double> depths;
  size_t with_tools = 0;
  for (const AnswerCase& answer : suite.answers) {
    skills.insert(answer.skill);
    if (answer.needle_tokens > 0) depths.insert(answer.needle_depth);
    with_tools += answer.tools.empty() ? 0 : 1;
    EXPECT_TRUE(answer.prompt.ends_with("</think>") || answer.prompt.ends_with("<think>")) << answer.id;
  }
  EXPECT_THAT(skills, ElementsAre("arithmetic", "chat", "copy", "fact", "json", "key_value", "needle", "recall",
                                  "story", "tools"));
  EXPECT_THAT(depths, ElementsAre(0.05, 0.25, 0.5, 0.75, 0.95));
  EXPECT_GE(with_tools, 50U);
}

TEST(ShippedSuite, CanBeNarrowed) {
  Suite suite = shipped();
  ASSERT_TRUE(select(suite, {.parts = {"needle"}, .needle_tokens = {100, 500}, .limit = 3}).ok());
  EXPECT_TRUE(suite.windows.empty());
  EXPECT_EQ(suite.answers.size(), 2U * 5U * 3U);
  suite = shipped();
  ASSERT_TRUE(select(suite, {.parts = {"skills", "text"}, .skills = {"fact"}, .limit = 4}).ok());
  EXPECT_EQ(suite.windows.size(), 4U);
  EXPECT_EQ(suite.answers.size(), 4U);
}

TEST(ShippedSuite, WhatItDoesNotHaveIsRefusedWithTheLegalValues) {
  const auto refusal = [](const Selection& selection) {
    Suite suite = shipped();
    return select(suite, selection).to_string();
  };
  EXPECT_THAT(refusal({.parts = {"songs"}}), HasSubstr("part songs: legal values are needle, skills, text"));
  EXPECT_THAT(refusal({.skills = {"chess"}}), HasSubstr("legal values are arithmetic, chat"));
  EXPECT_THAT(refusal({.needle_tokens = {3}}), HasSubstr("needle length 3: legal values are 100, 250"));
  EXPECT_THAT(refusal({.limit = -1}), HasSubstr("limit"));
}

}  // namespace
}  // namespace ps::apps::eval
