// The requests that two coding agents send, as they came over the wire (Claude Code 2.1.332 and Codex 0.163.0 in a loop
// of calls against this server), with texts, descriptions and ids made short. tests/data/agents/codex.json has also the
// custom tool that Codex gives to models that it knows.
#include <gmock/gmock.h>

#include <fstream>
#include <iterator>

#include "server/reply_testing.h"
#include "tests/server/chat_fixture.h"

namespace ps::tests {
namespace {

using server::test::split_stream;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const std::string kClaudeHeaders =
    "anthropic-version: 2023-06-01\r\nanthropic-beta: claude-code-20250219,interleaved-thinking-2025-05-14,"
    "context-management-2025-06-27,advanced-tool-use-2025-11-20\r\nanthropic-dangerous-direct-browser-access: true\r\n"
    "Authorization: Bearer unused\r\nX-Stainless-Retry-Count: 0\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n";

std::string body_of(const std::string& agent) {
  std::ifstream file(std::string(PAGESTATE_TEST_DATA) + "/data/agents/" + agent + ".json");
  std::string body((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_FALSE(body.empty()) << agent;
  return body;
}

Reply claude(ChatServer& server, const std::string& body) {
  return server.running->ask(post("/v1/messages?beta=true", body, kClaudeHeaders));
}

std::vector<std::string> names_of(const Reply& reply) {
  std::vector<std::string> names;
  for (const auto& event : split_stream(reply.body)) {
    if (names.empty() || names.back() != event.name) names.push_back(event.name);
  }
  return names;
}

TEST(ClaudeCode, ATurnWithADeferredToolIsServed) {
  ChatServer server("plan</think>\n\n" + block_of("a"));
  const Reply reply = claude(server, body_of("claude_code"));
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_THAT(names_of(reply), ElementsAre("message_start", "content_block_start", "ping", "content_block_delta",
                                           "content_block_stop", "content_block_start", "content_block_delta",
                                           "content_block_stop", "message_delta", "message_stop"));
  EXPECT_THAT(reply.body, HasSubstr(R"("stop_reason":"tool_use")"));
  const std::string prompt = server.prompt();
  EXPECT_THAT(prompt, HasSubstr("<｜System｜>Reasoning Effort: 75 "));
  EXPECT_THAT(prompt, HasSubstr("text 7\n\ntext 8\n\n## Tools"));
  EXPECT_THAT(prompt, Not(HasSubstr("billing")));
  EXPECT_THAT(prompt, HasSubstr(R"({"name": "Read", "description": "About Read", "parameters": {"$schema": )"
                                R"("https://json-schema.org/draft/2020-12/schema", "type": "object", )"));
  EXPECT_THAT(prompt, HasSubstr("<｜User｜>text 1\n\ntext 2\n\ntext 3<｜System｜>text 4<｜Assistant｜><think>text 5"
                                "</think>text 6\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"ToolSearch\">\n"));
  // A deferred tool is not among the tools, but in the result that found it.
  const size_t schemas = prompt.find("### Available Tool Schemas");
  EXPECT_GT(prompt.find("WebFetch"), prompt.find("You MUST strictly follow", schemas));
  EXPECT_THAT(prompt, HasSubstr(R"(<tool_result>{"name": "WebFetch", "description": "About WebFetch", )"));
  EXPECT_THAT(prompt, Not(HasSubstr("DeferredToolPlaceholder")));
}

// What it asks beside its turns.
TEST(ClaudeCode, AsksForLittleThingsToo) {
  ChatServer server("x");
  Client client = server.running->client();
  client.send("HEAD / HTTP/1.1\r\nHost: t\r\n\r\n");
  EXPECT_EQ(client.read_reply(false).status, 200);
  EXPECT_EQ(server.running->ask(get("/")).status, 200);
  const Reply quota = claude(server, R"({"model":"m","max_tokens":1,"messages":[{"role":"user","content":"quota"}],)"
                                     R"("metadata":{"user_id":"u"}})");
  EXPECT_EQ(quota.status, 200);
  EXPECT_EQ(text_at(quota, {"stop_reason"}), "max_tokens");
  std::string counted = body_of("claude_code");
  const Reply count = server.running->ask(post("/v1/messages/count_tokens?beta=true", counted, kClaudeHeaders));
  EXPECT_EQ(count.status, 200) << count.body;
  EXPECT_GT(std::stoi(text_at(count, {"input_tokens"})), 100);
}

// What cannot be served is refused by name, in Anthropic's shape.
TEST(ClaudeCode, WhatCannotBeServedIsRefusedByName) {
  ChatServer server("x");
  const std::string image =
      R"({"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgo="}})";
  const std::string turn = R"("messages":[{"role":"user","content":"q"}])";
  const std::string call = R"({"role":"user","content":"q"},{"role":"assistant","content":[)"
                           R"({"type":"tool_use","id":"t","name":"f","input":{}}]})";
  const std::vector<std::pair<std::string, std::string>> refused = {
      {turn + R"(,"tools":[{"type":"web_search_20250305","name":"web_search","max_uses":8}])", "tools[0].type: "},
      {turn + R"(,"output_config":{"format":{"type":"json_schema","schema":{}}})", "output_config.format: "},
      {R"("messages":[{"role":"user","content":[)" + image + "]}]", "messages[0].content[0]: images are not supported"},
      {R"("messages":[)" + call + R"(,{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[)" +
           image + "]}]}]" + kAnthropicTool,
       "messages[2].content[0].content[0]: images are not supported"},
  };
  for (const auto& [fields, words] : refused) {
    const Reply reply = claude(server, R"({"model":"m","max_tokens":50,"stream":true,)" + fields + "}");
    EXPECT_EQ(reply.status, 400) << fields;
    EXPECT_EQ(text_at(reply, {"type"}), "error");
    EXPECT_EQ(text_at(reply, {"error", "type"}), "invalid_request_error");
    EXPECT_THAT(text_at(reply, {"error", "message"}), HasSubstr(words));
  }
  // A failed tool is a result like others; so is one without text.
  for (const std::string result :
       {R"("content":[{"type":"text","text":"no such file"}],"is_error":true)", R"("content":"")"}) {
    EXPECT_EQ(
        server
            .post_json("/v1/messages", R"("max_tokens":50,"messages":[)" + call +
                                           R"(,{"role":"user","content":[{"type":"tool_result","tool_use_id":"t",)" +
                                           result + "}]}]" + kAnthropicTool)
            .status,
        200)
        << result;
  }
}

TEST(Codex, ATurnWithToolsOfEveryKindIsServed) {
  std::string patch = block_of("*** Begin Patch\n+\"a\"\n");
  patch.replace(patch.find("name=\"f\""), 8, "name=\"apply_patch\"");
  patch.replace(patch.find("name=\"x\""), 8, "name=\"input\"");
  ChatServer server("plan</think>\n\n" + patch);
  std::string body = body_of("codex");
  body.insert(1, R"("max_output_tokens":5000,)");  // the plan of this engine leaves no room
  const Reply reply = server.running->ask(post("/v1/responses", body, "originator: codex_exec\r\n"));
  ASSERT_EQ(reply.status, 200) << reply.body;
  const std::string prompt = server.prompt();
  for (const std::string part :
       {R"({"name": "exec_command", )", R"({"name": "apply_patch", )", R"({"name": "multi_agent_v1__close_agent", )",
        "Free text that follows this lark grammar:\\nstart: begin hunk+ end",
        "<think>text 14</think>\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"exec_command\">\n",
        "<｜DSML｜ invoke name=\"multi_agent_v1__close_agent\">\n",
        "<｜DSML｜ invoke name=\"apply_patch\">\n<｜DSML｜ parameter name=\"input\" string=\"true\">*** Begin Patch\n",
        "<tool_result>text 19</tool_result>"}) {
    EXPECT_THAT(prompt, HasSubstr(part));
  }
  EXPECT_THAT(prompt, Not(HasSubstr("web_search")));
  EXPECT_THAT(names_of(reply),
              ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                          "response.content_part.added", "response.reasoning_text.delta",
                          "response.reasoning_text.done", "response.content_part.done", "response.output_item.done",
                          "response.output_item.added", "response.custom_tool_call_input.delta",
                          "response.custom_tool_call_input.done", "response.output_item.done", "response.completed"));
  const auto events = split_stream(reply.body);
  const JsonValue response = at(server::test::json(events.back().data), {"response"});
  EXPECT_THAT(server::test::compact(at(response, {"output", "0", "encrypted_content"})), R"("pagestate:plan")");
  EXPECT_EQ(at(response, {"output", "1", "type"}).text(), "custom_tool_call");
  EXPECT_EQ(at(response, {"output", "1", "input"}).text(), "*** Begin Patch\n+\"a\"\n");
}

// Pitfall F8 for a call that came back as a custom tool's: the prompt repeats what the model wrote.
TEST(Codex, TheCallOfACustomToolComesBackByteForByte) {
  std::string wrote = block_of("a\\b \"c\"\n");
  wrote.replace(wrote.find("name=\"x\""), 8, "name=\"input\"");
  wrote.insert(wrote.find("</｜DSML｜ invoke>"), "\n");  // no spelling of the encoder's
  ChatServer server(wrote);
  const std::string tools = R"(,"tools":[{"type":"custom","name":"f"}],"reasoning":{"effort":"none"})";
  const Reply first = server.responses(tools);
  ASSERT_EQ(first.status, 200) << first.body;
  const std::string item = server::test::compact(at(first.json(), {"output", "0"}));
  const std::string asked = server.prompt();
  const Reply second = server.post_json("/v1/responses", R"("input":[{"role":"user","content":"Hello"},)" + item +
                                                             R"(,{"type":"custom_tool_call_output","call_id":")" +
                                                             text_at(first, {"output", "0", "call_id"}) +
                                                             R"(","output":"done"}])" + tools);
  ASSERT_EQ(second.status, 200) << second.body;
  EXPECT_THAT(server.prompt(), testing::StartsWith(asked + wrote));
}

}  // namespace
}  // namespace ps::tests
