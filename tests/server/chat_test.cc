// The chat surfaces with a model that says what it is told to: prompts, answers, errors. The suite ChatPitfalls has
// faults that users met in other engines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/server/chat_fixture.h"

namespace ps::tests {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

Answer whole(ChatServer& server, const std::string& more) { return answer_of(server.chat(more).json()); }
Answer streamed(ChatServer& server, const std::string& more) {
  return answer_of(stream_objects(server.chat(more + R"(,"stream":true)").body));
}
// Streamed and whole must agree.
Answer both(ChatServer& server, const std::string& more) {
  const Answer answer = whole(server, more);
  EXPECT_EQ(streamed(server, more), answer) << "streamed answer differs";
  return answer;
}

std::string joined_tokens(const JsonValue& list) {
  std::string joined;
  for (const JsonValue& token : list.items()) joined += token.find("token")->text();
  return joined;
}

// Pitfall 14.
TEST(ChatPitfalls, ThinkingIsOnUnlessTheRequestOrTheServerSaysOtherwise) {
  ChatServer server("plan</think>Hi");
  EXPECT_EQ(both(server, ""), (Answer{"plan", "Hi", {}, "stop"}));
  EXPECT_THAT(server.prompt(), HasSubstr("Reasoning Effort: 75 "));
  EXPECT_THAT(server.prompt(), EndsWith("<｜User｜>Hello<｜Assistant｜><think>"));
  const std::vector<std::string> switches = {kOff, R"(,"reasoning_effort":"none")",
                                             R"(,"chat_template_kwargs":{"enable_thinking":false})"};
  for (const std::string& off : switches) {
    server.says("Hi");
    const Reply reply = server.chat(off);
    EXPECT_EQ(answer_of(reply.json()), (Answer{"", "Hi", {}, "stop"})) << off;
    EXPECT_THAT(server.prompt(), EndsWith("<｜Assistant｜></think>")) << off;
    EXPECT_EQ(text_at(reply, {"choices", "0", "message", "reasoning_content"}), "(null)");
  }
  server::ServerOptions options;
  options.chat.defaults.is_thinking = false;
  ChatServer plain("Hi", options);
  EXPECT_EQ(both(plain, ""), (Answer{"", "Hi", {}, "stop"}));
  plain.says("plan</think>Hi");
  EXPECT_EQ(both(plain, R"(,"reasoning_effort":"low")"), (Answer{"plan", "Hi", {}, "stop"}));
  EXPECT_THAT(plain.prompt(), HasSubstr("Reasoning Effort: 50 "));
}

TEST(Chat, TheChatEncodingIsTheServersChoice) {
  server::ServerOptions options;
  options.chat.encoding = text::ChatEncoding::kModel;
  const std::string history =
      R"("max_tokens":50,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b",)"
      R"("reasoning_content":"old"},{"role":"user","content":"c"}])";
  ChatServer model("x", options);
  (void)model.post_json("/v1/chat/completions", history);
  EXPECT_THAT(model.prompt(), Not(HasSubstr("old")));  // earlier thoughts are dropped
  ChatServer recipe("x");
  (void)recipe.post_json("/v1/chat/completions", history);
  EXPECT_THAT(recipe.prompt(), HasSubstr("old"));
}

TEST(Chat, CallsComeOutOnEverySurface) {
  ChatServer server("need it</think>\n\n" + block_of("Paris"));
  EXPECT_EQ(both(server, kTool), (Answer{"need it", "", {R"(f{"x": "Paris"})"}, "tool_calls"}));
  const Reply message = server.messages(kAnthropicTool);
  EXPECT_EQ(text_at(message, {"content", "0", "thinking"}), "need it");
  EXPECT_EQ(text_at(message, {"content", "1", "input", "x"}), "Paris");
  EXPECT_EQ(text_at(message, {"stop_reason"}), "tool_use");
  const Reply response = server.responses(kFlatTool);
  EXPECT_EQ(text_at(response, {"output", "0", "content", "0", "text"}), "need it");
  EXPECT_EQ(text_at(response, {"output", "1", "arguments"}), R"({"x": "Paris"})");
  EXPECT_EQ(text_at(response, {"status"}), "completed");
}

