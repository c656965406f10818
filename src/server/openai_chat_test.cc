#include "server/openai_chat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "server/reply_testing.h"

namespace ps::server {
namespace {

using test::at;
using test::call;
using test::compact;
using test::event;
using test::json;
using test::Kind;
using test::split_stream;
using testing::ElementsAre;

ReplyHead head(bool is_thinking) { return {"abc", 1700000000, "m", "fp_1", is_thinking}; }

constexpr std::string_view kHead =
    R"({"id":"chatcmpl-abc","object":"chat.completion.chunk","created":1700000000,"model":"m",)"
    R"("system_fingerprint":"fp_1","choices":[{"index":0,"delta":)";

std::string chunk(std::string_view delta, std::string_view rest = R"(,"logprobs":null,"finish_reason":null}]})") {
  return std::string(kHead) + std::string(delta) + std::string(rest);
}

std::vector<std::string> data_of(std::string_view stream) {
  std::vector<std::string> data;
  for (const auto& [name, text] : split_stream(stream)) data.push_back(name.empty() ? text : "named: " + name);
  return data;
}

TEST(OpenAiChatStream, ThinkingChunksAreThoseOfTheHostedApi) {
  auto reply = make_openai_chat_reply({.head = head(true), .is_stream = true});
  std::string out;
  reply->start({}, out);
  reply->deliver(0, std::vector{event(Kind::kReasoning, "plan"), event(Kind::kContent, "Hi")}, {}, out);
  reply->finish(0, {}, out);
  EXPECT_THAT(data_of(out), ElementsAre(chunk(R"({"role":"assistant","content":null,"reasoning_content":""})"),
                                        chunk(R"({"content":null,"reasoning_content":"plan"})"),
                                        chunk(R"({"content":"Hi","reasoning_content":null})"),
                                        chunk(R"({"content":"","reasoning_content":null})",
                                              R"(,"logprobs":null,"finish_reason":"stop"}]})"),
                                        "[DONE]"));
}

TEST(OpenAiChatStream, PlainChunksHaveNoReasoningContent) {
  auto reply = make_openai_chat_reply({.head = head(false), .is_stream = true});
  std::string out;
  reply->start({}, out);
  reply->deliver(0, std::vector{event(Kind::kContent, "Hi")}, {}, out);
  reply->finish(0, {.reason = text::FinishReason::kLength}, out);
  EXPECT_THAT(data_of(out),
              ElementsAre(chunk(R"({"role":"assistant","content":""})"), chunk(R"({"content":"Hi"})"),
                          chunk(R"({"content":""})", R"(,"logprobs":null,"finish_reason":"length"}]})"), "[DONE]"));
}

TEST(OpenAiChatStream, CallsComeInFragmentsBehindTheirName) {
  auto reply = make_openai_chat_reply({.head = head(false), .is_stream = true});
  std::string out;
  reply->deliver(0, call(0, "get_weather", {"{", R"("location")", ": "}), {}, out);
  reply->deliver(0, call(1, "now", {"{}"}), {}, out);
  const auto fragment = [](int index, std::string_view text) {
    std::string delta = R"({"tool_calls":[{"index":)" + std::to_string(index) + R"(,"function":{"arguments":)";
    append_json_string(delta, text);
    return chunk(delta + "}}]}");
  };
  EXPECT_THAT(
      data_of(out),
      ElementsAre(
          chunk(R"({"tool_calls":[{"index":0,"id":"call_abc_0","type":"function","function":{"name":"get_weather",)"
                R"("arguments":""}}]})"),
          fragment(0, "{"), fragment(0, R"("location")"), fragment(0, ": "),
          chunk(R"({"tool_calls":[{"index":1,"id":"call_abc_1","type":"function","function":{"name":"now",)"
                R"("arguments":""}}]})"),
          fragment(1, "{}")));
}

TEST(OpenAiChatStream, UsageLiesInTheLastChunkAndIsNullBefore) {
  auto reply = make_openai_chat_reply({.head = head(false), .is_stream = true, .includes_usage = true});
  std::string out;
  reply->start({}, out);
  reply->finish(0, {.usage = {.prompt_tokens = 10, .cached_tokens = 4, .answer_tokens = 5, .reasoning_tokens = 3}},
                out);
  const auto data = data_of(out);
  ASSERT_EQ(data.size(), 3u);
  EXPECT_EQ(data[0],
            chunk(R"({"role":"assistant","content":""})", R"(,"logprobs":null,"finish_reason":null}],"usage":null})"));
  EXPECT_EQ(
      compact(at(json(data[1]), {"usage"})),
      R"({"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,"prompt_tokens_details":{"cached_tokens":4},)"
      R"("completion_tokens_details":{"reasoning_tokens":3},"prompt_cache_hit_tokens":4,)"
      R"("prompt_cache_miss_tokens":6})");
}

TEST(OpenAiChatStream, SeveralChoicesEndWithTheUsageOfAll) {
  auto reply = make_openai_chat_reply({.head = head(false), .choices = 2, .is_stream = true, .includes_usage = true});
  std::string out;
  reply->start({}, out);
  reply->deliver(1, std::vector{event(Kind::kContent, "b")}, {}, out);
  reply->finish(1, {.usage = {.prompt_tokens = 3, .answer_tokens = 1}}, out);
  reply->deliver(0, call(0, "f", {"{}"}), {}, out);
  reply->finish(0, {.reason = text::FinishReason::kToolCalls, .usage = {.prompt_tokens = 3, .answer_tokens = 9}}, out);
  std::vector<std::string> seen;
  for (const std::string& data : data_of(out)) {
    if (data == "[DONE]") break;
    const JsonValue value = json(data);
    seen.push_back(at(value, {"choices", "0", "index"}).text() + ' ' +
                   compact(at(value, {"choices", "0", "finish_reason"})) + ' ' +
                   compact(at(value, {"usage", "completion_tokens"})));
  }
  EXPECT_THAT(seen, ElementsAre("0 null null", "1 null null", "1 null null", R"(1 "stop" null)", "0 null null",
                                "0 null null", R"(0 "tool_calls" 9)"));
  EXPECT_EQ(reply->call_id(0, 0), "call_abc_0");
  EXPECT_NE(reply->call_id(1, 0), reply->call_id(0, 0));
}

TEST(OpenAiChatStream, LogprobsGoWithTheNextTextAndNoneIsLost) {
  auto reply = make_openai_chat_reply({.head = head(true), .is_stream = true, .has_logprobs = true});
  std::string out;
  // Half a character: its bytes are exact, its text is not.
  reply->deliver(0, {}, std::vector<ReplyToken>{{"\xC3", -0.5f, {{"\xC3", -0.5f}}, true}}, out);
  EXPECT_EQ(out, "");
  reply->deliver(0, std::vector{event(Kind::kReasoning, "é")}, std::vector<ReplyToken>{{"\xA9", -0.25f, {}, true}},
                 out);
  reply->deliver(0, {}, std::vector<ReplyToken>{{"x", -1.0f, {}, false}}, out);
  reply->finish(0, {}, out);
  const auto data = data_of(out);
  ASSERT_EQ(data.size(), 3u);
  EXPECT_EQ(compact(at(json(data[0]), {"choices", "0", "logprobs"})),
            R"({"content":[],"refusal":null,"reasoning_content":[)"
            R"({"token":"�","logprob":-0.5,"bytes":[195],"top_logprobs":[{"token":"�","logprob":-0.5,"bytes":[195]}]},)"
            R"({"token":"�","logprob":-0.25,"bytes":[169],"top_logprobs":[]}]})");
  EXPECT_EQ(compact(at(json(data[1]), {"choices", "0", "logprobs", "content"})),
            R"([{"token":"x","logprob":-1.0,"bytes":[120],"top_logprobs":[]}])");
}

TEST(OpenAiChatStream, InfiniteLogprobsAreLegalJson) {
  auto reply = make_openai_chat_reply({.head = head(false), .is_stream = true, .has_logprobs = true});
  std::string out;
  reply->deliver(0, std::vector{event(Kind::kContent, "x")},
                 std::vector<ReplyToken>{{"x", -std::numeric_limits<float>::infinity(), {{"y", std::nanf("")}}, false}},
                 out);
  const JsonValue value = json(data_of(out)[0]);
  EXPECT_EQ(compact(at(value, {"choices", "0", "logprobs", "content", "0", "logprob"})), "-9999.0");
  EXPECT_EQ(compact(at(value, {"choices", "0", "logprobs", "content", "0", "top_logprobs", "0", "logprob"})),
            "-9999.0");
}

TEST(OpenAiChatStream, AFailureIsAnErrorObjectAndTheEnd) {
  auto reply = make_openai_chat_reply({.head = head(false), .is_stream = true});
  std::string out;
  reply->fail(ApiError::internal("it broke"), out);
  const auto data = data_of(out);
  ASSERT_EQ(data.size(), 2u);
  EXPECT_EQ(compact(at(json(data[0]), {"error", "message"})), R"("it broke")");
  EXPECT_EQ(data[1], "[DONE]");
}

TEST(OpenAiChatBody, HasReasoningCallsAndUsage) {
  auto reply = make_openai_chat_reply({.head = head(true)});
  std::string out;
  reply->start({}, out);
  reply->deliver(0, std::vector{event(Kind::kReasoning, "pl"), event(Kind::kReasoning, "an")}, {}, out);
  reply->deliver(0, call(0, "f", {"{", R"("a")", ": ", "1", "}"}), {}, out);
  EXPECT_EQ(out, "");
  reply->finish(0, {.reason = text::FinishReason::kToolCalls, .usage = {.prompt_tokens = 2, .answer_tokens = 7}}, out);
  EXPECT_EQ(out,
            R"({"id":"chatcmpl-abc","object":"chat.completion","created":1700000000,"model":"m",)"
            R"("system_fingerprint":"fp_1","choices":[{"index":0,"message":{"role":"assistant","content":"",)"
            R"("reasoning_content":"plan","tool_calls":[{"id":"call_abc_0","type":"function","function":{"name":"f",)"
            R"("arguments":"{\"a\": 1}"}}]},"logprobs":null,"finish_reason":"tool_calls"}],)"
            R"("usage":{"prompt_tokens":2,"completion_tokens":7,"total_tokens":9,)"
            R"("prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":0},)"
            R"("prompt_cache_hit_tokens":0,"prompt_cache_miss_tokens":2}})");
}

