// The engine behind a queue: its own thread steps it, others submit and cancel.
//
// What a step brought goes to the I/O thread in one posting, whatever the number of sequences, and from there to each
// submission's sink. A sequence ends once: by its last event, by cancel(), or by on_failure(). An exception out of the
// engine is a fault: every live submission fails with 503 and the reason, and so does every later one, because nobody
// knows what state it left.
// Threading: submit() and cancel() on the I/O thread, where sinks are called; status(), stalled_seconds() and fault()
// from any thread, without holding up the engine; start() and stop() by the owner.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>

#include "server/api_error.h"
#include "server/engine_port.h"
#include "server/executor.h"
#include "server/metrics.h"
#include "server/status_board.h"

namespace ps::server {

struct ServiceOptions {
  int64_t max_sequences = 8;      // that the engine runs at once
  int64_t max_queue = 1024;       // more that may wait; beyond it requests are turned away
  double watchdog_seconds = 300;  // a step may take
};

enum class SubmissionId : uint64_t {};

// Receives what happens to one submission, on the I/O thread. `index` counts the requests of the submission.
class SubmissionSink {
 public:
  virtual ~SubmissionSink() = default;
  // The spans of the event live during the call.
  virtual void on_event(size_t index, const engine::Event& event) = 0;
  virtual void on_progress(size_t index, const engine::PromptProgress& progress) = 0;
  // After the events of one step: a place to send what they gave together.
  virtual void on_step() = 0;
  // The whole submission ends here.
  virtual void on_failure(const ApiError& error) = 0;
};

class EngineService {
 public:
  // REQUIRES: all outlive the service; `io` runs what is posted on the I/O thread.
  EngineService(EnginePort& engine, Executor& io, Metrics& metrics, const ServiceOptions& options);
  ~EngineService();
  EngineService(const EngineService&) = delete;
  EngineService& operator=(const EngineService&) = delete;

  void start();
  // Ends after the present step and joins. Sinks hear no more.
  void stop();

  // Queues all requests, or none: the engine's refusal (with the number that would fit), or 503 when too many wait.
  [[nodiscard]] std::optional<ApiError> submit(std::vector<engine::Request> requests,
                                               std::shared_ptr<SubmissionSink> sink, SubmissionId& id);
  // Its sink hears no more. Unknown and finished ones are ignored.
  void cancel(SubmissionId id);
  // Ends one sequence, whose sink has seen enough of it.
  void finish(SubmissionId id, size_t index);

  [[nodiscard]] EngineStatus status() const noexcept { return board_.read(); }
  // What the engine looked like after its latest step, while somebody asks every few seconds; an older look for the
  // first asker after a pause. Any thread, without holding up the engine.
  [[nodiscard]] std::shared_ptr<const engine::EngineView> view();
  // So far. I/O thread.
  [[nodiscard]] int64_t submissions() const noexcept { return static_cast<int64_t>(next_id_ - 1); }
  [[nodiscard]] const engine::MemoryPlan& memory() const { return engine_.memory(); }
  // The engine's verdict on a request. Any thread.
  [[nodiscard]] Status check(const engine::Request& request) const { return engine_.check(request); }
  // How long the present step has taken; 0 when nothing is to do.
  [[nodiscard]] double stalled_seconds() const noexcept;
  // Why the engine is out of order; empty while it is in order.
  [[nodiscard]] std::string fault() const;
  // Empty, or why no request can be served at present: a fault, or a step beyond the watchdog's time.
  [[nodiscard]] std::string trouble() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Add {
    SubmissionId submission;
    size_t index;
    engine::Request request;
  };
  struct Abort {
    SubmissionId submission;
    size_t index;
  };
  using Command = std::variant<Add, Abort>;
  struct Key {
    SubmissionId submission;
    size_t index;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const noexcept {
      return std::hash<uint64_t>()(static_cast<uint64_t>(key.submission) * 0x9E3779B97F4A7C15ull + key.index);
    }
  };
  // The engine thread's view of a sequence.
  struct Tracked {
    engine::SequenceId sequence;
    int64_t reported_tokens = -1;  // of its prompt
    bool has_answered = false;
  };
  // The I/O thread's view of a submission.
  struct Live {
    std::shared_ptr<SubmissionSink> sink;
    struct Part {
      bool is_done = false;
      Clock::time_point last{};  // token, or the submission
      bool has_answered = false;
      int64_t prompt_tokens = 0;
      int64_t cached_tokens = 0;
    };
    std::vector<Part> parts;
    size_t open = 0;
    uint64_t touched_by = 0;  // the latest batch with something for it
  };
  struct Batch;

  void run();
  void run_commands(std::vector<Command>& commands);
  void step();
  [[nodiscard]] std::shared_ptr<Batch> collect(std::span<const engine::Event> events);
  void collect_progress(Batch& batch);
  void publish();
  void keep_view();
  void fail(const std::string& reason);
  void push(Command command);
  // On the I/O thread.
  void deliver(const Batch& batch);
  void account(Live::Part& part, const engine::Event& event, Clock::time_point at);
  void close(Live& live, size_t index, std::string_view outcome);
  void fail_all(const std::string& reason);

  EnginePort& engine_;
  Executor& io_;
  Metrics& metrics_;
  ServiceOptions options_;

  // I/O thread.
  std::unordered_map<uint64_t, Live> live_;
  int64_t open_sequences_ = 0;
  uint64_t next_id_ = 1;
  uint64_t batches_ = 0;

  // Engine thread.
  std::unordered_map<Key, Tracked, KeyHash> tracked_;
  std::unordered_map<int64_t, Key> keys_;  // by sequence
  EngineStatus figures_;

  // Between them.
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Command> commands_;
  bool stops_ = false;
  bool wants_view_ = false;               // at once, even when nothing is to do
  Clock::time_point watched_until_ = {};  // a look after each step until then
  std::shared_ptr<const engine::EngineView> view_;
  std::string fault_;
  std::atomic<bool> is_faulted_ = false;
  std::atomic<int64_t> busy_since_ns_ = 0;  // start of the present step; 0: idle
  StatusBoard<EngineStatus> board_;
  std::thread thread_;
};

}  // namespace ps::server