TEST(Chat, OnlyOneCallIsMadeWhereParallelOnesAreOff) {
  const std::string one = block_of("1");
  const size_t end = one.find("</｜DSML｜ calls>");
  const std::string two = one.substr(0, end) + one.substr(one.find("<｜DSML｜ invoke"));
  ChatServer server(two);
  EXPECT_EQ(both(server, kTool + kOff).calls.size(), 2u);
  const Answer single = both(server, kTool + kOff + R"(,"parallel_tool_calls":false)");
  EXPECT_THAT(single.calls, ElementsAre(R"(f{"x": "1"})"));
  EXPECT_EQ(single.finish, "tool_calls");
  const Reply message =
      server.messages(kAnthropicTool + R"(,"tool_choice":{"type":"auto","disable_parallel_tool_use":true})" + kOff);
  EXPECT_EQ(at(message.json(), {"content"}).items().size(), 1u);
}

TEST(Chat, StopStringsEndTheAnswerButNotTheThought) {
  ChatServer server("END of thought</think>one END two");
  EXPECT_EQ(both(server, R"(,"stop":"END")"), (Answer{"END of thought", "one ", {}, "stop"}));
  const Reply message = server.messages(R"(,"stop_sequences":["x","END"])");
  EXPECT_EQ(text_at(message, {"stop_reason"}), "stop_sequence");
  EXPECT_EQ(text_at(message, {"stop_sequence"}), "END");
  EXPECT_EQ(text_at(message, {"content", "1", "text"}), "one ");
}

TEST(Chat, SamplingFieldsReachTheEngine) {
  ChatServer server("x");
  (void)server.chat();
  engine::Request request = server.engine.requests().back();
  EXPECT_EQ(request.sampling.temperature, 1);
  EXPECT_EQ(request.sampling.top_p, 1);
  (void)server.chat(R"(,"temperature":0.5,"top_p":0.9,"top_k":7,"min_p":0.1,"seed":42,"presence_penalty":1,)"
                    R"("frequency_penalty":-1,"repetition_penalty":1.5,"logit_bias":{"5":-100},"ignore_eos":true)");
  request = server.engine.requests().back();
  EXPECT_EQ(request.sampling.temperature, 0.5);
  EXPECT_EQ(request.sampling.top_p, 0.9);
  EXPECT_EQ(request.sampling.top_k, 7);
  EXPECT_EQ(request.sampling.min_p, 0.1);
  EXPECT_EQ(request.sampling.seed, 42u);
  EXPECT_EQ(request.sampling.presence_penalty, 1);
  EXPECT_EQ(request.sampling.frequency_penalty, -1);
  EXPECT_EQ(request.sampling.repetition_penalty, 1.5);
  EXPECT_THAT(request.sampling.logit_bias, ElementsAre(testing::Pair(5, -100)));
  EXPECT_TRUE(request.ignore_eos);
  EXPECT_EQ(server.chat(R"(,"logit_bias":{"512":1})").error("message"),
            "logit_bias has the token id \"512\"; legal values are 0 to 511");
}

TEST(Chat, WithoutMaxTokensTheContextIsTheLimit) {
  ChatServer server("x");
  (void)server.post_json("/v1/chat/completions", R"("messages":[{"role":"user","content":"Hello"}])");
  const engine::Request request = server.engine.requests().back();
  EXPECT_EQ(std::ssize(request.prompt) + request.max_tokens, 1000);  // of the scripted engine
}

TEST(Chat, SeveralAnswersAreSequencesOfOnePrompt) {
  ChatServer server("Hi");
  const Reply reply = server.chat(kOff + R"(,"n":3,"seed":10)");
  const auto requests = server.engine.requests();
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(requests[0].prompt, requests[2].prompt);
  EXPECT_EQ(requests[2].sampling.seed, 12u);
  EXPECT_EQ(at(reply.json(), {"choices"}).items().size(), 3u);
  EXPECT_EQ(text_at(reply, {"choices", "2", "message", "content"}), "Hi");
  EXPECT_EQ(text_at(reply, {"usage", "prompt_tokens"}), std::to_string(requests[0].prompt.size()));
  EXPECT_EQ(text_at(reply, {"usage", "completion_tokens"}), std::to_string(3 * server.engine.script.answer.size()));
  EXPECT_EQ(server.chat(R"(,"n":0)").error("message"), "Invalid n value (legal values are 1 to 128)");
}

TEST(Chat, LogprobsSpellTheTextAndNotTheMarkup) {
  ChatServer server("ab</think>cd");
  const JsonValue body = server.chat(R"(,"logprobs":true,"top_logprobs":0)").json();
  const auto text = [&](const std::string& part) {
    return joined_tokens(at(body, {"choices", "0", "logprobs", part}));
  };
  EXPECT_EQ(text("reasoning_content"), "ab");
  EXPECT_EQ(text("content"), "cd");
  server.says(block_of("v"));
  const JsonValue call = server.chat(kTool + kOff + R"(,"logprobs":true)").json();
  EXPECT_EQ(joined_tokens(at(call, {"choices", "0", "logprobs", "content"})), "");
}

