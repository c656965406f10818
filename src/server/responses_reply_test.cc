#include "server/responses_reply.h"

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

ReplyHead head() { return {"abc", 1700000000, "m", "fp_1", true}; }

std::string full_stream(const ResponsesOptions& options) {
  auto reply = make_responses_reply(options);
  std::string out;
  reply->start({.prompt_tokens = 5}, out);
  reply->deliver(0, std::vector{event(Kind::kReasoning, "pl"), event(Kind::kReasoning, "an")}, {}, out);
  reply->deliver(0, std::vector{event(Kind::kContent, "Hi")}, {}, out);
  reply->deliver(0, call(0, "f", {"{", "}"}), {}, out);
  reply->finish(0,
                {.reason = text::FinishReason::kToolCalls,
                 .usage = {.prompt_tokens = 5, .cached_tokens = 2, .answer_tokens = 9, .reasoning_tokens = 4}},
                out);
  return out;
}

TEST(ResponsesStream, EventsComeInOrderAndAreNumbered) {
  const auto events = split_stream(full_stream({.head = head(), .is_stream = true}));
  std::vector<std::string> names;
  for (size_t i = 0; i < events.size(); ++i) {
    const JsonValue value = json(events[i].data);
    EXPECT_EQ(at(value, {"type"}).text(), events[i].name);
    EXPECT_EQ(at(value, {"sequence_number"}).text(), std::to_string(i));
    names.push_back(events[i].name.substr(std::string("response.").size()));
  }
  EXPECT_THAT(names, ElementsAre("created", "in_progress", "output_item.added", "content_part.added",
                                 "reasoning_text.delta", "reasoning_text.delta", "reasoning_text.done",
                                 "content_part.done", "output_item.done", "output_item.added", "content_part.added",
                                 "output_text.delta", "output_text.done", "content_part.done", "output_item.done",
                                 "output_item.added", "function_call_arguments.delta", "function_call_arguments.delta",
                                 "function_call_arguments.done", "output_item.done", "completed"));
  EXPECT_EQ(events[4].data,
            R"({"type":"response.reasoning_text.delta","sequence_number":4,"item_id":"rs_abc_0","output_index":0,)"
            R"("content_index":0,"delta":"pl"})");
  EXPECT_EQ(events[11].data,
            R"({"type":"response.output_text.delta","sequence_number":11,"item_id":"msg_abc_1","output_index":1,)"
            R"("content_index":0,"delta":"Hi","logprobs":[]})");
  EXPECT_EQ(events[15].data,
            R"({"type":"response.output_item.added","sequence_number":15,"output_index":2,"item":{"id":"fc_abc_2",)"
            R"("type":"function_call","call_id":"call_abc_0","name":"f","arguments":"","status":"in_progress"}})");
  EXPECT_EQ(events[18].data,
            R"({"type":"response.function_call_arguments.done","sequence_number":18,"item_id":"fc_abc_2",)"
            R"("output_index":2,"name":"f","arguments":"{}"})");
}

TEST(ResponsesStream, EndsWithTheWholeResponse) {
  const auto events = split_stream(full_stream({.head = head(), .is_stream = true}));
  const JsonValue response = at(json(events.back().data), {"response"});
  EXPECT_EQ(at(response, {"id"}).text(), "resp_abc");
  EXPECT_EQ(at(response, {"status"}).text(), "completed");
  EXPECT_EQ(compact(at(response, {"output"})),
            R"([{"id":"rs_abc_0","type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"plan"}],)"
            R"("encrypted_content":null,"status":"completed"},)"
            R"({"id":"msg_abc_1","type":"message","role":"assistant","content":[{"type":"output_text","text":"Hi",)"
            R"("annotations":[],"logprobs":[]}],"status":"completed"},)"
            R"({"id":"fc_abc_2","type":"function_call","call_id":"call_abc_0","name":"f","arguments":"{}",)"
            R"("status":"completed"}])");
  EXPECT_EQ(compact(at(response, {"usage"})),
            R"({"input_tokens":5,"input_tokens_details":{"cached_tokens":2},"output_tokens":9,)"
            R"("output_tokens_details":{"reasoning_tokens":4},"total_tokens":14})");
}

TEST(ResponsesBody, IsTheResponseThatAStreamEndsWith) {
  const std::string body = full_stream({.head = head()});
  const auto events = split_stream(full_stream({.head = head(), .is_stream = true}));
  EXPECT_EQ(compact(json(body)), compact(at(json(events.back().data), {"response"})));
}

TEST(ResponsesBody, ThoughtsGoOutSealedWhereTheClientKeepsOnlyThat) {
  const JsonValue body = json(full_stream({.head = head(), .includes_encrypted_reasoning = true}));
  EXPECT_EQ(at(body, {"output", "0", "encrypted_content"}).text(), "pagestate:plan");
}

