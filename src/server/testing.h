// What the tests of the server share: a small tokenizer, an executor that runs by hand, a responder that records, an
// engine that says what it is told to. Test programs only.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "server/engine_port.h"
#include "server/executor.h"
#include "server/responder.h"
#include "text/synthetic_tokenizer.h"
#include "text/tokenizer.h"

namespace ps::server::test {

inline const std::shared_ptr<const text::Tokenizer>& small_tokenizer() {
  static const std::shared_ptr<const text::Tokenizer> tokenizer = [] {
    auto json = text::make_synthetic_tokenizer(512);
    EXPECT_TRUE(json.ok()) << json.status().to_string();
    auto parsed = text::Tokenizer::parse(json.value());
    EXPECT_TRUE(parsed.ok()) << parsed.status().to_string();
    return std::move(parsed).value();
  }();
  return tokenizer;
}

// The id of one byte.
inline int32_t byte_id(char byte) {
  for (int32_t id = 0; id < small_tokenizer()->vocab_size(); ++id) {
    if (small_tokenizer()->token_bytes(id) == std::string_view(&byte, 1)) return id;
  }
  ADD_FAILURE() << "no token for byte " << static_cast<int>(static_cast<unsigned char>(byte));
  return 0;
}

// Runs what was posted when it is told to. Post from any thread.
class ManualExecutor final : public Executor {
 public:
  void post(std::function<void()> work) override {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
  }
  // false when nothing was waiting.
  bool run_one() {
    std::function<void()> work;
    {
      const std::lock_guard lock(mutex_);
      if (queue_.empty()) return false;
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    work();
    return true;
  }
  int run_all() {
    int count = 0;
    while (run_one()) ++count;
    return count;
  }
  [[nodiscard]] size_t waiting() {
    const std::lock_guard lock(mutex_);
    return queue_.size();
  }

 private:
  std::mutex mutex_;
  std::deque<std::function<void()>> queue_;
};

// Keeps what it is given.
class RecordingResponder final : public Responder {
 public:
  void reply(HttpReply answer) override {
    EXPECT_TRUE(is_open_) << "two answers";
    last = std::move(answer);
    is_open_ = false;
  }
  void start_stream(std::function<std::string()> comment_text) override {
    is_stream = true;
    comment = std::move(comment_text);
  }
  void send(std::string_view text) override { events += text; }
  void end_stream() override { is_open_ = false; }
  void on_gone(std::function<void()> function) override { gone = std::move(function); }
  void on_stop(std::function<void(const ApiError&)> function) override { stop = std::move(function); }
  [[nodiscard]] bool is_open() const override { return is_open_; }

  HttpReply last{0, "", {}, ""};
  std::string events;
  std::function<std::string()> comment;
  std::function<void()> gone;
  std::function<void(const ApiError&)> stop;
  bool is_stream = false;

 private:
  bool is_open_ = true;
};

// Answers every sequence with `answer`, a token a step, until its max_tokens; or does what `on_step` says first. Prompt
// log-probabilities are not its business.
class ScriptedEngine final : public EnginePort {
 public:
  std::vector<int32_t> answer = {5, 6, 7};
  int32_t stop_token = 1;         // after `answer`
  std::function<void()> on_step;  // may throw
  int64_t max_context = 1000;

  ScriptedEngine() { memory_.max_context = max_context; }

  [[nodiscard]] Status check(const engine::Request& request) const override {
    const int64_t tokens = std::ssize(request.prompt) + request.max_tokens;
    if (tokens <= max_context) return {};
    return Status::exhausted("at most " + std::to_string(max_context) + " tokens fit");
  }
  [[nodiscard]] const engine::MemoryPlan& memory() const override { return memory_; }
  [[nodiscard]] Result<engine::SequenceId> add(engine::Request request) override {
    sequences_[next_].request = std::move(request);
    return engine::SequenceId{next_++};
  }
  void abort(engine::SequenceId id) override {
    const auto found = sequences_.find(static_cast<int64_t>(id));
    if (found != sequences_.end()) found->second.is_aborted = true;
  }
  [[nodiscard]] bool has_work() const override { return !sequences_.empty(); }
  [[nodiscard]] std::span<const engine::Event> step() override {
    if (on_step) on_step();
    events_.clear();
    for (auto it = sequences_.begin(); it != sequences_.end();) {
      Sequence& sequence = it->second;
      engine::Event event;
      event.sequence = engine::SequenceId{it->first};
      event.prompt_tokens = std::ssize(sequence.request.prompt);
      if (sequence.is_aborted) {
        event.finish = engine::FinishReason::kAborted;
      } else if (sequence.request.max_tokens == 0) {
        event.finish = engine::FinishReason::kLength;
      } else if (sequence.said == answer.size()) {
        event.stop_token = stop_token;
        event.finish = engine::FinishReason::kStop;
      } else {
        event.token = answer[sequence.said++];
        if (static_cast<int64_t>(sequence.said) == sequence.request.max_tokens) {
          event.finish = engine::FinishReason::kLength;
        }
      }
      event.answer_tokens = static_cast<int64_t>(sequence.said);
      events_.push_back(event);
      it = event.finish == engine::FinishReason::kNone ? std::next(it) : sequences_.erase(it);
    }
    ++steps_;
    return events_;
  }
  [[nodiscard]] std::optional<engine::PromptProgress> progress(engine::SequenceId id) const override {
    if (!sequences_.contains(static_cast<int64_t>(id))) return std::nullopt;
    return engine::PromptProgress{1, 2, false};
  }
  [[nodiscard]] engine::EngineCounters counters() const override {
    engine::EngineCounters counters;
    counters.steps = steps_;
    counters.scheduler.running = std::ssize(sequences_);
    return counters;
  }
  [[nodiscard]] engine::EngineView look() const override {
    ++looks;
    engine::EngineView view;
    for (const auto& [id, sequence] : sequences_) {
      view.running.push_back({.id = engine::SequenceId{id}, .answer_tokens = static_cast<int64_t>(sequence.said)});
    }
    return view;
  }
  mutable std::atomic<int> looks = 0;

 private:
  struct Sequence {
    engine::Request request;
    size_t said = 0;
    bool is_aborted = false;
  };
  engine::MemoryPlan memory_;
  std::map<int64_t, Sequence> sequences_;
  std::vector<engine::Event> events_;
  int64_t next_ = 0;
  int64_t steps_ = 0;
};

}  // namespace ps::server::test