TEST(Chat, JsonObjectIsAskedForAndSchemasAreRefused) {
  ChatServer server("```json\n{\"a\": 1}\n```");
  const std::string ask = R"("max_tokens":500,"messages":[{"role":"user","content":"as json"}],"response_format":)";
  const Reply reply = server.post_json("/v1/chat/completions", ask + R"({"type":"json_object"})" + kOff);
  EXPECT_EQ(text_at(reply, {"choices", "0", "message", "content"}), "{\"a\": 1}");
  EXPECT_THAT(server.prompt(), HasSubstr("## Response Format:"));
  EXPECT_EQ(server.chat(R"(,"response_format":{"type":"json_object"})").error("message"),
            "Prompt must contain the word 'json' in some form to use 'response_format' of type 'json_object'.");
  const Reply schema = server.chat(R"(,"response_format":{"type":"json_schema","json_schema":{"schema":{}}})");
  EXPECT_EQ(schema.status, 400);
  EXPECT_THAT(schema.error("message"), HasSubstr("legal values are text and json_object"));
}

TEST(Chat, ErrorsHaveTheShapeOfTheirSurface) {
  ChatServer server("x");
  const Reply openai = server.post_json("/v1/chat/completions", R"("messages":[])");
  EXPECT_EQ(openai.status, 400);
  EXPECT_EQ(openai.error("message"), "Empty input messages");
  EXPECT_EQ(openai.error("type"), "invalid_request_error");
  const Reply anthropic = server.messages(R"(,"tools":[{"type":"bash_20250124","name":"bash"}])");
  EXPECT_EQ(anthropic.status, 400);
  EXPECT_EQ(text_at(anthropic, {"type"}), "error");
  EXPECT_EQ(text_at(anthropic, {"error", "type"}), "invalid_request_error");
  EXPECT_THAT(text_at(anthropic, {"error", "message"}), HasSubstr("tools[0].type"));
  EXPECT_EQ(text_at(server.running->ask(post("/anthropic/v1/messages", "{")), {"type"}), "error");
  EXPECT_THAT(server.responses(R"(,"previous_response_id":"r")").error("message"), HasSubstr("nothing is stored"));
}

TEST(Chat, AForcedCallWithoutToolsIsRefusedOnEverySurface) {
  ChatServer server("x");
  for (const std::string tools : {"", R"(,"tools":[])", R"(,"tools":null)"}) {
    for (const auto& [choice, words] :
         {std::pair<std::string, std::string>{R"("required")", "\"required\" needs at least one tool in tools"},
          {R"({"type":"function","function":{"name":"f"}})", "no tool named 'f'"}}) {
      const Reply reply = server.chat(tools + kOff + R"(,"tool_choice":)" + choice);
      EXPECT_EQ(reply.status, 400) << choice << tools;
      EXPECT_THAT(reply.error("message"), HasSubstr(words));
      EXPECT_EQ(server.chat(tools + R"(,"tool_choice":)" + choice).status, 400) << "thinking";
    }
    for (const std::string choice : {R"({"type":"any"})", R"({"type":"tool","name":"f"})"}) {
      const Reply reply = server.messages(tools + R"(,"tool_choice":)" + choice);
      EXPECT_EQ(reply.status, 400) << choice << tools;
      EXPECT_THAT(text_at(reply, {"error", "message"}), HasSubstr("needs at least one tool in tools"));
    }
    for (const std::string choice : {R"("required")", R"({"type":"function","name":"f"})"}) {
      const Reply reply = server.responses(tools + R"(,"tool_choice":)" + choice);
      EXPECT_EQ(reply.status, 400) << choice << tools;
      EXPECT_THAT(reply.error("message"), HasSubstr("needs at least one tool of type function or custom in tools"));
    }
    EXPECT_EQ(server.chat(tools + R"(,"tool_choice":"auto")").status, 200);
    EXPECT_EQ(server.messages(tools + R"(,"tool_choice":{"type":"none"})").status, 200);
    EXPECT_EQ(server.responses(tools + R"(,"tool_choice":"none")").status, 200);
  }
  EXPECT_EQ(server.chat(kTool + kOff + R"(,"tool_choice":"required")").status, 200);
}