TEST(ResponsesBody, AnAnswerThatWasCutIsIncomplete) {
  auto reply = make_responses_reply({.head = head()});
  std::string out;
  reply->deliver(0, std::vector{event(Kind::kContent, "Hi")}, {}, out);
  reply->finish(0, {.reason = text::FinishReason::kLength}, out);
  EXPECT_EQ(at(json(out), {"status"}).text(), "incomplete");
  EXPECT_EQ(at(json(out), {"incomplete_details", "reason"}).text(), "max_output_tokens");
  EXPECT_EQ(at(json(out), {"output", "0", "status"}).text(), "incomplete");
}

TEST(ResponsesBody, AnEmptyAnswerIsAnEmptyMessage) {
  auto reply = make_responses_reply({.head = head()});
  std::string out;
  reply->finish(0, {}, out);
  EXPECT_EQ(compact(at(json(out), {"output", "0", "content"})),
            R"([{"type":"output_text","text":"","annotations":[],"logprobs":[]}])");
}

TEST(ResponsesStream, CallsOfCustomToolsAreTextAndThoseOfNamespacesSayWhose) {
  ResponsesOptions options{.head = head(), .is_stream = true};
  options.tools.by_name = {{"patch", {.name = "patch", .is_custom = true}},
                           {"mcp__x__f", {.name = "f", .space = "mcp__x"}}};
  auto reply = make_responses_reply(options);
  std::string out;
  reply->deliver(0, call(0, "patch", {"{", "\"input\"", ": ", "\"", "a\\n", "\\\"b", "\"", "}"}), {}, out);
  reply->deliver(0, call(1, "mcp__x__f", {"{", "}"}), {}, out);
  reply->finish(0, {.reason = text::FinishReason::kToolCalls}, out);
  std::vector<std::string> lines;
  for (const test::StreamEvent& event : split_stream(out)) {
    const JsonValue value = json(event.data);
    for (const std::string key : {"delta", "input", "item"}) {
      if (value.find(key) != nullptr) lines.push_back(event.name.substr(9) + ' ' + compact(*value.find(key)));
    }
  }
  EXPECT_THAT(
      lines,
      ElementsAre(R"(output_item.added {"id":"ctc_abc_0","type":"custom_tool_call","call_id":"call_abc_0",)"
                  R"("name":"patch","input":"","status":"in_progress"})",
                  R"(custom_tool_call_input.delta "a\n")", R"(custom_tool_call_input.delta "\"b")",
                  R"(custom_tool_call_input.done "a\n\"b")",
                  R"(output_item.done {"id":"ctc_abc_0","type":"custom_tool_call","call_id":"call_abc_0",)"
                  R"("name":"patch","input":"a\n\"b","status":"completed"})",
                  R"(output_item.added {"id":"fc_abc_1","type":"function_call","call_id":"call_abc_1","name":"f",)"
                  R"("namespace":"mcp__x","arguments":"","status":"in_progress"})",
                  R"(function_call_arguments.delta "{")", R"(function_call_arguments.delta "}")",
                  R"(output_item.done {"id":"fc_abc_1","type":"function_call","call_id":"call_abc_1","name":"f",)"
                  R"("namespace":"mcp__x","arguments":"{}","status":"completed"})"));
}

TEST(ResponsesBody, RepeatsWhatWasAsked) {
  ResponsesEcho echo;
  echo.instructions = R"("be brief")";
  echo.temperature = "0.5";
  echo.metadata = R"({"a":"b"})";
  echo.parallel_tool_calls = false;
  auto reply = make_responses_reply(
      {.head = head(), .echo = echo, .tools = {.in_force = R"([{"type":"function","name":"f"}])"}});
  std::string out;
  reply->finish(0, {}, out);
  const JsonValue body = json(out);
  EXPECT_EQ(compact(at(body, {"instructions"})), R"("be brief")");
  EXPECT_EQ(compact(at(body, {"temperature"})), "0.5");
  EXPECT_EQ(compact(at(body, {"tools", "0", "name"})), R"("f")");
  EXPECT_EQ(compact(at(body, {"metadata"})), R"({"a":"b"})");
  EXPECT_EQ(compact(at(body, {"parallel_tool_calls"})), "false");
  EXPECT_EQ(compact(at(body, {"store"})), "false");
}

TEST(ResponsesStream, AFailureIsAFailedResponse) {
  auto reply = make_responses_reply({.head = head(), .is_stream = true});
  std::string out;
  reply->start({}, out);
  out.clear();
  reply->fail(ApiError::internal("it broke"), out);
  const auto events = split_stream(out);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].name, "response.failed");
  EXPECT_EQ(compact(at(json(events[0].data), {"response", "error"})),
            R"({"code":"server_error","message":"it broke"})");
}

}  // namespace
}  // namespace ps::server
