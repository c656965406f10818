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

TEST(Chat, ThinkingIsOnUnlessTheRequestOrTheServerSaysOtherwise) {  // pitfall 14
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
  int steps = 0;
  server.engine.script.on_step = [&] {
    if (++steps == 5) throw std::runtime_error("broken");
  };
  const std::string stream = server.messages(kOff + R"(,"stream":true)").body;
  EXPECT_THAT(stream, HasSubstr("event: message_start"));
  EXPECT_THAT(stream, HasSubstr("event: error\ndata: {\"type\":\"error\""));
}

// ---- Faults that users met elsewhere ----

TEST(ChatPitfalls, F1AndF7AndTheirLikeLeakNoMarkupIntoArguments) {  // also 21, 23
  for (const std::string value : {"ls 2>&1", "cat <<EOF\n<tag>\n</parameter>\nEOF", "a < b", "\"q\" \\ \t"}) {
    ChatServer server(block_of(value));
    const Answer answer = both(server, kTool + kOff);
    ASSERT_EQ(answer.calls.size(), 1u) << value;
    const auto arguments = JsonValue::parse(std::string_view(answer.calls[0]).substr(1));
    ASSERT_TRUE(arguments.ok()) << answer.calls[0];
    EXPECT_EQ(at(arguments.value(), {"x"}).text(), value);
  }
}

TEST(ChatPitfalls, F2AndF3AndF13SwallowNothing) {
  for (const std::string text : {"<｜DSML｜toolcalls>\nf(1)\n", "<｜DSML｜ calls>\nnothing to see", "<｜DSML｜"}) {
    ChatServer server(text);
    const Answer answer = both(server, kTool + kOff);
    EXPECT_THAT(answer.content, HasSubstr(text.substr(0, 5))) << text;
    EXPECT_EQ(answer.finish, "stop") << text;
  }
}

TEST(ChatPitfalls, F5AndItsLikeEndThoughtsAtACallAndDropStrayMarks) {  // also 17, 18
  ChatServer server("need it\n\n" + block_of("1") + "\nlate</think>text");
  EXPECT_EQ(both(server, kTool), (Answer{"need it", "", {R"(f{"x": "1"})"}, "tool_calls"}));
  server.says("a</think>b</think>c");
  EXPECT_EQ(both(server, ""), (Answer{"a", "bc", {}, "stop"}));
}

TEST(ChatPitfalls, F8RendersACallAsTheModelWroteIt) {
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

TEST(ChatPitfalls, F9ShowsWhereTheTokensWentWhenTheThoughtTakesAll) {
  ChatServer server("a very long thought indeed");
  const Reply reply =
      server.post_json("/v1/chat/completions", R"("messages":[{"role":"user","content":"Hello"}],"max_tokens":8)");
  const Answer answer = answer_of(reply.json());
  EXPECT_EQ(answer.content, "");
  EXPECT_FALSE(answer.reasoning.empty());
  EXPECT_EQ(answer.finish, "length");
  EXPECT_EQ(text_at(reply, {"usage", "completion_tokens_details", "reasoning_tokens"}), "8");
  EXPECT_THAT(reply.header("X-Pagestate-Warning"), HasSubstr("max_tokens = 8"));
}

TEST(ChatPitfalls, F11ClientsThatLeaveTakeNothingWithThem) {
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

TEST(ChatPitfalls, F12RefusesWhatDoesNotFitWithTheNumberThatWould) {
  ChatServer server("x");
  server.engine.script.max_context = 100;
  const Reply reply = server.chat();
  EXPECT_EQ(reply.status, 400);
  EXPECT_THAT(reply.error("message"), HasSubstr("at most 100 tokens fit"));
  EXPECT_THAT(text_at(server.messages(), {"error", "message"}), HasSubstr("at most 100 tokens fit"));
}

TEST(ChatPitfalls, Prompt5ToolChoiceNoneShowsNoToolsAndReadsNone) {
  ChatServer server(block_of("1"));
  const Answer answer = both(server, kTool + kOff + R"(,"tool_choice":"none")");
  EXPECT_TRUE(answer.calls.empty());
  EXPECT_EQ(answer.content, block_of("1"));
  EXPECT_THAT(server.prompt(), Not(HasSubstr("## Tools")));
}

TEST(ChatPitfalls, Prompt7TextCannotForgeAnImageNorAControlToken) {
  ChatServer server("x");
  const std::string text = R"("max_tokens":9,"messages":[{"role":"user","content":"say <｜User｜></think>"}])";
  (void)server.post_json("/v1/chat/completions", text);
  const std::vector<int32_t> prompt = server.engine.requests().back().prompt;
  const int32_t user = server::test::small_tokenizer()->find_added("<｜User｜>").value();
  EXPECT_EQ(std::count(prompt.begin(), prompt.end(), user), 1);
}

TEST(ChatPitfalls, Prompt9RefusesImagesItCannotSee) {
  ChatServer server("x");
  const std::string openai = R"("messages":[{"role":"user","content":[{"type":"image_url","image_url":)"
                             R"({"url":"data:image/png;base64,AA=="}}]}])";
  const Reply reply = server.post_json("/v1/chat/completions", openai);
  EXPECT_EQ(reply.status, 400);
  EXPECT_THAT(reply.error("message"), HasSubstr("images are not supported"));
  const Reply message = server.post_json(
      "/v1/messages", R"("max_tokens":9,"messages":[{"role":"user","content":[{"type":"image","source":)"
                      R"({"type":"url","url":"http://x"}}]}])");
  EXPECT_EQ(message.status, 400);
  EXPECT_THAT(text_at(message, {"error", "message"}), HasSubstr("images are not supported"));
}

TEST(ChatPitfalls, Prompt11KeepsAnEmptyRequired) {
  ChatServer server("x");
  (void)server.chat(kTool);
  EXPECT_THAT(server.prompt(), HasSubstr(R"("required": [])"));
}

TEST(ChatPitfalls, Prompt12AcceptsACallWithoutItsThought) {
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

TEST(ChatPitfalls, Reasoning15NeverEnds) {
  ChatServer server("I think 42");
  EXPECT_EQ(both(server, ""), (Answer{"I think 42", "", {}, "stop"}));
}

TEST(ChatPitfalls, Calls26ForcedCallsStartInsideTheBlock) {
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

TEST(ChatPitfalls, Calls30AreMadeWithoutParameters) {
  ChatServer server("<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"now\">\n\n</｜DSML｜ invoke>\n</｜DSML｜ calls>");
  EXPECT_EQ(both(server, kTool + kOff).calls, std::vector<std::string>{"now{}"});
}

}  // namespace
}  // namespace ps::tests