// What lies behind every surface is checked once; its errors must still use the client's own names.
TEST(Chat, ErrorsOfAConversationUseTheFieldNamesOfTheirSurface) {
  ChatServer server("x");
  const auto messages = [&](const std::string& fields) {
    const Reply reply = server.post_json("/v1/messages", R"("max_tokens":9,)" + fields);
    EXPECT_EQ(reply.status, 400) << reply.body;
    return text_at(reply, {"error", "message"});
  };
  const auto responses = [&](const std::string& fields) {
    const Reply reply = server.post_json("/v1/responses", fields);
    EXPECT_EQ(reply.status, 400) << reply.body;
    return reply.error("message");
  };
  const std::string ask = R"("messages":[{"role":"user","content":"q"}])";
  EXPECT_THAT(messages(ask + R"(,"tools":[{"name":"a b","input_schema":{"type":"object"}}])"),
              HasSubstr("tools[0].name: legal are 1 to 128 characters"));
  EXPECT_EQ(messages(ask + R"(,"tools":[{"name":"f","input_schema":{"type":"array"}}])"),
            R"(tools[0].input_schema: expected a JSON schema with "type": "object")");
  EXPECT_EQ(responses(R"("input":"q","tools":[{"type":"web_search"},{"type":"function","name":"f","parameters":{}}])"),
            R"(tools[1].parameters: expected a JSON schema with "type": "object")");
  EXPECT_EQ(server.chat(R"(,"tools":[{"type":"function","function":{"name":"f","parameters":{}}}])").error("message"),
            R"(tools[0].function.parameters: expected a JSON schema with "type": "object")");

  const std::string use = R"({"type":"tool_use","id":"c","name":"f","input":{}})";
  const std::string turn = R"("messages":[{"role":"user","content":"q"},{"role":"assistant","content":[)";
  const auto results = [](const std::string& blocks) { return R"(]},{"role":"user","content":[)" + blocks + "]}]"; };
  const std::string result = R"({"type":"tool_result","tool_use_id":"c"})";
  EXPECT_EQ(messages(turn + use + results(R"({"type":"text","text":"no"})")),
            R"(tool_use: the id "c" has no tool_result right after it)");
  EXPECT_EQ(messages(turn + use + "," + use + results(result)), R"(tool_use: two have the id "c")");
  EXPECT_EQ(messages(turn + use + results(result + "," + result)), R"(tool_result: two have the tool_use_id "c")");
  EXPECT_EQ(messages(turn + use + results(R"({"type":"tool_result","tool_use_id":"z"})")),
            R"(tool_result: the tool_use_id "z" belongs to no tool_use of the turn before)");
  EXPECT_EQ(messages(R"("messages":[{"role":"user","content":[)" + result + "]}]"),
            R"(tool_result: the tool_use_id "c" belongs to no tool_use of the turn before)");
  EXPECT_EQ(messages(turn + R"({"type":"tool_use","id":"","name":"f"})" + results(result)),
            "messages[1].content[0].id: must not be empty");

  const std::string call = R"({"type":"function_call","call_id":"c","name":"f","arguments":"{}"})";
  const std::string output = R"({"type":"function_call_output","call_id":"c","output":""})";
  EXPECT_EQ(responses(R"("input":[)" + call + R"(,{"role":"user","content":"q"}])"),
            R"(function_call: the call_id "c" has no function_call_output right after it)");
  EXPECT_EQ(responses(R"("input":[)" + output + "]"),
            R"(function_call_output: the call_id "c" belongs to no function_call of the turn before)");
  EXPECT_EQ(responses(R"("input":[])"), "input: at least one item is required");
  EXPECT_EQ(responses(R"("input":"q","text":{"format":{"type":"json_object"}})"),
            "Prompt must contain the word 'json' in some form to use 'text.format' of type 'json_object'.");
}

TEST(Chat, ErrorsOfTheModelEncodingUseTheFieldNamesOfTheirSurface) {
  server::ServerOptions options;
  options.chat.encoding = text::ChatEncoding::kModel;
  ChatServer server("x", options);
  EXPECT_THAT(server.chat(R"(,"reasoning_effort":"xhigh")").error("message"),
              testing::StartsWith("reasoning_effort: xhigh is not known"));
  EXPECT_THAT(text_at(server.messages(R"(,"output_config":{"effort":"xhigh"})"), {"error", "message"}),
              testing::StartsWith("output_config.effort: xhigh is not known"));
  EXPECT_THAT(server.responses(R"(,"reasoning":{"effort":"xhigh"})").error("message"),
              testing::StartsWith("reasoning.effort: xhigh is not known"));
  const Reply reply = server.post_json(
      "/v1/responses", R"("input":[{"role":"user","content":"q"},{"type":"function_call","call_id":"c","name":"f",)"
                       R"("arguments":"no"},{"type":"function_call_output","call_id":"c","output":""}])");
  EXPECT_EQ(reply.error("message"), "input[1].arguments: expected the JSON text of an object");
  // This encoding knows developers; the error of an unknown role says so.
  const Reply developer = server.post_json("/v1/chat/completions", R"("messages":[{"role":"developer","content":"d"},)"
                                                                   R"({"role":"user","content":"q"}],"max_tokens":9)");
  EXPECT_EQ(developer.status, 200) << developer.body;
  for (const auto& [path, field] : {std::pair{"/v1/chat/completions", "messages"}, {"/v1/responses", "input"}}) {
    const Reply boss = server.post_json(path, "\"" + std::string(field) + R"(":[{"role":"boss","content":"x"}])");
    EXPECT_EQ(boss.status, 400);
    EXPECT_THAT(boss.error("message"), HasSubstr("developer")) << path;
  }
}

