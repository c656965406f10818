// Completions on the synthetic checkpoint: what clients ask for, what scoring tools rely on, and clients that leave.
#include <gmock/gmock.h>

#include <cmath>
#include <random>

#include "tests/server/server_fixture.h"

namespace ps::tests {
namespace {

using server::ServerOptions;
using testing::HasSubstr;

NanoServer& shared_server() {
  static NanoServer server;
  return server;
}

Reply complete(const std::string& fields) { return shared_server().ask(post("/v1/completions", "{" + fields + "}")); }

const JsonValue& choice_of(const JsonValue& reply, size_t index = 0) {
  return reply.find("choices")->items().at(index);
}

std::string text_of(const JsonValue& value) {
  JsonWriter json;
  json.value(value);
  return json.text();
}

TEST(Completions, GreedyAnswersRepeatAndStreamsSayTheSame) {
  const std::string fields = R"("prompt":"Once upon a time","max_tokens":24,"temperature":0,"ignore_eos":true)";
  const Reply whole = complete(fields);
  ASSERT_EQ(whole.status, 200) << whole.body;
  const std::string text = choice_of(whole.json()).find("text")->text();
  EXPECT_FALSE(text.empty());
  EXPECT_EQ(choice_of(complete(fields).json()).find("text")->text(), text);

  const Reply stream = complete(fields + R"(,"stream":true,"stream_options":{"include_usage":true})");
  EXPECT_EQ(stream.header("Content-Type"), "text/event-stream");
  std::string streamed;
  std::string finish;
  const std::vector<JsonValue> chunks = stream_objects(stream.body);
  for (size_t i = 0; i + 1 < chunks.size(); ++i) {
    EXPECT_EQ(finish, "") << "a chunk after the last";
    streamed += choice_of(chunks[i]).find("text")->text();
    if (!choice_of(chunks[i]).find("finish_reason")->is_null())
      finish = choice_of(chunks[i]).find("finish_reason")->text();
  }
  EXPECT_EQ(streamed, text);
  EXPECT_EQ(finish, "length");
  EXPECT_TRUE(chunks.back().find("choices")->items().empty());
  EXPECT_EQ(text_of(*chunks.back().find("usage")->find("completion_tokens")),
            text_of(*whole.json().find("usage")->find("completion_tokens")));
}

TEST(Completions, SamplingRepeatsWithItsSeed) {
  const std::string fields = R"("prompt":"a","max_tokens":16,"temperature":1,"seed":5,"ignore_eos":true,"logprobs":0)";
  const JsonValue first = complete(fields).json();
  EXPECT_EQ(text_of(choice_of(complete(fields).json())), text_of(choice_of(first)));
  const JsonValue two = complete(fields + R"(,"n":2)").json();
  EXPECT_EQ(choice_of(two, 0).find("text")->text(), choice_of(first).find("text")->text());
  EXPECT_NE(text_of(*choice_of(two, 1).find("logprobs")->find("tokens")),
            text_of(*choice_of(two, 0).find("logprobs")->find("tokens")));
}

TEST(Completions, SeveralPromptsAndAnswersKeepTheirOrder) {
  const JsonValue reply =
      complete(R"("prompt":["alpha","beta"],"n":2,"max_tokens":2,"echo":true,"temperature":0)").json();
  const auto& choices = reply.find("choices")->items();
  ASSERT_EQ(choices.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(choices[i].find("index")->text(), std::to_string(i));
    EXPECT_THAT(choices[i].find("text")->text(), testing::StartsWith(i < 2 ? "alpha" : "beta"));
  }
}

TEST(Completions, AStopStringEndsTheAnswerBeforeIt) {
  const std::string fields = R"("prompt":"Once upon","max_tokens":40,"temperature":0,"ignore_eos":true)";
  const std::string text = choice_of(complete(fields).json()).find("text")->text();
  // A stop string out of the middle of the answer, from one whole ASCII character to the next.
  size_t at = 3;
  while (at + 3 < text.size() && !(std::isalpha(text[at]) && std::isalpha(text[at + 1]))) ++at;
  ASSERT_LT(at + 3, text.size()) << text;
  const std::string stop = text.substr(at, 2);
  const std::string expected = text.substr(0, text.find(stop));
  const JsonValue reply = complete(fields + R"(,"stop":[")" + stop + R"("])").json();
  EXPECT_EQ(choice_of(reply).find("text")->text(), expected);
  EXPECT_EQ(choice_of(reply).find("finish_reason")->text(), "stop");
  std::string streamed;
  for (const JsonValue& chunk :
       stream_objects(complete(fields + R"(,"stream":true,"stop":[")" + stop + R"("])").body)) {
    streamed += choice_of(chunk).find("text")->text();
  }
  EXPECT_EQ(streamed, expected);
  EXPECT_TRUE(wait_until([] { return shared_server().is_at_rest(); }));
}

TEST(Completions, ABiasDecides) {
  const JsonValue reply =
      complete(R"("prompt":"a","max_tokens":3,"temperature":0,"logit_bias":{"70":100},"logprobs":0)").json();
  const auto& tokens = choice_of(reply).find("logprobs")->find("tokens")->items();
  ASSERT_EQ(tokens.size(), 3u);
  for (const JsonValue& token : tokens) EXPECT_EQ(token.text(), nano().tokenizer->token_bytes(70));
}

// What lm-eval's local-completions does: ids of context and continuation, one token more, echo and logprobs; it drops
// the last entry of each list, and compares each token with the best one in its place.
TEST(Completions, ScoringSeesEveryPromptToken) {
  const std::string prompt = R"("prompt":[0,60,70,80,90,100],"temperature":0,"echo":true,"logprobs":1,"seed":1234)";
  const JsonValue one = complete(prompt + R"(,"max_tokens":1)").json();
  const JsonValue& lists = *choice_of(one).find("logprobs");
  ASSERT_EQ(lists.find("tokens")->items().size(), 7u);
  ASSERT_EQ(lists.find("token_logprobs")->items().size(), 7u);
  ASSERT_EQ(lists.find("top_logprobs")->items().size(), 7u);
  ASSERT_EQ(lists.find("text_offset")->items().size(), 7u);
  EXPECT_TRUE(lists.find("token_logprobs")->items()[0].is_null());
  for (size_t i = 1; i < 7; ++i) {
    const double own = lists.find("token_logprobs")->items()[i].real().value();
    double best = -INFINITY;
    for (const auto& [token, logprob] : lists.find("top_logprobs")->items()[i].members()) {
      best = std::max(best, logprob.real().value());
    }
    EXPECT_LE(own, best);
    EXPECT_LE(best, 0);
    EXPECT_TRUE(i < 6 || own == best) << "a greedy token is the best one";
  }
  const JsonValue none = complete(prompt + R"(,"max_tokens":0)").json();
  const JsonValue& prompt_lists = *choice_of(none).find("logprobs");
  ASSERT_EQ(prompt_lists.find("token_logprobs")->items().size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(text_of(prompt_lists.find("token_logprobs")->items()[i]),
              text_of(lists.find("token_logprobs")->items()[i]));
  }
  // The same numbers as when the model says these tokens itself: teacher forcing by an overwhelming bias.
  const JsonValue said =
      complete(R"("prompt":[0,60,70,80,90],"temperature":0,"max_tokens":1,"logprobs":0,"logit_bias":{"100":100})")
          .json();
  EXPECT_NEAR(choice_of(said).find("logprobs")->find("token_logprobs")->items()[0].real().value(),
              lists.find("token_logprobs")->items()[5].real().value(), 1e-5);
}

TEST(Completions, AResendHitsTheCache) {
  std::string prompt;
  for (int i = 0; i < 300; ++i) prompt += (i == 0 ? "" : ",") + std::to_string(20 + i % 97);
  const std::string fields = "\"prompt\":[" + prompt + R"(],"max_tokens":2,"temperature":0)";
  const JsonValue cold = complete(fields).json();
  const JsonValue warm = complete(fields).json();
  EXPECT_EQ(choice_of(cold).find("text")->text(), choice_of(warm).find("text")->text());
  EXPECT_GE(warm.find("usage")->find("prompt_tokens_details")->find("cached_tokens")->integer().value(), 256);
}

TEST(Completions, APromptThatDoesNotFitIsToldWhatWould) {
  const Reply reply = complete(R"("prompt":"a","max_tokens":5000)");
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(reply.error("code"), "context_length_exceeded");
  EXPECT_THAT(reply.error("message"), HasSubstr("at most 2046 answer tokens fit"));
}

// 2,048 tokens fit, prompt and answer together; a scored prompt has no answer.
TEST(Completions, LimitsOfTheContextAreExactAndToldWithTheirNumbers) {
  const auto ask = [](int tokens, const std::string& more) {
    std::string ids = "0";
    for (int i = 1; i < tokens; ++i) ids += "," + std::to_string(3 + i % 200);
    return complete("\"prompt\":[" + ids + "],\"temperature\":0,\"ignore_eos\":true" + more);
  };
  const std::string scored = R"(,"echo":true,"logprobs":0)";
  for (const int tokens : {2047, 2048}) {
    const Reply reply = ask(tokens, scored + R"(,"max_tokens":0)");
    ASSERT_EQ(reply.status, 200) << reply.body;
    const JsonValue json = reply.json();
    const JsonValue& lists = *choice_of(json).find("logprobs");
    EXPECT_EQ(lists.find("token_logprobs")->items().size(), static_cast<size_t>(tokens));
    EXPECT_EQ(lists.find("top_logprobs")->items().size(), static_cast<size_t>(tokens));
    EXPECT_EQ(text_of(*json.find("usage")->find("completion_tokens")), "0");
  }
  for (const std::string one : {R"(,"max_tokens":1)", ""}) {  // the default shrinks to what is left
    const Reply reply = ask(2047, one);
    ASSERT_EQ(reply.status, 200) << reply.body;
    EXPECT_EQ(choice_of(reply.json()).find("finish_reason")->text(), "length");
  }
  const auto refusal = [&](int tokens, const std::string& more) {
    const Reply reply = ask(tokens, more);
    EXPECT_EQ(reply.status, 400);
    EXPECT_EQ(reply.error("code"), "context_length_exceeded");
    return reply.error("message");
  };
  const std::string context = " do not fit into the context of 2048 tokens; at most ";
  EXPECT_EQ(refusal(2049, scored + R"(,"max_tokens":0)"),
            "2049 prompt tokens and 0 answer tokens" + context + "2048 prompt tokens fit");
  for (const std::string one : {R"(,"max_tokens":1)", ""}) {
    EXPECT_EQ(refusal(2048, one), "2048 prompt tokens and 1 answer token" + context + "2047 prompt tokens fit");
    EXPECT_EQ(refusal(2049, one), "2049 prompt tokens and 1 answer token" + context + "2047 prompt tokens fit");
  }
  EXPECT_EQ(refusal(2047, R"(,"max_tokens":2)"),
            "2047 prompt tokens and 2 answer tokens" + context + "1 answer token fits");
}

TEST(Completions, ALargePromptHoldsUpNoStream) {
  Client stream = shared_server().client();
  stream.send(
      post("/v1/completions", R"({"prompt":"a","max_tokens":1500,"stream":true,"ignore_eos":true,"temperature":0})"));
  EXPECT_NE(stream.read_until("data: "), "");
  std::string large(10 << 20, ' ');
  for (size_t i = 0; i < large.size(); ++i) large[i] = i % 6 == 5 ? ' ' : static_cast<char>('a' + i * i % 26);
  Client big = shared_server().client();
  big.send(post("/v1/completions", R"({"prompt":")" + large + R"(","max_tokens":4})"));
  int events = 0;
  while (!big.sees_bytes(0) && stream.read_until("data: ") != "") ++events;
  const Reply reply = big.read_reply();
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(reply.error("code"), "context_length_exceeded");
  EXPECT_THAT(reply.error("message"), HasSubstr("at most 2047 prompt tokens fit"));
  EXPECT_GT(events, 1) << "the stream stood still";
}

TEST(Completions, PrefillProgressKeepsAStreamAlive) {
  ServerOptions options;
  options.http.keep_alive_seconds = 0.01;
  engine::EngineOptions engine = small_engine();
  engine.token_budget = 256;
  NanoServer server(options, engine);
  std::string ids = "0";
  for (int i = 0; i < 1500; ++i) ids += "," + std::to_string(3 + i % 200);
  const Reply reply = server.ask(post("/v1/completions", "{\"prompt\":[" + ids + R"(],"max_tokens":2,"stream":true})"));
  EXPECT_THAT(reply.body, HasSubstr(": keep-alive prefill "));
  EXPECT_THAT(reply.body, HasSubstr("/1501 tokens\n\n"));
}

TEST(Completions, ADisconnectFreesEverything) {
  NanoServer server;
  for (const bool resets : {false, true}) {
    Client client = server.client();
    client.send(post("/v1/completions",
                     R"({"prompt":"a","n":4,"max_tokens":1500,"stream":true,"ignore_eos":true,"temperature":1})"));
    EXPECT_NE(client.read_until("data: "), "");
    EXPECT_FALSE(server.is_at_rest());
    resets ? client.reset() : client.close();
    EXPECT_TRUE(wait_until([&] { return server.is_at_rest(); }));
  }
  EXPECT_TRUE(server.stopped_engine().check_integrity().ok());
}

TEST(Completions, TwoHundredCancellationsLeaveNothingBehind) {
  NanoServer server;
  std::mt19937 random(11);
  std::vector<Client> clients;
  for (int i = 0; i < 200; ++i) {
    std::string ids = "0";
    for (unsigned t = random() % 600; t > 0; --t) ids += "," + std::to_string(3 + random() % 400);
    Client client = server.client();
    client.send(post("/v1/completions", "{\"prompt\":[" + ids + R"(],"max_tokens":500,"ignore_eos":true,"stream":)" +
                                            (i % 2 == 0 ? "true" : "false") + "}"));
    clients.push_back(std::move(client));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 8000));
    while (clients.size() > 12) {
      const size_t victim = random() % clients.size();
      if (random() % 2 == 0) clients[victim].reset();
      clients.erase(clients.begin() + static_cast<std::ptrdiff_t>(victim));
    }
  }
  clients.clear();
  EXPECT_TRUE(wait_until([&] { return server.is_at_rest(); }));
  const Reply reply = server.ask(post("/v1/completions", R"({"prompt":"a","max_tokens":2})"));
  EXPECT_EQ(reply.status, 200) << reply.body;
  const Status integrity = server.stopped_engine().check_integrity();
  EXPECT_TRUE(integrity.ok()) << integrity.to_string();
}

}  // namespace
}  // namespace ps::tests
