// A thousand clients that wait and sixty-four that are served: everybody gets an answer, and a waiting connection costs
// little memory.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <fstream>

#include "tests/server/server_fixture.h"

namespace ps::tests {
namespace {

constexpr int kActive = 64;
constexpr int kIdle = 1000;

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t total = 0;
  int64_t resident = 0;
  file >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

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

}  // namespace
}  // namespace ps::tests