TEST(Chat, TokensAreCountedWithoutAnAnswer) {
  ChatServer server("x");
  const Reply count =
      server.post_json("/v1/messages/count_tokens", R"("messages":[{"role":"user","content":"Hello"}])");
  EXPECT_TRUE(server.engine.requests().empty());
  (void)server.messages();
  EXPECT_EQ(text_at(count, {"input_tokens"}), std::to_string(server.engine.requests().back().prompt.size()));
}

TEST(Chat, UnknownModelsAreServedAndNamedAsAsked) {
  ChatServer server("x");
  EXPECT_EQ(text_at(server.chat(), {"model"}), "m");
  EXPECT_EQ(text_at(server.messages(), {"model"}), "m");
  EXPECT_EQ(
      server.running->ask(post("/v1/chat/completions", R"({"model":"","messages":[{"role":"user","content":"x"}]})"))
          .status,
      400);
}

TEST(Chat, AnAnswerThatHasBegunGoesOn) {
  ChatServer server(" 42.");
  const Reply reply = server.post_json(
      "/v1/messages",
      R"("max_tokens":50,"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"The answer is"}])");
  EXPECT_THAT(server.prompt(), EndsWith("<｜Assistant｜></think>The answer is"));
  EXPECT_EQ(text_at(reply, {"content", "0", "text"}), " 42.");
}

TEST(Chat, AFailureDuringAStreamIsAnEventOfTheSurface) {
  ChatServer server(std::string(400, 'a'));
  server.engine.script.on_step = [steps = 0]() mutable {
    if (++steps == 5) throw std::runtime_error("broken");
  };
  const std::string stream = server.messages(kOff + R"(,"stream":true)").body;
  EXPECT_THAT(stream, HasSubstr("event: message_start"));
  EXPECT_THAT(stream, HasSubstr("event: error\ndata: {\"type\":\"error\""));
}

// ---- Faults that users met elsewhere ----

// Pitfall 20: a client that splits tags itself never meets one, since thoughts and calls have fields of their own.
TEST(ChatPitfalls, ControlMarkupNeverReachesTheContent) {
  ChatServer server("");
  const std::vector<std::pair<std::string, std::string>> outputs = {
      // what the model writes, and its content
      {"plan</think>Hi", "Hi"},
      {"plan</think>Hi\n\n" + block_of("v"), "Hi"},
      {"plan\n\n" + block_of("v"), ""},
      {"plan</think>one</think> two", "one two"},
      {"plan</think>" + block_of("<｜DSML｜ is quoted"), ""}};
  for (const auto& [output, content] : outputs) {
    SCOPED_TRACE(output);
    server.says(output);
    EXPECT_EQ(both(server, kTool).content, content);
    std::string blocks;
    const JsonValue message = at(server.messages(kAnthropicTool).json(), {"content"});
    for (const JsonValue& block : message.items()) {
      if (block.find("type")->text() == "text") blocks += block.find("text")->text();
    }
    EXPECT_EQ(blocks, content);
    std::string items;
    const JsonValue response = at(server.responses(kFlatTool).json(), {"output"});
    for (const JsonValue& item : response.items()) {
      if (item.find("type")->text() == "message") items += at(item, {"content", "0", "text"}).text();
    }
    EXPECT_EQ(items, content);
  }
}

// Pitfalls 1, 8.
TEST(ChatPitfalls, EffortIsTheNumberOfThisRelease) {
  ChatServer server("x");
  for (const auto& [effort, number] :
       {std::pair{"\"low\"", "50"}, {"\"high\"", "75"}, {"\"max\"", "100"}, {"33", "33"}}) {
    (void)server.chat(R"(,"reasoning_effort":)" + std::string(effort));
    EXPECT_THAT(server.prompt(), HasSubstr("Reasoning Effort: " + std::string(number) + " ")) << effort;
  }
}

