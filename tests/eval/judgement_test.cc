#include <gmock/gmock.h>

#include "apps/eval/run.h"
#include "apps/eval/tool_calls.h"

namespace ps::apps::eval {
namespace {

using ::testing::HasSubstr;

JsonValue tool(std::string_view json) { return JsonValue::parse(json).value(); }

std::vector<JsonValue> tools() {
  return {tool(R"({"name": "f", "parameters": {"type": "object", "properties": {"city": {"type": "string"},)"
               R"( "days": {"type": "integer"}}, "required": ["city"]}})"),
          tool(R"({"name": "now"})")};
}

std::string block(std::string_view calls) {
  return "\n\n<｜DSML｜ calls>\n" + std::string(calls) + "\n</｜DSML｜ calls>";
}
std::string invoke(std::string_view name, std::string_view parameters) {
  return "<｜DSML｜ invoke name=\"" + std::string(name) + "\">\n" + std::string(parameters) + "\n</｜DSML｜ invoke>";
}
std::string parameter(std::string_view name, bool is_string, std::string_view value) {
  return "<｜DSML｜ parameter name=\"" + std::string(name) + "\" string=\"" + (is_string ? "true" : "false") + "\">" +
         std::string(value) + "</｜DSML｜ parameter>";
}
const std::string kCity = parameter("city", true, "Rome");  // NOLINT(cert-err58-cpp)
const std::string kDays = parameter("days", false, "3");    // NOLINT(cert-err58-cpp)

std::string fault_of(const std::string& answer) {
  const auto calls = parse_calls(answer);
  return calls.ok() ? check_calls(calls.value(), tools()).to_string() : calls.status().to_string();
}

TEST(ToolCalls, GoodOnesAreRead) {
  const auto calls = parse_calls("Let me see." + block(invoke("f", kCity + "\n" + kDays) + "\n" + invoke("now", "")));
  ASSERT_TRUE(calls.ok()) << calls.status().to_string();
  ASSERT_EQ(calls.value().size(), 2U);
  EXPECT_EQ(calls.value()[0].arguments.at(1).value, "3");
  EXPECT_TRUE(calls.value()[1].arguments.empty());
  EXPECT_EQ(check_calls(calls.value(), tools()).to_string(), "ok");
}

TEST(ToolCalls, WhatTheFormatDoesNotAllowIsAFault) {
  const std::string good = block(invoke("f", kCity));
  EXPECT_EQ(fault_of(good), "ok");
  EXPECT_THAT(fault_of(good.substr(1)), HasSubstr("empty line"));
  EXPECT_THAT(fault_of(good + " "), HasSubstr("behind the block"));
  EXPECT_THAT(fault_of(good.substr(0, good.size() - 3)), HasSubstr("expected"));
  EXPECT_THAT(fault_of("\n\n<｜DSML｜ calls>\n</｜DSML｜ calls>"), HasSubstr("no call"));
  EXPECT_THAT(fault_of(block("<｜DSML｜invoke name=\"f\">\n</｜DSML｜ invoke>")), HasSubstr("expected"));
  EXPECT_THAT(fault_of(block(invoke("f", kCity + " " + kDays))), HasSubstr("line break"));
  EXPECT_THAT(fault_of(block(invoke("f", parameter("days", false, "3,")))), HasSubstr("days is no JSON"));
  EXPECT_THAT(fault_of(block(invoke("f", "<｜DSML｜ parameter name=\"city\" string=\"yes\">x</｜DSML｜ parameter>"))),
              HasSubstr("legal values are true, false"));
}

TEST(ToolCalls, WhatTheToolsDoNotAllowIsAFault) {
  EXPECT_THAT(fault_of(block(invoke("g", kCity))), HasSubstr("tool g: not offered"));
  EXPECT_THAT(fault_of(block(invoke("f", kDays))), HasSubstr("city is missing"));
  EXPECT_THAT(fault_of(block(invoke("f", kCity + "\n" + kCity))), HasSubstr("occurs twice"));
  EXPECT_THAT(fault_of(block(invoke("f", kCity + "\n" + parameter("x", true, "")))), HasSubstr("unknown parameter x"));
  EXPECT_THAT(fault_of(block(invoke("f", parameter("city", false, "7")))), HasSubstr("not of type string"));
  EXPECT_THAT(fault_of(block(invoke("f", kCity + "\n" + parameter("days", true, "3")))), HasSubstr("type integer"));
  EXPECT_THAT(fault_of(block(invoke("f", kCity + "\n" + parameter("days", false, "3.5")))), HasSubstr("type integer"));
}

TEST(ToolCalls, AreTheSameInAnyOrderOfArguments) {
  const auto calls = [](const std::string& parameters) { return parse_calls(block(invoke("f", parameters))).value(); };
  EXPECT_TRUE(same_calls(calls(kCity + "\n" + kDays), calls(kDays + "\n" + kCity)));
  EXPECT_TRUE(same_calls(calls(parameter("x", false, R"({"a":1,"b":[2.0]})")),
                         calls(parameter("x", false, R"({ "b": [2e0], "a": 1 })"))));
  EXPECT_FALSE(same_calls(calls(kDays), calls(parameter("days", false, "4"))));
  EXPECT_FALSE(same_calls(calls(kDays), calls(parameter("days", true, "3"))));
  EXPECT_FALSE(same_calls(calls(kCity), calls(kCity + "\n" + kDays)));
}

AnswerOutcome judged(const AnswerCase& asked, std::string text, bool ended = true) {
  AnswerOutcome outcome;
  outcome.asked = &asked;
  outcome.text = std::move(text);
  outcome.ended = ended;
  judge(outcome);
  return outcome;
}

TEST(Judgement, ThinkingCountsForExactButNotForTheReply) {
  AnswerCase asked;
  asked.answer = "I add.</think>4";
  EXPECT_TRUE(judged(asked, "I add.</think>4").is_exact);
  EXPECT_FALSE(judged(asked, "I guess.</think>4").is_exact);
  EXPECT_TRUE(judged(asked, "I guess.</think>4").is_right);
  EXPECT_FALSE(judged(asked, "I add.</think>5").is_right);
  EXPECT_FALSE(judged(asked, "4").is_right) << "the thinking never ended, so this is no reply";
  asked.answer = "4";
  EXPECT_TRUE(judged(asked, "4").is_right);
  EXPECT_FALSE(judged(asked, "4", /*ended=*/false).is_exact);
  EXPECT_FALSE(judged(asked, "4", /*ended=*/false).is_right);
}

TEST(Judgement, CallsAreValidOrCorrect) {
  AnswerCase asked;
  asked.tools = tools();
  asked.answer = block(invoke("f", kCity));
  const auto right = judged(asked, asked.answer);
  EXPECT_TRUE(right.tools->is_expected && right.tools->is_made && right.tools->is_valid && right.tools->is_correct);
  const auto other = judged(asked, block(invoke("f", parameter("city", true, "Oslo"))));
  EXPECT_TRUE(other.tools->is_valid);
  EXPECT_FALSE(other.tools->is_correct);
  const auto bad = judged(asked, block(invoke("f", kDays)));
  EXPECT_FALSE(bad.tools->is_valid);
  EXPECT_THAT(bad.tools->fault, HasSubstr("city is missing"));
  EXPECT_FALSE(judged(asked, asked.answer, /*ended=*/false).tools->is_valid);
  EXPECT_FALSE(judged(asked, "It is warm.").tools->is_made);
  asked.answer = "Hello!";
  EXPECT_FALSE(judged(asked, "Hello!").tools->is_expected);
  EXPECT_FALSE(judged(asked, block(invoke("f", kCity))).tools->is_correct);
}

}  // namespace
}  // namespace ps::apps::eval
