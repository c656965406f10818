// The end of a server that is asked to stop: what runs may finish, and what cannot finish is told so before the process
// goes, on every surface and whatever its client does.
#include <gmock/gmock.h>

#include <atomic>

#include "tests/server/chat_fixture.h"

namespace ps::tests {
namespace {

using testing::HasSubstr;

constexpr int kMoreThanAnybodyWaitsFor = 900'000;

struct Surface {
  std::string path;
  std::string fields;  // without the stream switch
  std::string last_event;
};

// One request per surface that would go on for ever, and what the last event of its stream holds.
std::vector<Surface> surfaces() {
  const std::string limit = std::to_string(kMoreThanAnybodyWaitsFor);
  const std::string talk = R"("model":"m","messages":[{"role":"user","content":"Hello"}],"max_tokens":)" + limit;
  return {{"/v1/completions", R"("prompt":"a","max_tokens":)" + limit,
           R"(data: {"error":{"message":"the server stops","type":"server_error","param":null,"code":"stopping"}})"},
          {"/v1/chat/completions", talk,
           R"(data: {"error":{"message":"the server stops","type":"server_error","param":null,"code":"stopping"}})"},
          {"/v1/messages", talk,
           "event: error\ndata: "
           R"({"type":"error","error":{"type":"overloaded_error","message":"the server stops"}})"},
          {"/v1/responses", R"("model":"m","input":"Hello","max_output_tokens":)" + limit,
           R"("error":{"code":"stopping","message":"the server stops"})"}};
}

class Drain : public testing::Test {
 protected:
  Drain() : server_("") {
    server_.engine.script.answer.assign(kMoreThanAnybodyWaitsFor, server::test::byte_id('x'));
    server_.engine.script.on_step = [this] {
      if (takes_time_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
  }
  [[nodiscard]] server::Server& server() { return *server_.running->server; }
  [[nodiscard]] Client client(int receive_buffer = 0) { return server_.running->client(receive_buffer); }
  [[nodiscard]] bool runs(int64_t sequences) {
    return wait_until([&] { return server().status().running == sequences; });
  }
  [[nodiscard]] bool ends() {
    return wait_until([&] { return server().has_ended(); }, 20);
  }

  std::atomic<bool> takes_time_ = true;  // a step does
  ChatServer server_;
};

TEST_F(Drain, AtItsEndEveryRequestOfEverySurfaceIsTold) {
  const std::vector<Surface> all = surfaces();
  std::vector<Client> whole;
  std::vector<Client> streams;
  for (const Surface& surface : all) {
    whole.push_back(client());
    whole.back().send(post(surface.path, "{" + surface.fields + "}"));
    streams.push_back(client());
    streams.back().send(post(surface.path, "{" + surface.fields + R"(,"stream":true})"));
  }
  for (Client& stream : streams) ASSERT_NE(stream.read_until("data: "), "");
  ASSERT_TRUE(runs(std::ssize(all) * 2));
  server().drain(0.2);
  for (size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(all[i].path);
    const Reply reply = whole[i].read_reply();
    EXPECT_EQ(reply.status, 503) << reply.body;
    EXPECT_EQ(reply.header("Connection"), "close");
    EXPECT_NE(reply.header("Retry-After"), "");
    EXPECT_THAT(reply.body, HasSubstr("the server stops"));
    if (all[i].path == "/v1/messages") {
      EXPECT_EQ(text_at(reply, {"error", "type"}), "overloaded_error");
    } else {
      EXPECT_EQ(reply.error("code"), "stopping");
    }
    EXPECT_TRUE(whole[i].sees_end());
    const std::string stream = streams[i].read_to_end();
    const size_t last = stream.find(all[i].last_event);
    EXPECT_NE(last, std::string::npos) << stream.substr(stream.size() - std::min<size_t>(stream.size(), 500));
    EXPECT_THAT(stream, testing::EndsWith("\r\n0\r\n\r\n")) << "the stream is whole";
    whole[i].close();
    streams[i].close();
  }
  EXPECT_TRUE(ends());
  EXPECT_TRUE(runs(0));
}

TEST_F(Drain, AClientThatDoesNotReadHoldsUpNobody) {
  server::ServerOptions options;
  options.http.max_pending_bytes = int64_t{1} << 30;
  takes_time_ = false;
  server_.running.emplace(server_.engine, server::test::small_tokenizer(), options);
  Client deaf = client(4096);
  deaf.send(post(surfaces()[0].path, "{" + surfaces()[0].fields + R"(,"stream":true})"));
  ASSERT_TRUE(runs(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // more bytes than sockets hold
  takes_time_ = true;
  Client other = client();
  other.send(post(surfaces()[1].path, "{" + surfaces()[1].fields + "}"));
  ASSERT_TRUE(runs(2));
  server().drain(0);
  EXPECT_EQ(other.read_reply().error("code"), "stopping");
  other.close();
  EXPECT_TRUE(ends());
  EXPECT_TRUE(runs(0));
  EXPECT_TRUE(deaf.sees_end());
}

TEST_F(Drain, RequestsThatWaitForAWorkerAreToldToo) {
  server::ServerOptions options;
  options.workers = 1;
  server_.running.emplace(server_.engine, server::test::small_tokenizer(), options);
  Client large = client();
  large.send(post("/tokenize", R"({"prompt":")" + std::string(24 << 20, 'a') + "\"}"));
  std::vector<Client> waiting;
  for (const Surface& surface : surfaces()) {
    waiting.push_back(client());
    waiting.back().send(post(surface.path, "{" + surface.fields + "}"));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  server().drain(0);
  for (Client& client : waiting) {
    const Reply reply = client.read_reply();
    EXPECT_EQ(reply.status, 503);
    EXPECT_THAT(reply.body, HasSubstr("the server stops"));
    client.close();
  }
  large.close();
  EXPECT_TRUE(ends());
  EXPECT_TRUE(runs(0));
}

TEST_F(Drain, ARequestThatHasNotComeInWholeIsRefused) {
  Client half = client();
  half.send("POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: 100\r\n\r\n{");
  Client head = client();
  head.send("GET /hea");
  EXPECT_EQ(server_.running->ask(get("/health")).status, 200);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  server().drain(60);
  for (Client* client : {&half, &head}) {
    const Reply reply = client->read_reply();
    EXPECT_EQ(reply.status, 503);
    EXPECT_EQ(reply.error("code"), "stopping");
    client->close();
  }
  EXPECT_TRUE(ends());
}

TEST_F(Drain, ASecondCallEndsTheWait) {
  Client client = this->client();
  client.send(post(surfaces()[0].path, "{" + surfaces()[0].fields + "}"));
  ASSERT_TRUE(runs(1));
  server().drain(600);
  EXPECT_FALSE(client.sees_bytes(200));
  server().drain(0);
  EXPECT_EQ(client.read_reply().status, 503);
  client.close();
  EXPECT_TRUE(ends());
}

}  // namespace
}  // namespace ps::tests