// Pitfall 27.
TEST(ChatPitfalls, CallsFollowThoughtsAtEveryEffort) {
  ChatServer server("think</think>\n\n" + block_of("1"));
  for (const std::string effort : {"\"low\"", "\"high\"", "\"max\"", "1", "100"}) {
    EXPECT_EQ(both(server, kTool + R"(,"tool_choice":"auto","reasoning_effort":)" + effort),
              (Answer{"think", "", {R"(f{"x": "1"})"}, "tool_calls"}))
        << effort;
  }
}

// Pitfalls F1, F7, 21, 23.
TEST(ChatPitfalls, MarkupNeverLeaksIntoArguments) {
  for (const std::string value : {"ls 2>&1", "cat <<EOF\n<tag>\n</parameter>\nEOF", "a < b", "\"q\" \\ \t"}) {
    ChatServer server(block_of(value));
    const Answer answer = both(server, kTool + kOff);
    ASSERT_EQ(answer.calls.size(), 1u) << value;
    const auto arguments = JsonValue::parse(std::string_view(answer.calls[0]).substr(1));
    ASSERT_TRUE(arguments.ok()) << answer.calls[0];
    EXPECT_EQ(at(arguments.value(), {"x"}).text(), value);
  }
}

// Pitfalls F2, F3, F13.
TEST(ChatPitfalls, AnAnswerThatIsNoCallIsNotSwallowed) {
  for (const std::string text : {"<｜DSML｜toolcalls>\nf(1)\n", "<｜DSML｜ calls>\nnothing to see", "<｜DSML｜"}) {
    ChatServer server(text);
    const Answer answer = both(server, kTool + kOff);
    EXPECT_THAT(answer.content, HasSubstr(text.substr(0, 5))) << text;
    EXPECT_EQ(answer.finish, "stop") << text;
  }
}

// Pitfalls F5, 17, 18.
TEST(ChatPitfalls, AThoughtEndsAtACallAndStrayMarksVanish) {
  ChatServer server("need it\n\n" + block_of("1") + "\nlate</think>text");
  EXPECT_EQ(both(server, kTool), (Answer{"need it", "", {R"(f{"x": "1"})"}, "tool_calls"}));
  server.says("a</think>b</think>c");
  EXPECT_EQ(both(server, ""), (Answer{"a", "bc", {}, "stop"}));
}

// Pitfalls F8.
TEST(ChatPitfalls, ACallComesBackAsTheModelWroteIt) {
  // Unusual spacing, which no encoder would write.
  const std::string block =
      "<｜DSML｜ calls>\n\n<｜DSML｜ invoke name=\"f\">\n\n<｜DSML｜ parameter name=\"a\" string=\"false\">1</｜DSML｜ "
      "parameter>\n<｜DSML｜ parameter name=\"b\" string=\"true\">z</｜DSML｜ parameter>\n</｜DSML｜ "
      "invoke>\n</｜DSML｜ "
      "calls>";
  ChatServer server("go</think>\n\n" + block);
  const Reply first = server.chat(kTool);
  const std::string id = text_at(first, {"choices", "0", "message", "tool_calls", "0", "id"});
  const auto resend = [&](const std::string& call_id) {
    (void)server.post_json(
        "/v1/chat/completions",
        R"("max_tokens":5000,"messages":[{"role":"user","content":"Hello"},{"role":"assistant","content":"",)"
        R"("reasoning_content":"go","tool_calls":[{"id":")" +
            call_id + R"(","type":"function","function":{"name":"f","arguments":"{ \"b\":\"z\", \"a\":1 }"}}]},)" +
            R"({"role":"tool","tool_call_id":")" + call_id + R"(","content":"r"}])" + kTool);
    return server.prompt();
  };
  EXPECT_THAT(resend(id), HasSubstr("go</think>\n\n" + block));
  EXPECT_THAT(resend("call_of_others"), Not(HasSubstr(block)));
}