TEST(OpenAiChatBody, ListsChoicesByIndexWhateverEndsFirst) {
  auto reply = make_openai_chat_reply({.head = head(false), .choices = 2, .has_logprobs = true});
  std::string out;
  reply->deliver(1, std::vector{event(Kind::kContent, "b")}, std::vector<ReplyToken>{{"b", -1.0f, {}, false}}, out);
  reply->finish(1, {.reason = text::FinishReason::kStopSequence}, out);
  reply->deliver(0, std::vector{event(Kind::kContent, "a")}, {}, out);
  reply->finish(0, {.reason = text::FinishReason::kLength}, out);
  const JsonValue value = json(out);
  EXPECT_EQ(at(value, {"choices", "0", "message", "content"}).text(), "a");
  EXPECT_EQ(at(value, {"choices", "0", "finish_reason"}).text(), "length");
  EXPECT_EQ(at(value, {"choices", "1", "message", "content"}).text(), "b");
  EXPECT_EQ(at(value, {"choices", "1", "finish_reason"}).text(), "stop");
  EXPECT_EQ(compact(at(value, {"choices", "1", "logprobs"})),
            R"({"content":[{"token":"b","logprob":-1.0,"bytes":[98],"top_logprobs":[]}],"refusal":null})");
  EXPECT_EQ(at(value, {"choices", "0", "message", "reasoning_content"}).kind(), JsonValue::Kind::kNull);
}

}  // namespace
}  // namespace ps::server
