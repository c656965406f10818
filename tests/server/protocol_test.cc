// HTTP as the server speaks it: limits, times, order, rude clients. The engine says what it is told to.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "tests/server/server_fixture.h"

namespace ps::tests {
namespace {

using server::ServerOptions;
using server::test::ScriptedEngine;
using testing::HasSubstr;

constexpr const char* kHello = R"({"prompt":"a","max_tokens":3})";
constexpr const char* kStream = R"({"prompt":"a","max_tokens":3,"stream":true})";
// More tokens than any test waits for.
constexpr const char* kEndless = R"({"prompt":"a","max_tokens":90000000,"stream":true,"ignore_eos":true})";

class Protocol : public testing::Test {
 protected:
  Protocol() { engine_.max_context = 100'000'000; }
  void make(const ServerOptions& options = {}) { server_.emplace(engine_, server::test::small_tokenizer(), options); }
  void speak_for_ever(int step_ms) {
    engine_.answer.assign(10'000'000, server::test::byte_id('x'));
    if (step_ms > 0) {
      engine_.on_step = [step_ms] { std::this_thread::sleep_for(std::chrono::milliseconds(step_ms)); };
    }
  }
  [[nodiscard]] bool rests() {
    return wait_until([this] { return server_->server->status().running == 0; });
  }
  // The status of the reply to `request`, whose body is an error.
  int error_status(const std::string& request) {
    Client client = server_->client();
    const Reply reply = client.ask(request);
    EXPECT_NE(reply.error("message"), "") << reply.head;
    return reply.status;
  }