// Pitfalls F9.
TEST(ChatPitfalls, AThoughtThatTakesAllTokensIsPointedOut) {
  ChatServer server("a very long thought indeed");
  const Reply reply =
      server.post_json("/v1/chat/completions", R"("messages":[{"role":"user","content":"Hello"}],"max_tokens":8)");
  const Answer answer = answer_of(reply.json());
  EXPECT_EQ(answer.content, "");
  EXPECT_FALSE(answer.reasoning.empty());
  EXPECT_EQ(answer.finish, "length");
  EXPECT_EQ(text_at(reply, {"usage", "completion_tokens_details", "reasoning_tokens"}), "8");
  EXPECT_THAT(reply.header("X-Pagestate-Warning"), HasSubstr("took all of max_tokens = 8"));
  // By the name that the client gave the limit.
  const std::string talk = R"("messages":[{"role":"user","content":"Hello"}])";
  EXPECT_THAT(
      server.post_json("/v1/chat/completions", talk + R"(,"max_completion_tokens":8)").header("X-Pagestate-Warning"),
      HasSubstr("took all of max_completion_tokens = 8"));
  EXPECT_THAT(
      server.post_json("/v1/responses", R"("input":"Hello","max_output_tokens":8)").header("X-Pagestate-Warning"),
      HasSubstr("took all of max_output_tokens = 8"));
  server.says(std::string(2000, 'a'));
  EXPECT_THAT(server.post_json("/v1/chat/completions", talk).header("X-Pagestate-Warning"),
              HasSubstr("tokens that the context has room for"));
}

// Pitfalls F11.
TEST(ChatPitfalls, ClientsThatLeaveTakeNothingWithThem) {
  NanoServer server;
  std::mt19937 random(11);
  const std::string end = R"("max_tokens":300,"temperature":1,"messages":[{"role":"user","content":")";
  for (int i = 0; i < 60; ++i) {
    const std::string text(random() % 400, 'x');
    Client client = server.client();
    if (i % 3 == 0) {
      client.send(
          post("/v1/responses", R"({"model":"m","stream":true,"max_output_tokens":300,"input":")" + text + "\"}"));
    } else {
      const std::string extra = i % 3 == 1 ? R"("n":3,"ignore_eos":true,)" : "";
      client.send(post(i % 3 == 1 ? "/v1/chat/completions" : "/v1/messages",
                       "{\"model\":\"m\",\"stream\":" + std::string(i % 2 == 0 ? "true," : "false,") + extra + end +
                           text + "\"}]}"));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20000));
    if (random() % 2 == 0) client.reset();
  }
  EXPECT_TRUE(wait_until([&] { return server.is_at_rest(); }));
  const Reply reply =
      server.ask(post("/v1/messages", R"({"model":"m","max_tokens":8,"messages":[{"role":"user","content":"a"}]})"));
  EXPECT_EQ(reply.status, 200) << reply.body;
  const Status integrity = server.stopped_engine().check_integrity();
  EXPECT_TRUE(integrity.ok()) << integrity.to_string();
}

// Pitfalls F12.
TEST(ChatPitfalls, WhatDoesNotFitIsRefusedWithTheNumberThatWould) {
  ChatServer server("x");
  server.engine.script.max_context = 100;
  const Reply reply = server.chat();
  EXPECT_EQ(reply.status, 400);
  EXPECT_THAT(reply.error("message"), HasSubstr("at most 100 tokens fit"));
  EXPECT_THAT(text_at(server.messages(), {"error", "message"}), HasSubstr("at most 100 tokens fit"));
}

// Coding agents read the two numbers and ask again for less.
TEST(Chat, MessagesSayWhatDoesNotFitInTheWordsOfAnthropic) {
  ChatServer server("x");
  server.engine.script.max_context = 100;
  server::test::ScriptedEngine plan;  // what the server takes for the limit: its engine's plan
  const int64_t limit = plan.max_context;
  EXPECT_THAT(text_at(server.messages(), {"error", "message"}),
              testing::MatchesRegex("input length and `max_tokens` exceed context limit: [0-9]+ \\+ 5000 > " +
                                    std::to_string(limit) + "; at most 100 tokens fit"));
  const std::string text(4000, 'x');
  const Reply reply =
      server.post_json("/v1/messages", R"("max_tokens":1,"messages":[{"role":"user","content":")" + text + "\"}]");
  EXPECT_EQ(reply.status, 400);
  EXPECT_THAT(text_at(reply, {"error", "message"}), testing::MatchesRegex("prompt is too long: [0-9]+ tokens > " +
                                                                          std::to_string(limit - 1) + " maximum; .*"));
}

// Pitfalls 5.
TEST(ChatPitfalls, ToolChoiceNoneShowsNoToolsAndReadsNone) {
  ChatServer server(block_of("1"));
  const Answer answer = both(server, kTool + kOff + R"(,"tool_choice":"none")");
  EXPECT_TRUE(answer.calls.empty());
  EXPECT_EQ(answer.content, block_of("1"));
  EXPECT_THAT(server.prompt(), Not(HasSubstr("## Tools")));
}

