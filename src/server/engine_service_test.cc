#include "server/engine_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/json.h"
#include "server/testing.h"

namespace ps::server {
namespace {

using test::ManualExecutor;
using test::ScriptedEngine;

struct RecordingSink final : SubmissionSink {
  void on_event(size_t index, const engine::Event& event) override {
    if (tokens.size() <= index) tokens.resize(index + 1);
    if (event.token >= 0) tokens[index].push_back(event.token);
    if (event.finish != engine::FinishReason::kNone) finished.push_back(index);
    if (then) then(index);
  }
  void on_progress(size_t, const engine::PromptProgress&) override { ++progress; }
  void on_step() override { ++steps; }
  void on_failure(const ApiError& error) override { failure = error.message; }

  std::vector<std::vector<int32_t>> tokens;
  std::vector<size_t> finished;
  std::function<void(size_t)> then;
  std::string failure;
  int progress = 0;
  int steps = 0;
};

engine::Request request(int64_t max_tokens = 100) {
  engine::Request made;
  made.prompt = {1, 2};
  made.max_tokens = max_tokens;
  return made;
}

// The service's threads and a hand-driven I/O thread: this one.
class EngineServiceThreads : public testing::Test {
 protected:
  // Sequences that no test waits for.
  void speak_for_ever() {
    engine_.answer.assign(10'000'000, 5);
    engine_.max_context = 100'000'000;
  }
  void make(ServiceOptions options = {}) {
    service_.emplace(engine_, io_, metrics_, options);
    service_->start();
  }
  SubmissionId submit(std::vector<engine::Request> requests, const std::shared_ptr<RecordingSink>& sink) {
    SubmissionId id{};
    const auto error = service_->submit(std::move(requests), sink, id);
    EXPECT_FALSE(error) << error->message;
    return id;
  }
  // Runs posted work until `holds`.
  template <typename Condition>
  void run_until(Condition holds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!holds()) {
      ASSERT_LT(std::chrono::steady_clock::now(), end);
      if (!io_.run_one()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  double metric(const std::string& line) {
    const std::string text = metrics_.text({service_->status(), service_->memory(), 0, 0});
    const size_t at = text.find("\n" + line + " ");
    return at == std::string::npos ? -1 : std::stod(text.substr(at + line.size() + 2));
  }

  ScriptedEngine engine_;
  ManualExecutor io_;
  Metrics metrics_;
  std::optional<EngineService> service_;
};

TEST_F(EngineServiceThreads, DeliversEverySequenceOfASubmission) {
  make();
  const auto sink = std::make_shared<RecordingSink>();
  submit({request(), request(2)}, sink);
  run_until([&] { return sink->finished.size() == 2; });
  EXPECT_EQ(sink->tokens, (std::vector<std::vector<int32_t>>{{5, 6, 7}, {5, 6}}));
  run_until([&] { return service_->status().running == 0; });
  EXPECT_EQ(metric(R"(pagestate_sequences_total{outcome="stop"})"), 1);
  EXPECT_EQ(metric(R"(pagestate_sequences_total{outcome="length"})"), 1);
  EXPECT_EQ(metric("pagestate_time_to_first_token_seconds_count"), 2);
  EXPECT_EQ(metric("pagestate_prompt_tokens_total"), 4);
}

TEST_F(EngineServiceThreads, PostsOncePerStep) {
  make();
  const auto sink = std::make_shared<RecordingSink>();
  submit(std::vector<engine::Request>(50, request(4)), sink);
  run_until([&] { return sink->finished.size() == 50; });
  EXPECT_EQ(sink->steps, 4);
}

TEST_F(EngineServiceThreads, CancelledSinksHearNoMore) {
  make();
  speak_for_ever();
  const auto sink = std::make_shared<RecordingSink>();
  const SubmissionId id = submit({request(9'000'000)}, sink);
  run_until([&] { return sink->steps > 0; });
  service_->cancel(id);
  const int steps = sink->steps;
  run_until([&] { return service_->status().running == 0 && io_.waiting() == 0; });
  EXPECT_EQ(sink->steps, steps);
  EXPECT_EQ(metric(R"(pagestate_sequences_total{outcome="cancelled"})"), 1);
}

TEST_F(EngineServiceThreads, ASinkMayFinishOneSequenceInItsCall) {
  make();
  speak_for_ever();
  const auto sink = std::make_shared<RecordingSink>();
  const SubmissionId id = submit({request(9'000'000), request(3)}, sink);
  sink->then = [&](size_t index) {
    if (index == 0) service_->finish(id, 0);
  };
  run_until([&] { return service_->status().running == 0 && sink->finished.size() == 1; });
  EXPECT_EQ(sink->tokens[0].size(), 1u);
  EXPECT_EQ(sink->finished, (std::vector<size_t>{1}));
}

TEST_F(EngineServiceThreads, ASinkMayCancelItselfInItsCall) {
  make();
  const auto sink = std::make_shared<RecordingSink>();
  const SubmissionId id = submit({request(), request()}, sink);
  sink->then = [&](size_t) { service_->cancel(id); };
  run_until([&] { return service_->status().steps > 0 && service_->status().running == 0; });
  io_.run_all();
  EXPECT_EQ(sink->steps, 0);
  EXPECT_EQ(sink->tokens[0].size(), 1u);
}

TEST_F(EngineServiceThreads, RefusesWhatDoesNotFit) {
  make();
  SubmissionId id{};
  const auto error = service_->submit({request(999)}, std::make_shared<RecordingSink>(), id);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->status, 400);
  EXPECT_EQ(error->code, "context_length_exceeded");
  EXPECT_THAT(error->message, testing::HasSubstr("1000"));
}

TEST_F(EngineServiceThreads, RefusesBeyondTheQueue) {
  speak_for_ever();
  make({.max_sequences = 2, .max_queue = 1});
  const auto sink = std::make_shared<RecordingSink>();
  std::vector<SubmissionId> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(submit({request(9'000'000)}, sink));
  SubmissionId id{};
  const auto full = service_->submit({request(9'000'000)}, sink, id);
  ASSERT_TRUE(full);
  EXPECT_EQ(full->status, 503);
  EXPECT_EQ(full->code, "overloaded");
  const auto never = service_->submit(std::vector<engine::Request>(4, request()), sink, id);
  ASSERT_TRUE(never);
  EXPECT_EQ(never->status, 400) << "waiting would not help";
  service_->cancel(ids[0]);
  EXPECT_FALSE(service_->submit({request(9'000'000)}, sink, id)) << "the room is free again";
}

TEST_F(EngineServiceThreads, AFaultFailsEveryLiveSubmissionAndLaterOnes) {
  std::atomic<bool> is_gone = false;
  engine_.on_step = [&] {
    if (is_gone) throw std::runtime_error("the device is gone");
  };
  speak_for_ever();
  make();
  const auto a = std::make_shared<RecordingSink>();
  const auto b = std::make_shared<RecordingSink>();
  submit({request(9'000'000)}, a);
  submit({request(9'000'000)}, b);
  is_gone = true;
  run_until([&] { return !a->failure.empty() && !b->failure.empty(); });
  EXPECT_THAT(a->failure, testing::HasSubstr("the device is gone"));
  EXPECT_THAT(service_->trouble(), testing::HasSubstr("the device is gone"));
  SubmissionId id{};
  const auto error = service_->submit({request()}, a, id);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->status, 503);
}

TEST_F(EngineServiceThreads, TheWatchdogSeesAStepThatDoesNotEnd) {
  std::atomic<bool> may_go_on = false;
  engine_.on_step = [&] {
    while (!may_go_on) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  make({.watchdog_seconds = 0.05});
  EXPECT_EQ(service_->trouble(), "");
  const auto sink = std::make_shared<RecordingSink>();
  submit({request(1)}, sink);
  run_until([&] { return !service_->trouble().empty(); });
  EXPECT_THAT(service_->trouble(), testing::HasSubstr("watchdog"));
  may_go_on = true;
  run_until([&] { return service_->trouble().empty(); });
}

TEST_F(EngineServiceThreads, StopsWhileSequencesRun) {
  speak_for_ever();
  make();
  submit({request(9'000'000)}, std::make_shared<RecordingSink>());
  run_until([&] { return service_->status().steps > 3; });
  service_->stop();
}

TEST(StatusBoardThreads, ReadsAreWhole) {
  struct Pair {
    int64_t a = 0;
    int64_t b = 0;
  };
  StatusBoard<Pair> board;
  std::atomic<bool> stops = false;
  std::thread writer([&] {
    for (int64_t i = 0; !stops; ++i) board.write({i, -i});
  });
  for (int i = 0; i < 200000; ++i) {
    const Pair pair = board.read();
    ASSERT_EQ(pair.a, -pair.b);
  }
  stops = true;
  writer.join();
}

TEST_F(EngineServiceThreads, IsLookedAtOnlyWhileSomebodyWatches) {
  make();
  EXPECT_EQ(engine_.looks, 1) << "the first look is there before anybody asks";
  const auto sink = std::make_shared<RecordingSink>();
  submit({request()}, sink);
  run_until([&] { return sink->finished.size() == 1; });
  EXPECT_EQ(engine_.looks, 1);
  EXPECT_EQ(service_->submissions(), 1);

  // The first asker wakes an idle engine for a fresh look.
  ASSERT_NE(service_->view(), nullptr);
  run_until([&] { return engine_.looks == 2; });

  // From then on a look follows each step.
  std::shared_ptr<const engine::EngineView> seen;
  engine_.on_step = [&] {
    if (const auto view = service_->view(); !view->running.empty()) seen = view;
  };
  const auto watched = std::make_shared<RecordingSink>();
  submit({request()}, watched);
  run_until([&] { return watched->finished.size() == 1; });
  service_->stop();
  ASSERT_NE(seen, nullptr);
  EXPECT_EQ(seen->running.front().id, engine::SequenceId{1});
  EXPECT_EQ(seen->running.front().answer_tokens, 3);
  EXPECT_TRUE(service_->view()->running.empty()) << "the look after the last step";
}

}  // namespace
}  // namespace ps::server