  ScriptedEngine engine_;
  std::optional<RunningServer> server_;
};

TEST_F(Protocol, AnswersOnOneConnectionAsLongAsTheClientLikes) {
  make();
  Client client = server_->client();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(client.ask(get("/health")).status, 200);
    EXPECT_EQ(client.ask(post("/v1/completions", kHello)).status, 200);
    EXPECT_EQ(client.ask(post("/v1/completions", kStream)).status, 200);
  }
  const Reply last = client.ask(get("/health", "Connection: close\r\n"));
  EXPECT_EQ(last.header("Connection"), "close");
  EXPECT_TRUE(client.sees_end());
}

TEST_F(Protocol, AnswersPipelinedRequestsInOrder) {
  make();
  Client client = server_->client();
  client.send(post("/v1/completions", kHello) + get("/v1/models") + post("/v1/completions", kStream) + get("/nowhere") +
              get("/health"));
  EXPECT_THAT(client.read_reply().body, HasSubstr("text_completion"));
  EXPECT_THAT(client.read_reply().body, HasSubstr("test-model"));
  EXPECT_THAT(client.read_reply().body, HasSubstr("[DONE]"));
  EXPECT_EQ(client.read_reply().status, 404);
  EXPECT_THAT(client.read_reply().body, HasSubstr("ok"));
}

TEST_F(Protocol, AnswersAFloodOfPipelinedRequestsThatIsReadLate) {
  make();
  Client client = server_->client(4096);
  std::string flood;
  for (int i = 0; i < 2000; ++i) flood += get("/metrics");
  std::thread sender([&] { client.send(flood); });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  for (int i = 0; i < 2000; ++i) ASSERT_EQ(client.read_reply().status, 200) << i;
  sender.join();
}

TEST_F(Protocol, EchoesOrMakesRequestIds) {
  make();
  EXPECT_EQ(server_->ask(get("/health", "X-Request-Id: mine-7\r\n")).header("X-Request-Id"), "mine-7");
  const std::string made = server_->ask(get("/health")).header("X-Request-Id");
  EXPECT_EQ(made.substr(0, 4), "req-");
  EXPECT_EQ(server_->ask(get("/health", "X-Request-Id: bad id\r\n")).header("X-Request-Id").substr(0, 4), "req-");
}

TEST_F(Protocol, EveryFaultHasItsStatus) {
  ServerOptions options;
  options.http.limits = {.header_bytes = 2048, .target_bytes = 256, .body_bytes = 1000};
  make(options);
  EXPECT_EQ(error_status("nonsense\r\n\r\n"), 400);
  EXPECT_EQ(error_status("GET / HTTP/3.0\r\nHost: a\r\n\r\n"), 505);
  EXPECT_EQ(error_status("GET / HTTP/1.1\nHost: a\n\n"), 400);
  EXPECT_EQ(error_status("GET / HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(error_status("POST /tokenize HTTP/1.1\r\nHost: a\r\nExpect: more\r\nContent-Length: 2\r\n\r\n"), 417);
  EXPECT_EQ(error_status("POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n"), 501);
  EXPECT_EQ(error_status(get("/nowhere")), 404);
  EXPECT_EQ(error_status("DELETE /v1/completions HTTP/1.1\r\nHost: a\r\n\r\n"), 405);
  EXPECT_EQ(error_status("POST /tokenize HTTP/1.1\r\nHost: a\r\n\r\n"), 411);
  EXPECT_EQ(error_status(post("/tokenize", std::string(1001, ' '))), 413);
  EXPECT_EQ(error_status("GET /" + std::string(300, 'a') + " HTTP/1.1\r\nHost: a\r\n\r\n"), 414);
  EXPECT_EQ(error_status(get("/health", "X: " + std::string(3000, 'a') + "\r\n")), 431);
  EXPECT_EQ(
      error_status("POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}"),
      415);
  EXPECT_EQ(error_status(post("/tokenize", "{}", "Content-Encoding: gzip\r\n")), 415);
  EXPECT_EQ(error_status(post("/tokenize", "{\"prompt\":\"\xFF\"}")), 400);
  EXPECT_EQ(error_status(post("/tokenize", "[]")), 400);
  EXPECT_EQ(server_->ask(get("/health")).status, 200);
}

TEST_F(Protocol, Says405WithTheLegalMethods) {
  make();
  EXPECT_EQ(server_->ask(get("/v1/completions")).header("Allow"), "POST");
  EXPECT_EQ(server_->ask(post("/health", "{}")).header("Allow"), "GET, HEAD");
}

TEST_F(Protocol, TheReplyToAnOversizeBodyReachesAClientThatStillSends) {
  ServerOptions options;
  options.http.limits.body_bytes = 1000;
  make(options);
  for (int i = 0; i < 20; ++i) {
    Client client = server_->client();
    EXPECT_EQ(client.ask(post("/tokenize", std::string(2 << 20, 'a'))).status, 413);
  }
}

TEST_F(Protocol, RefusesDeepJson) {
  make();
  const Reply reply = server_->ask(post("/v1/completions", R"({"prompt":)" + std::string(100000, '[')));
  EXPECT_EQ(reply.status, 400);
  EXPECT_NE(reply.error("message"), "");
}

TEST_F(Protocol, SlowHeadersAndBodiesTimeOut) {
  ServerOptions options;
  options.http.header_seconds = 0.2;
  options.http.body_seconds = 0.2;
  options.http.idle_seconds = 0.3;
  make(options);
  Client head = server_->client();
  head.send("GET / HT");
  EXPECT_EQ(head.read_reply().status, 408);
  EXPECT_TRUE(head.sees_end());
  Client body = server_->client();
  body.send("POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n{");
  EXPECT_EQ(body.read_reply().status, 408);
  Client idle = server_->client();
  EXPECT_TRUE(idle.sees_end());
}

// A byte now and then is no silence; what is received in sum has a time all the same.
TEST_F(Protocol, TrickledHeadersAndBodiesTimeOut) {
  ServerOptions options;
  options.http.header_seconds = 0.5;
  options.http.body_seconds = 0.5;
  options.http.body_rate = 1000;
  make(options);
  const auto trickle = [&](const std::string& start, const std::string& byte) {
    Client client = server_->client();
    client.send(start);
    const auto begin = std::chrono::steady_clock::now();
    while (!client.sees_bytes(20) && std::chrono::steady_clock::now() - begin < std::chrono::seconds(10)) {
      client.send(byte);
    }
    const Reply reply = client.read_reply();
    EXPECT_EQ(reply.status, 408) << reply.body;
    EXPECT_TRUE(client.sees_end());
    return reply.error("message");
  };
  EXPECT_EQ(trickle("GET /health HTTP/1.1\r\nX: ", "a"), "the headers took longer than 0.5 s");
  const std::string head = "POST /tokenize HTTP/1.1\r\nHost: a\r\n";
  const std::string slow = "the body came slower than 1000 bytes per second allow";
  EXPECT_EQ(trickle(head + "Content-Length: 1000000\r\n\r\n", " "), slow) << "a claimed length buys no time";
  EXPECT_EQ(trickle(head + "Transfer-Encoding: chunked\r\n\r\n", "1\r\n \r\n"), slow);
}

TEST_F(Protocol, ALargeBodyHasMoreTimeThanASmallOne) {
  ServerOptions options;
  options.http.body_seconds = 0.5;
  options.http.body_rate = 20000;
  make(options);
  const std::string body = R"({"prompt":")" + std::string(60000, 'a') + "\"}";
  using Clock = std::chrono::steady_clock;
  // Where the machine stalls, this client is slow itself and learns nothing: it tries again.
  bool is_steady = false;
  for (int round = 0; round < 8 && !is_steady; ++round) {
    Client client = server_->client();
    client.send("POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n");
    Clock::duration longest{};
    for (size_t at = 0; at < body.size(); at += 4000) {  // 1.6 s, beyond the half second of a body without bytes
      const Clock::time_point start = Clock::now();
      client.send(std::string_view(body).substr(at, 4000));
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      longest = std::max(longest, Clock::now() - start);
    }
    const int status = client.read_reply().status;
    is_steady = longest < std::chrono::milliseconds(250);
    EXPECT_TRUE(status == 200 || !is_steady) << status;
  }
  if (!is_steady) GTEST_SKIP() << "this machine stalls for too long to tell";
}

TEST_F(Protocol, ConnectionsHaveALimit) {
  ServerOptions options;
  options.http.max_connections = 2;
  make(options);
  Client a = server_->client();
  Client b = server_->client();
  EXPECT_EQ(a.ask(get("/health")).status, 200);
  EXPECT_EQ(b.ask(get("/health")).status, 200);
  Client c = server_->client();
  const Reply reply = c.read_reply();
  EXPECT_EQ(reply.status, 503);
  EXPECT_NE(reply.header("Retry-After"), "");
  c.close();
  a.close();
  EXPECT_TRUE(wait_until([&] { return server_->ask(get("/health")).status == 200; }));
}

TEST_F(Protocol, ContinuesWhenAsked) {
  make();
  Client client = server_->client();
  client.send(
      "POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: "
      "14\r\n\r\n");
  EXPECT_EQ(client.read_reply().status, 100);
  client.send(R"({"prompt":"a"})");
  EXPECT_EQ(client.read_reply().status, 200);
}

TEST_F(Protocol, HeadHasNoBody) {
  make();
  Client client = server_->client();
  client.send("HEAD /health HTTP/1.1\r\nHost: a\r\n\r\n");
  const Reply head = client.read_reply(false);
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.header("Content-Length"), "15");
  EXPECT_EQ(client.ask(get("/health")).status, 200);
}

TEST_F(Protocol, OldClientsGetStreamsWithoutChunks) {
  make();
  Client client = server_->client();
  client.send("POST /v1/completions HTTP/1.0\r\nContent-Length: " + std::to_string(std::string(kStream).size()) +
              "\r\n\r\n" + kStream);
  const Reply reply = client.read_reply();
  EXPECT_EQ(reply.header("Transfer-Encoding"), "");
  EXPECT_EQ(reply.header("Connection"), "close");
  EXPECT_EQ(stream_objects(reply.body).size(), 3u);
}

TEST_F(Protocol, AHalfClosedClientGetsWhatNeedsNoGeneration) {
  make();
  Client client = server_->client();
  client.send(get("/health") + post("/tokenize", R"({"prompt":"a"})") + get("/v1/models"));
  client.end_sending();
  EXPECT_EQ(client.read_reply().status, 200);
  EXPECT_THAT(client.read_reply().body, HasSubstr("tokens"));
  EXPECT_THAT(client.read_reply().body, HasSubstr("test-model"));
  EXPECT_TRUE(client.sees_end());
  Client broken = server_->client();
  broken.send("GET /hea");
  broken.end_sending();
  EXPECT_EQ(broken.read_reply().status, 400);
}

TEST_F(Protocol, AHalfCloseEndsAGeneration) {
  speak_for_ever(1);
  make();
  Client client = server_->client();
  client.send(post("/v1/completions", kEndless));
  EXPECT_NE(client.read_until("data: "), "");
  client.end_sending();
  EXPECT_TRUE(client.sees_end());
  EXPECT_TRUE(rests());
}

TEST_F(Protocol, AHalfCloseBeforeTheRequestIsParsedEndsAGeneration) {
  speak_for_ever(1);
  make();
  Client client = server_->client();
  client.send(post("/v1/completions", R"({"prompt":"a","max_tokens":90000000,"ignore_eos":true})"));
  client.end_sending();
  EXPECT_TRUE(client.sees_end());
  EXPECT_TRUE(rests());
}

TEST_F(Protocol, AGoneClientIsNoticedBeforeTheFirstToken) {
  const auto may_go_on = std::make_shared<std::atomic<bool>>(false);  // the engine steps on after the test's body
  engine_.on_step = [may_go_on] {
    while (!*may_go_on) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  make();
  Client client = server_->client();
  client.send(post("/v1/completions", R"({"prompt":"a","max_tokens":90000000,"ignore_eos":true})"));
  EXPECT_TRUE(wait_until([&] { return server_->server->status().running == 0; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the step has begun
  client.close();
  EXPECT_TRUE(wait_until([&] {
    return server_->ask(get("/metrics")).body.find(R"(pagestate_sequences_total{outcome="cancelled"} 1)") !=
           std::string::npos;
  }));
  *may_go_on = true;
  EXPECT_TRUE(rests());
}

TEST_F(Protocol, ASlowReaderIsDroppedAtTheCap) {
  speak_for_ever(0);
  ServerOptions options;
  options.http.max_pending_bytes = 64 << 10;
  make(options);
  Client slow = server_->client(4096);
  slow.send(post("/v1/completions", kEndless));
  EXPECT_TRUE(wait_until([&] {
    return server_->ask(get("/metrics")).body.find("pagestate_dropped_clients_total 1") != std::string::npos;
  }));
  EXPECT_TRUE(rests());
  EXPECT_TRUE(slow.sees_end());
}

TEST_F(Protocol, SilentStreamsAreKeptAlive) {
  engine_.on_step = [steps = 0]() mutable {
    if (++steps == 1) std::this_thread::sleep_for(std::chrono::milliseconds(500));
  };
  ServerOptions options;
  options.http.keep_alive_seconds = 0.1;
  make(options);
  const Reply reply = server_->ask(post("/v1/completions", kStream));
  EXPECT_THAT(reply.body, HasSubstr(": keep-alive queued\n\n"));
  EXPECT_EQ(stream_objects(reply.body).size(), 3u);
}

TEST_F(Protocol, AFullQueueSays503) {
  speak_for_ever(1);
  ServerOptions options;
  options.service = {.max_sequences = 1, .max_queue = 1};
  make(options);
  Client a = server_->client();
  Client b = server_->client();
  a.send(post("/v1/completions", kEndless));
  EXPECT_NE(a.read_until("data: "), "");
  b.send(post("/v1/completions", kEndless));
  EXPECT_NE(b.read_until("\r\n\r\n"), "");
  const Reply reply = server_->ask(post("/v1/completions", kHello));
  EXPECT_EQ(reply.status, 503);
  EXPECT_EQ(reply.error("code"), "overloaded");
  EXPECT_NE(reply.header("Retry-After"), "");
  for (const auto& [path, fields] : {std::pair<std::string, std::string>{"/v1/chat/completions", R"("messages":)"},
                                     {"/v1/messages", R"("max_tokens":9,"messages":)"},
                                     {"/v1/responses", R"("input":)"}}) {
    const Reply other =
        server_->ask(post(path, R"({"model":"m",)" + fields + R"([{"role":"user","content":"Hello"}]})"));
    EXPECT_EQ(other.status, 503) << path;
    EXPECT_EQ(other.header("Retry-After"), "1") << path;
    EXPECT_THAT(other.body, HasSubstr("overloaded")) << path;
  }
  EXPECT_EQ(server_->ask(post("/v1/completions", R"({"prompt":"a","n":3})")).status, 400) << "never fits";
  EXPECT_EQ(server_->ask(get("/health")).status, 200);
}

TEST_F(Protocol, AsksForTheKeyEverywhereButAtHealth) {
  ServerOptions options;
  options.gate.api_key = "sesame";
  make(options);
  EXPECT_EQ(server_->ask(get("/health")).status, 200);
  for (const std::string& request : {get("/v1/models"), get("/metrics"), post("/tokenize", "{}")}) {
    const Reply reply = server_->ask(request);
    EXPECT_EQ(reply.status, 401);
    EXPECT_EQ(reply.error("code"), "invalid_api_key");
  }
  EXPECT_EQ(server_->ask(get("/v1/models", "Authorization: Bearer sesame\r\n")).status, 200);
  EXPECT_EQ(server_->ask(get("/v1/models", "x-api-key: sesame\r\n")).status, 200);
}

TEST_F(Protocol, CorsIsOffUnlessAsked) {
  make();
  EXPECT_EQ(server_->ask(get("/health", "Origin: http://x\r\n")).header("Access-Control-Allow-Origin"), "");
  ServerOptions options;
  options.gate.cors_origin = "*";
  make(options);
  EXPECT_EQ(server_->ask(get("/health")).header("Access-Control-Allow-Origin"), "*");
  EXPECT_EQ(server_->ask(get("/nowhere")).header("Access-Control-Allow-Origin"), "*");
  const Reply preflight = server_->ask("OPTIONS /v1/completions HTTP/1.1\r\nHost: a\r\nOrigin: http://x\r\n\r\n");
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.header("Access-Control-Allow-Methods"), "POST, OPTIONS");
  const Reply stream = server_->ask(post("/v1/completions", kStream));
  EXPECT_EQ(stream.header("Access-Control-Allow-Origin"), "*");
}

TEST_F(Protocol, DrainingFinishesWhatRuns) {
  engine_.answer.assign(40, server::test::byte_id('x'));
  engine_.on_step = [] { std::this_thread::sleep_for(std::chrono::milliseconds(10)); };
  make();
  const int port = server_->server->port();
  Client running = server_->client();
  Client idle = server_->client();
  EXPECT_EQ(idle.ask(get("/health")).status, 200);
  running.send(post("/v1/completions", R"({"prompt":"a","max_tokens":1000,"stream":true})"));
  const std::string start = running.read_until("\r\n\r\n");
  EXPECT_NE(start, "");
  server_->server->drain(60);
  EXPECT_TRUE(idle.sees_end());
  EXPECT_TRUE(wait_until([&] { return !Client(port).is_connected(); }));
  EXPECT_THAT(running.read_until("[DONE]\n\n"), HasSubstr(R"("finish_reason":"stop")"));
  EXPECT_TRUE(running.sees_end());
  EXPECT_TRUE(wait_until([&] { return server_->server->has_ended(); }));
}

TEST_F(Protocol, DrainingCancelsWhatDoesNotFinish) {
  speak_for_ever(1);
  make();
  Client running = server_->client();
  running.send(post("/v1/completions", kEndless));
  EXPECT_NE(running.read_until("data: "), "");
  server_->server->drain(0.2);
  EXPECT_TRUE(running.sees_end());
  EXPECT_TRUE(wait_until([&] { return server_->server->has_ended(); }));
  EXPECT_TRUE(rests());
}

TEST_F(Protocol, AnEngineFaultReachesEveryClient) {
  speak_for_ever(1);
  const auto fails = std::make_shared<std::atomic<bool>>(false);
  engine_.on_step = [fails] {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (*fails) throw std::runtime_error("no such device");
  };
  make();
  Client stream = server_->client();
  Client whole = server_->client();
  stream.send(post("/v1/completions", kEndless));
  whole.send(post("/v1/completions", R"({"prompt":"a","max_tokens":9000000,"ignore_eos":true})"));
  EXPECT_NE(stream.read_until("data: "), "");
  EXPECT_TRUE(wait_until([&] { return server_->server->status().running == 2; }));
  *fails = true;
  const Reply reply = whole.read_reply();
  EXPECT_EQ(reply.status, 503);
  EXPECT_THAT(reply.error("message"), HasSubstr("no such device"));
  EXPECT_THAT(stream.read_until("0\r\n\r\n"), HasSubstr(R"({"error":{"message":"the engine failed: no such device")"));
  EXPECT_EQ(server_->ask(get("/health")).status, 503);
  EXPECT_EQ(server_->ask(post("/v1/completions", kHello)).status, 503);
}

TEST_F(Protocol, MetricsFollowTheTextFormat) {
  make();
  EXPECT_EQ(server_->ask(post("/v1/completions", kHello)).status, 200);
  const Reply reply = server_->ask(get("/metrics"));
  EXPECT_THAT(reply.header("Content-Type"), HasSubstr("version=0.0.4"));
  int samples = 0;
  size_t at = 0;
  while (at < reply.body.size()) {
    const size_t end = reply.body.find('\n', at);
    ASSERT_NE(end, std::string::npos) << "the last line ends";
    const std::string line = reply.body.substr(at, end - at);
    at = end + 1;
    if (line.empty() || line.starts_with("# HELP pagestate_") || line.starts_with("# TYPE pagestate_")) continue;
    const size_t space = line.rfind(' ');
    ASSERT_NE(space, std::string::npos) << line;
    EXPECT_TRUE(line.starts_with("pagestate_")) << line;
    char* rest = nullptr;
    std::strtod(line.c_str() + space + 1, &rest);
    EXPECT_EQ(*rest, '\0') << line;
    ++samples;
  }
  EXPECT_GT(samples, 50);
  for (const char* name : {"pagestate_waiting_sequences 0", "pagestate_running_sequences 0", "pagestate_steps_total 3",
                           R"(pagestate_sequences_total{outcome="length"} 1)",
                           "pagestate_time_to_first_token_seconds_count 1", "pagestate_inter_token_seconds_count 2"}) {
    EXPECT_THAT(reply.body, HasSubstr(std::string("\n") + name)) << name;
  }
}

TEST_F(Protocol, ModelsAreListedAndFoundByName) {
  make();
  EXPECT_EQ(server_->ask(get("/v1/models")).json().find("data")->items().size(), 2u);
  EXPECT_EQ(server_->ask(get("/v1/models/other/name")).json().find("id")->text(), "other/name");
  EXPECT_EQ(server_->ask(get("/v1/models/other%2Fname")).status, 200);
  const Reply unknown = server_->ask(get("/v1/models/gpt"));
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(unknown.error("code"), "model_not_found");
  EXPECT_EQ(server_->ask(post("/v1/completions", R"({"model":"gpt","prompt":"a"})")).status, 404);
}

}  // namespace
}  // namespace ps::tests
