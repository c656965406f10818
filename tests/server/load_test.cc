// A thousand clients that wait and sixty-four that are served: everybody gets an answer, and a waiting connection costs
// little memory. And ten thousand requests in a row, after which nothing of them is left.
#include <gmock/gmock.h>
#include <malloc.h>
#include <sys/resource.h>

#include "base/process.h"
#include "tests/server/server_fixture.h"

namespace ps::tests {
namespace {

constexpr int kActive = 64;
constexpr int kIdle = 1000;

TEST(Load, AThousandWaitingStreamsAndSixtyFourActiveOnes) {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = std::min<rlim_t>(files.rlim_max, 8192);
  setrlimit(RLIMIT_NOFILE, &files);
  server::ServerOptions options;
  options.service.max_queue = 2 * kIdle;
  options.http.keep_alive_seconds = 0.5;
  engine::EngineOptions engine = small_engine();
  engine.max_sequences = kActive;
  engine.pages = 4 * kActive;
  NanoServer server(options, engine);

  std::vector<Client> active;
  for (int i = 0; i < kActive; ++i) {
    active.push_back(server.client());
    active.back().send(
        post("/v1/completions", R"({"prompt":"active","max_tokens":200,"stream":true,"ignore_eos":true})"));
  }
  ASSERT_TRUE(wait_until([&] { return server.server().status().running == kActive; }));
  const int64_t before = resident_bytes();
  std::vector<Client> idle;
  for (int i = 0; i < kIdle; ++i) {
    idle.push_back(server.client());
    ASSERT_TRUE(idle.back().is_connected()) << i;
    idle.back().send(post("/v1/completions", R"({"prompt":"idle","max_tokens":1,"stream":true})"));
  }
  for (Client& client : idle) ASSERT_NE(client.read_until("\r\n\r\n"), "");
  const int64_t each = (resident_bytes() - before) / kIdle;
  std::printf("memory per waiting stream, both ends in this process: %ld bytes\n", static_cast<long>(each));
  RecordProperty("bytes_per_connection", static_cast<int>(each));
  EXPECT_LT(each, 64 << 10);
  for (Client& client : active) EXPECT_THAT(client.read_until("[DONE]\n\n"), testing::HasSubstr("\"length\""));
  for (Client& client : idle) EXPECT_THAT(client.read_until("[DONE]\n\n"), testing::HasSubstr("finish_reason"));
  EXPECT_TRUE(wait_until([&] { return server.is_at_rest(); }));
}

// Asks again and again: on a connection of its own that stays, on new ones, with mistakes, and sometimes without
// waiting for the answer. begin() sends a request, end() reads what comes of it.
class Visitor {
 public:
  explicit Visitor(const NanoServer& server) : server_(server), kept_(server.client()) {}

  void begin(int index) {
    kind_ = static_cast<Kind>(index % kKinds);
    const std::string number = std::to_string(index);
    switch (kind_) {
      case kWhole: return kept_.send(post("/v1/completions", R"({"prompt":"w)" + number + R"(","max_tokens":1})"));
      case kStream:
        return kept_.send(post("/v1/completions",
                               R"({"prompt":"s)" + number + R"(","max_tokens":2,"ignore_eos":true,"stream":true})"));
      case kChat:
        return kept_.send(
            post("/v1/chat/completions", R"({"model":"m","max_tokens":1,"thinking":{"type":"disabled"},"messages":)"
                                         R"([{"role":"user","content":")" +
                                             number + R"("}]})"));
      case kOnce:
        once_ = server_.client();
        return once_->send(post(
            "/v1/messages",
            R"({"model":"m","max_tokens":1,"thinking":{"type":"disabled"},"messages":[{"role":"user","content":")" +
                number + R"("}]})",
            "Connection: close\r\n"));
      case kCancelled:
        once_ = server_.client();
        return once_->send(post(
            "/v1/completions", R"({"prompt":"c)" + number + R"(","max_tokens":1500,"ignore_eos":true,"stream":true})"));
      case kRefused: return kept_.send(post("/v1/completions", R"({"prompt":)" + number + "}"));
      case kNoJson: return kept_.send(post("/v1/chat/completions", R"({"messages":[)" + number));
      case kUnknown: return kept_.send(get("/v1/" + number));
      case kMalformed: once_ = server_.client(); return once_->send("GET /" + number + " HTTP/9.9\r\n\r\n");
      case kKinds: break;
    }
  }

  void end() {
    const bool is_once = once_.has_value();
    if (kind_ == kCancelled) {
      EXPECT_NE(once_->read_until("\r\n\r\n"), "");
      once_->reset();
    } else {
      const Reply reply = (is_once ? *once_ : kept_).read_reply();
      EXPECT_EQ(reply.status, expected()) << kind_ << ": " << reply.head << reply.body;
    }
    once_.reset();
  }

 private:
  enum Kind { kWhole, kStream, kChat, kOnce, kCancelled, kRefused, kNoJson, kUnknown, kMalformed, kKinds };
  [[nodiscard]] int expected() const {
    switch (kind_) {
      case kRefused:
      case kNoJson: return 400;
      case kUnknown: return 404;
      case kMalformed: return 505;
      default: return 200;
    }
  }

  const NanoServer& server_;
  Client kept_;
  std::optional<Client> once_;
  Kind kind_ = kWhole;
};

// Of the process, without what the allocator merely keeps.
int64_t used_bytes() {
  malloc_trim(0);
  return resident_bytes();
}

TEST(Load, TenThousandRequestsInARowLeaveMemoryFlat) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer keeps memory that is free";
#endif
  constexpr int kWarmUp = 2000;
  constexpr int kCounted = 10000;
  // A kilobyte lost with each request would be more than twice as much.
  constexpr int64_t kGrowth = int64_t{4} << 20;
  engine::EngineOptions engine = small_engine();
  engine.max_sequences = 16;
  engine.pages = 64;  // soon all of them have been in use
  engine.threads = 1;
  NanoServer server({}, engine);
  std::vector<Visitor> visitors;
  for (int64_t i = 0; i < engine.max_sequences; ++i) visitors.emplace_back(server);
  int sent = 0;
  const auto visit_until = [&](int count) {
    while (sent < count) {
      for (Visitor& visitor : visitors) visitor.begin(sent++);
      for (Visitor& visitor : visitors) visitor.end();
    }
    EXPECT_TRUE(wait_until([&] { return server.is_at_rest(); }));
  };
  visit_until(kWarmUp);
  const int64_t before = used_bytes();
  visit_until(kWarmUp + kCounted);
  const int64_t growth = used_bytes() - before;
  std::printf("memory after %d requests, and %d later: %ld KiB, %+ld KiB\n", kWarmUp, kCounted,
              static_cast<long>(before >> 10), static_cast<long>(growth >> 10));
  RecordProperty("growth_bytes", static_cast<int>(growth));
  EXPECT_LT(growth, kGrowth);
}

}  // namespace
}  // namespace ps::tests
