#include "server/anthropic_reply.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

std::vector<std::string> lines(std::string_view stream) {
  std::vector<std::string> lines;
  for (const auto& [name, data] : split_stream(stream)) lines.push_back(name + ' ' + data);
  return lines;
}

std::string stop_block(int index) {
  return R"(content_block_stop {"type":"content_block_stop","index":)" + std::to_string(index) + "}";
}

TEST(AnthropicStream, ThoughtTextAndCallAreBlocksInOrder) {
  auto reply = make_anthropic_reply(head(true), true);
  std::string out;
  reply->start({.prompt_tokens = 10, .cached_tokens = 4}, out);
  reply->deliver(0, std::vector{event(Kind::kReasoning, "plan"), event(Kind::kContent, "Hi")}, {}, out);
  reply->deliver(0, call(0, "f", {"{", "}"}), {}, out);
  reply->finish(0,
                {.reason = text::FinishReason::kToolCalls,
                 .usage = {.prompt_tokens = 10, .cached_tokens = 4, .answer_tokens = 7}},
                out);
  EXPECT_THAT(
      lines(out),
      ElementsAre(
          R"(message_start {"type":"message_start","message":{"id":"msg_abc","type":"message","role":"assistant",)"
          R"("model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":6,)"
          R"("cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":0,)"
          R"("service_tier":"standard"}}})",
          R"(content_block_start {"type":"content_block_start","index":0,"content_block":{"type":"thinking",)"
          R"("thinking":"","signature":""}})",
          R"(ping {"type":"ping"})",
          R"(content_block_delta {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta",)"
          R"("thinking":"plan"}})",
          R"(content_block_delta {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta",)"
          R"("signature":"msg_abc"}})",
          stop_block(0),
          R"(content_block_start {"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}})",
          R"(content_block_delta {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Hi"}})",
          stop_block(1),
          R"(content_block_start {"type":"content_block_start","index":2,"content_block":{"type":"tool_use",)"
          R"("id":"toolu_abc_0","name":"f","input":{}}})",
          R"(content_block_delta {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta",)"
          R"("partial_json":"{"}})",
          R"(content_block_delta {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta",)"
          R"("partial_json":"}"}})",
          stop_block(2),
          R"(message_delta {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},)"
          R"("usage":{"input_tokens":6,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,)"
          R"("output_tokens":7}})",
          R"(message_stop {"type":"message_stop"})"));
}

TEST(AnthropicStream, WithoutThoughtsTheFirstBlockWaitsForText) {
  auto reply = make_anthropic_reply(head(false), true);
  std::string out;
  reply->start({}, out);
  EXPECT_EQ(split_stream(out).size(), 1u);
  reply->deliver(0, std::vector{event(Kind::kContent, "a"), event(Kind::kContent, "b")}, {}, out);
  reply->finish(0, {.reason = text::FinishReason::kStopSequence, .stop_string = "END"}, out);
  std::vector<std::string> names;
  for (const auto& [name, data] : split_stream(out)) names.push_back(name);
  EXPECT_THAT(names, ElementsAre("message_start", "content_block_start", "ping", "content_block_delta",
                                 "content_block_delta", "content_block_stop", "message_delta", "message_stop"));
  const JsonValue delta = json(split_stream(out)[6].data);
  EXPECT_EQ(compact(at(delta, {"delta"})), R"({"stop_reason":"stop_sequence","stop_sequence":"END"})");
}

TEST(AnthropicStream, ACallThatWasCutOffIsClosed) {
  auto reply = make_anthropic_reply(head(false), true);
  std::string out;
  reply->deliver(0, std::vector{event(Kind::kCallStart, "f", 0), event(Kind::kArguments, "{", 0)}, {}, out);
  reply->finish(0, {.reason = text::FinishReason::kLength}, out);
  const auto events = split_stream(out);
  ASSERT_EQ(events.size(), 6u);
  EXPECT_EQ(events[3].name, "content_block_stop");
  EXPECT_EQ(at(json(events[4].data), {"delta", "stop_reason"}).text(), "max_tokens");
}

TEST(AnthropicStream, AFailureIsAnErrorEvent) {
  auto reply = make_anthropic_reply(head(false), true);
  std::string out;
  reply->fail(ApiError::unavailable("out of order", "fault"), out);
  EXPECT_THAT(lines(out), ElementsAre(R"(error {"type":"error","error":{"type":"overloaded_error",)"
                                      R"("message":"out of order"}})"));
}

TEST(AnthropicBody, IsOneMessage) {
  auto reply = make_anthropic_reply(head(true), false);
  std::string out;
  reply->start({}, out);
  reply->deliver(0, std::vector{event(Kind::kReasoning, "plan"), event(Kind::kContent, "Hi")}, {}, out);
  reply->deliver(0, call(0, "f", {R"({"a": [1, 2.50]})"}), {}, out);
  EXPECT_EQ(out, "");
  reply->finish(0, {.reason = text::FinishReason::kToolCalls, .usage = {.prompt_tokens = 3, .answer_tokens = 2}}, out);
  EXPECT_EQ(out, R"({"id":"msg_abc","type":"message","role":"assistant","model":"m","content":[)"
                 R"({"type":"thinking","thinking":"plan","signature":"msg_abc"},{"type":"text","text":"Hi"},)"
                 R"({"type":"tool_use","id":"toolu_abc_0","name":"f","input":{"a": [1, 2.50]}}],)"
                 R"("stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":3,)"
                 R"("cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":2,)"
                 R"("service_tier":"standard"}})");
}

// encoding.md 3.2: what cannot be parsed becomes an empty object.
TEST(AnthropicBody, ACallThatWasCutOffHasNoInput) {
  for (const std::string cut : {"", "{", R"({"a": "b)", "[1]", R"({"a": 1}})"}) {
    auto reply = make_anthropic_reply(head(false), false);
    std::string out;
    reply->deliver(0, std::vector{event(Kind::kCallStart, "f", 0), event(Kind::kArguments, cut, 0)}, {}, out);
    reply->finish(0, {.reason = text::FinishReason::kLength}, out);
    EXPECT_EQ(compact(at(json(out), {"content", "0", "input"})), "{}") << cut;
  }
}

TEST(AnthropicErrors, TypeFollowsTheStatus) {
  const auto type = [](int status) {
    ApiError error = ApiError::internal("m");
    error.status = status;
    return at(json(anthropic_error_body(error)), {"error", "type"}).text();
  };
  EXPECT_EQ(type(400), "invalid_request_error");
  EXPECT_EQ(type(401), "authentication_error");
  EXPECT_EQ(type(404), "not_found_error");
  EXPECT_EQ(type(413), "request_too_large");
  EXPECT_EQ(type(500), "api_error");
  EXPECT_EQ(type(503), "overloaded_error");
  EXPECT_EQ(anthropic_token_count_body(12), R"({"input_tokens":12})");
}

}  // namespace
}  // namespace ps::server