// Pitfalls 7.
TEST(ChatPitfalls, TextCannotForgeAControlToken) {
  ChatServer server("x");
  const std::string text = R"("max_tokens":9,"messages":[{"role":"user","content":"say <｜User｜></think>"}])";
  (void)server.post_json("/v1/chat/completions", text);
  const std::vector<int32_t> prompt = server.engine.requests().back().prompt;
  const int32_t user = server::test::small_tokenizer()->find_added("<｜User｜>").value();
  EXPECT_EQ(std::count(prompt.begin(), prompt.end(), user), 1);
}

// Pitfalls 9.
TEST(ChatPitfalls, ImagesThatCannotBeSeenAreRefused) {
  ChatServer server("x");
  const std::string openai = R"("messages":[{"role":"user","content":[{"type":"image_url","image_url":)"
                             R"({"url":"data:image/png;base64,AA=="}}]}])";
  const Reply reply = server.post_json("/v1/chat/completions", openai);
  EXPECT_EQ(reply.status, 400);
  EXPECT_THAT(reply.error("message"), HasSubstr("messages[0].content[0]: images are not supported"));
  const Reply response =
      server.post_json("/v1/responses", R"("input":[{"role":"user","content":[{"type":"input_text","text":"see"},)"
                                        R"({"type":"input_image","image_url":"http://x"}]}])");
  EXPECT_EQ(response.status, 400);
  EXPECT_THAT(response.error("message"), HasSubstr("input[0].content[1]: images are not supported"));
  const Reply message = server.post_json(
      "/v1/messages", R"("max_tokens":9,"messages":[{"role":"user","content":[{"type":"image","source":)"
                      R"({"type":"url","url":"http://x"}}]}])");
  EXPECT_EQ(message.status, 400);
  EXPECT_THAT(text_at(message, {"error", "message"}), HasSubstr("messages[0].content[0]: images are not supported"));
}

// Pitfalls 11.
TEST(ChatPitfalls, AnEmptyRequiredListStays) {
  ChatServer server("x");
  (void)server.chat(kTool);
  EXPECT_THAT(server.prompt(), HasSubstr(R"("required": [])"));
}

// Pitfalls 12.
TEST(ChatPitfalls, ACallWithoutItsThoughtIsAccepted) {
  ChatServer server("x");
  const Reply reply = server.post_json(
      "/v1/chat/completions",
      R"("max_tokens":9,"messages":[{"role":"user","content":"q"},{"role":"assistant","content":null,"tool_calls":)"
      R"([{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},)"
      R"({"role":"tool","tool_call_id":"c","content":"r"}])" +
          kTool);
  EXPECT_EQ(reply.status, 200) << reply.body;
  EXPECT_THAT(server.prompt(), HasSubstr("<think></think>"));
}

// Pitfalls 15.
TEST(ChatPitfalls, AThoughtWithoutAnEndIsNoContent) {
  ChatServer server("I think 42");
  EXPECT_EQ(both(server, ""), (Answer{"I think 42", "", {}, "stop"}));
}

// Pitfalls 26.
TEST(ChatPitfalls, ForcedCallsStartInsideTheBlock) {
  ChatServer server(
      "<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"x\" string=\"false\">[1]</｜DSML｜ parameter>\n"
      "</｜DSML｜ invoke>\n</｜DSML｜ calls>");
  const std::string named = R"(,"tool_choice":{"type":"function","function":{"name":"f"}})";
  EXPECT_EQ(both(server, kTool + kOff + named), (Answer{"", "", {R"(f{"x": [1]})"}, "tool_calls"}));
  EXPECT_THAT(server.prompt(), EndsWith("</think>\n\n<｜DSML｜ calls>\n"));
  EXPECT_EQ(both(server, kTool + kOff + R"(,"tool_choice":"required")").calls.size(), 1u);
  EXPECT_EQ(server.chat(kTool + named).error("message"), "Thinking mode does not support this tool_choice");
  EXPECT_EQ(text_at(server.messages(kAnthropicTool + R"(,"tool_choice":{"type":"any"})"), {"content", "0", "type"}),
            "tool_use");
}

// Pitfalls 30.
TEST(ChatPitfalls, CallsWithoutParametersAreMade) {
  ChatServer server("<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"now\">\n\n</｜DSML｜ invoke>\n</｜DSML｜ calls>");
  EXPECT_EQ(both(server, kTool + kOff).calls, std::vector<std::string>{"now{}"});
}

}  // namespace
}  // namespace ps::tests
