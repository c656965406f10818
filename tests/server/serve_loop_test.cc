// The life of a server as a process, with an engine that fails or goes on for ever.
#include "apps/serve_loop.h"

#include <gmock/gmock.h>
#include <pthread.h>

#include <atomic>

#include "apps/exit_code.h"
#include "tests/server/server_fixture.h"

namespace ps::tests {
namespace {

constexpr const char* kEndless = R"({"prompt":"a","max_tokens":900000,"ignore_eos":true})";

// The program's main thread is one of its own here, so that its signals are not the test's.
class ServeLoop : public testing::Test {
 protected:
  ServeLoop() {
    engine_.max_context = 1 << 20;
    engine_.answer.assign(1 << 20, server::test::byte_id('x'));
    engine_.on_step = [this] {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (fails_) throw std::runtime_error("no such device");
    };
  }
  ~ServeLoop() override {
    if (main_.joinable()) main_.join();
  }
  void start(double drain_seconds) {
    main_ = std::thread([this, drain_seconds] {
      const apps::Signals signals;
      server::ModelInfo model{{"m"}, 1, engine_.max_context, 512};
      auto made = server::Server::create({}, engine_, server::test::small_tokenizer(), std::move(model));
      server_ = std::move(made).value();
      port_ = server_->port();
      end_ = apps::serve_until_signal(*server_, signals, drain_seconds);
      has_ended_ = true;
    });
    ASSERT_TRUE(wait_until([this] { return port_ != 0; }));
  }
  void signal(int number) { pthread_kill(main_.native_handle(), number); }
  // A request that runs.
  Client running() {
    Client client(port_);
    client.send(post("/v1/completions", kEndless));
    EXPECT_TRUE(wait_until([this] { return server_->status().running == 1; }));
    return client;
  }

  server::test::ScriptedEngine engine_;
  std::atomic<bool> fails_ = false;
  std::atomic<bool> has_ended_ = false;
  std::atomic<int> port_ = 0;
  std::unique_ptr<server::Server> server_;  // ends with the test: it is asked until then
  Status end_;
  std::thread main_;
};

TEST_F(ServeLoop, AnEngineFaultIsToldToWhoWaitsAndHasAnExitCodeOfItsOwn) {
  start(600);
  Client client = running();
  fails_ = true;
  const Reply reply = client.read_reply();
  EXPECT_EQ(reply.status, 503);
  EXPECT_EQ(reply.error("code"), "engine_failed");
  client.close();
  ASSERT_TRUE(wait_until([this] { return has_ended_.load(); }, 20));
  EXPECT_EQ(end_.message(), "the engine failed: no such device");
  EXPECT_EQ(apps::exit_code(end_), 70);
}

TEST_F(ServeLoop, AFaultWhileDrainingIsNoCleanEnd) {
  start(600);
  Client client = running();
  signal(SIGTERM);
  ASSERT_TRUE(wait_until([this] { return !Client(port_).is_connected(); }));
  fails_ = true;
  EXPECT_EQ(client.read_reply().error("code"), "engine_failed");
  client.close();
  ASSERT_TRUE(wait_until([this] { return has_ended_.load(); }, 20));
  EXPECT_EQ(apps::exit_code(end_), 70);
}

TEST_F(ServeLoop, ASecondSignalTellsWhoRunsAndEndsCleanly) {
  start(600);
  Client client = running();
  signal(SIGTERM);
  EXPECT_FALSE(client.sees_bytes(500));
  signal(SIGINT);
  EXPECT_EQ(client.read_reply().error("code"), "stopping");
  client.close();
  ASSERT_TRUE(wait_until([this] { return has_ended_.load(); }, 20));
  EXPECT_EQ(apps::exit_code(end_), 0);
}

TEST(ExitCode, SaysWhoseFaultItWas) {
  EXPECT_EQ(apps::exit_code({}), 0);
  EXPECT_EQ(apps::exit_code(Status::invalid("x")), 2);
  EXPECT_EQ(apps::exit_code(Status::not_found("x")), 2);
  EXPECT_EQ(apps::exit_code(Status::unavailable("x")), 1);
  EXPECT_EQ(apps::exit_code(Status::corrupt("x")), 1);
  EXPECT_EQ(apps::exit_code(Status::internal("x")), 70);
}

}  // namespace
}  // namespace ps::tests
