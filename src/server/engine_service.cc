#include "server/engine_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/log.h"
#include "base/process.h"

namespace ps::server {
namespace {

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

// What one step brought. The spans of its events point into its own vectors.
struct EngineService::Batch {
  struct Item {
    Key key;
    engine::Event event;
  };
  struct Progress {
    Key key;
    engine::PromptProgress progress;
  };
  Clock::time_point at = Clock::now();
  double seconds = 0;
  std::vector<Item> items;
  std::vector<Progress> progress;
  std::vector<engine::TokenLogprob> top;
  std::vector<float> prompt_logprobs;
};

EngineService::EngineService(EnginePort& engine, Executor& io, Metrics& metrics, const ServiceOptions& options)
    : engine_(engine), io_(io), metrics_(metrics), options_(options) {
  publish();
  keep_view();
}

EngineService::~EngineService() { stop(); }

void EngineService::start() {
  thread_ = std::thread([this] { run(); });
}

void EngineService::stop() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::optional<ApiError> EngineService::submit(std::vector<engine::Request> requests,
                                              std::shared_ptr<SubmissionSink> sink, SubmissionId& id) {
  if (is_faulted_) return ApiError::unavailable("the engine failed: " + fault(), "engine_failed");
  for (const engine::Request& request : requests) {
    if (const Status status = engine_.check(request); !status.ok()) return from_status(status);
  }
  const auto count = std::ssize(requests);
  const int64_t room = options_.max_sequences + options_.max_queue;
  if (count > room) {
    return ApiError::invalid(fmt::format("{} sequences in one request; at most {} fit into the queue", count, room));
  }
  if (open_sequences_ + count > room) {
    metrics_.count_refusal();
    return ApiError::unavailable(
        fmt::format("{} sequences run or wait, and {} more do not fit into the queue of {}; try again later",
                    open_sequences_, count, options_.max_queue),
        "overloaded");
  }
  id = SubmissionId{next_id_++};
  Live& live = live_[static_cast<uint64_t>(id)];
  live.sink = std::move(sink);
  live.parts.resize(requests.size());
  live.open = requests.size();
  open_sequences_ += count;
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < requests.size(); ++i) {
    live.parts[i].last = Clock::now();
    commands_.emplace_back(Add{id, i, std::move(requests[i])});
  }
  wake_.notify_one();
  return std::nullopt;
}

void EngineService::push(Command command) {
  {
    const std::lock_guard lock(mutex_);
    commands_.push_back(std::move(command));
  }
  wake_.notify_one();
}

void EngineService::close(Live& live, size_t index, std::string_view outcome) {
  Live::Part& part = live.parts[index];
  if (std::exchange(part.is_done, true)) return;
  --live.open;
  --open_sequences_;
  metrics_.count_sequence(outcome, part.prompt_tokens, part.cached_tokens);
}

void EngineService::cancel(SubmissionId id) {
  const auto found = live_.find(static_cast<uint64_t>(id));
  if (found == live_.end()) return;
  for (size_t i = 0; i < found->second.parts.size(); ++i) {
    if (found->second.parts[i].is_done) continue;
    close(found->second, i, "cancelled");
    push(Abort{id, i});
  }
  live_.erase(found);
}

void EngineService::finish(SubmissionId id, size_t index) {
  const auto found = live_.find(static_cast<uint64_t>(id));
  if (found == live_.end() || found->second.parts[index].is_done) return;
  close(found->second, index, "stop");
  push(Abort{id, index});
}

double EngineService::stalled_seconds() const noexcept {
  const int64_t since = busy_since_ns_;
  return since == 0 ? 0 : static_cast<double>(now_ns() - since) * 1e-9;
}

std::string EngineService::fault() const {
  const std::lock_guard lock(mutex_);
  return fault_;
}

std::string EngineService::trouble() const {
  if (is_faulted_) return "the engine failed: " + fault();
  const double seconds = stalled_seconds();
  if (seconds <= options_.watchdog_seconds) return {};
  return fmt::format("a step has taken {:.1f} s, longer than the watchdog's {:.1f} s", seconds,
                     options_.watchdog_seconds);
}

void EngineService::run() {
  name_thread("pagestate-step");
  std::vector<Command> commands;
  try {
    publish();  // what the engine did before the service ran
    while (true) {
      bool is_watched = false;
      {
        std::unique_lock lock(mutex_);
        if (!engine_.has_work()) {
          busy_since_ns_ = 0;
          wake_.wait(lock, [this] { return stops_ || wants_view_ || !commands_.empty(); });
        }
        if (stops_) return;
        commands.swap(commands_);
        is_watched = std::exchange(wants_view_, false) || Clock::now() < watched_until_;
      }
      busy_since_ns_ = now_ns();
      run_commands(commands);
      commands.clear();
      engine_.has_work() ? step() : publish();
      if (is_watched) keep_view();
    }
  } catch (const std::exception& error) {
    fail(error.what());
  }
}

void EngineService::run_commands(std::vector<Command>& commands) {
  for (Command& command : commands) {
    if (auto* add = std::get_if<Add>(&command)) {
      auto added = engine_.add(std::move(add->request));
      if (!added.ok()) {  // submit() has asked the engine: only a change of mind comes here
        io_.post([this, id = add->submission, error = from_status(added.status())] {
          const auto found = live_.find(static_cast<uint64_t>(id));
          if (found == live_.end()) return;
          const auto sink = found->second.sink;
          cancel(id);
          sink->on_failure(error);
        });
        continue;
      }
      const Key key{add->submission, add->index};
      tracked_[key] = {added.value()};
      keys_[static_cast<int64_t>(added.value())] = key;
    } else {
      const auto& abort = std::get<Abort>(command);
      const auto found = tracked_.find({abort.submission, abort.index});
      if (found != tracked_.end()) engine_.abort(found->second.sequence);
    }
  }
}

void EngineService::step() {
  const Clock::time_point start = Clock::now();
  const std::span<const engine::Event> events = engine_.step();
  const std::shared_ptr<Batch> batch = collect(events);
  collect_progress(*batch);
  batch->seconds = std::chrono::duration<double>(batch->at - start).count();
  figures_.last_step_us = static_cast<int64_t>(batch->seconds * 1e6);
  publish();  // who hears of the step finds its figures
  io_.post([this, batch] { deliver(*batch); });
}

std::shared_ptr<EngineService::Batch> EngineService::collect(std::span<const engine::Event> events) {
  auto batch = std::make_shared<Batch>();
  size_t top = 0;
  size_t prompt = 0;
  for (const engine::Event& event : events) {
    top += event.top.size() + event.prompt_top.size();
    prompt += event.prompt_logprobs.size();
  }
  // Reserved whole: the spans must not move.
  batch->items.reserve(events.size());
  batch->top.reserve(top);
  batch->prompt_logprobs.reserve(prompt);
  const auto keep = [](auto& into, auto& span) {
    const size_t first = into.size();
    into.insert(into.end(), span.begin(), span.end());
    span = {into.data() + first, span.size()};
  };
  for (engine::Event event : events) {
    const auto found = keys_.find(static_cast<int64_t>(event.sequence));
    if (found == keys_.end()) continue;
    const Key key = found->second;
    keep(batch->top, event.top);
    keep(batch->top, event.prompt_top);
    keep(batch->prompt_logprobs, event.prompt_logprobs);
    batch->items.push_back({key, event});
    tracked_[key].has_answered = true;
    if (event.finish != engine::FinishReason::kNone) {
      tracked_.erase(key);
      keys_.erase(found);
    }
  }
  return batch;
}

void EngineService::collect_progress(Batch& batch) {
  for (auto& [key, tracked] : tracked_) {
    if (tracked.has_answered) continue;
    const auto progress = engine_.progress(tracked.sequence);
    if (!progress || progress->is_waiting || progress->computed_tokens == tracked.reported_tokens) continue;
    tracked.reported_tokens = progress->computed_tokens;
    batch.progress.push_back({key, *progress});
  }
}

std::shared_ptr<const engine::EngineView> EngineService::view() {
  constexpr std::chrono::seconds kWatch{5};
  const std::lock_guard lock(mutex_);
  const Clock::time_point now = Clock::now();
  if (now >= watched_until_) {
    wants_view_ = true;
    wake_.notify_one();
  }
  watched_until_ = now + kWatch;
  return view_;
}

void EngineService::keep_view() {
  auto view = std::make_shared<const engine::EngineView>(engine_.look());
  const std::lock_guard lock(mutex_);
  view_ = std::move(view);
}

void EngineService::publish() {
  const engine::EngineCounters counters = engine_.counters();
  figures_.waiting = counters.scheduler.waiting;
  figures_.running = counters.scheduler.running;
  figures_.preemptions = counters.scheduler.preemptions;
  figures_.pages_vacant = counters.pages.vacant;
  figures_.pages_cached = counters.pages.cached;
  figures_.pages_used = counters.pages.used;
  figures_.pages_image = counters.pages.units;
  figures_.evictions = counters.pages.evictions;
  figures_.lookup_tokens = counters.pages.lookup_tokens;
  figures_.hit_tokens = counters.pages.hit_tokens;
  figures_.steps = counters.steps;
  figures_.prompt_rows = counters.prompt_rows;
  figures_.answer_tokens = counters.answer_tokens;
  board_.write(figures_);
}

void EngineService::fail(const std::string& reason) {
  log_error(fmt::format("event=engine_failed what=\"{}\"", reason));
  {
    const std::lock_guard lock(mutex_);
    fault_ = reason;
  }
  is_faulted_ = true;
  busy_since_ns_ = 0;
  io_.post([this, reason] { fail_all(reason); });
}

void EngineService::fail_all(const std::string& reason) {
  auto live = std::exchange(live_, {});
  for (auto& [id, submission] : live) {
    for (size_t i = 0; i < submission.parts.size(); ++i) close(submission, i, "failed");
    submission.sink->on_failure(ApiError::unavailable("the engine failed: " + reason, "engine_failed"));
  }
}

void EngineService::account(Live::Part& part, const engine::Event& event, Clock::time_point at) {
  part.prompt_tokens = event.prompt_tokens;
  part.cached_tokens = event.cached_tokens;
  if (event.token < 0 && event.stop_token < 0) return;
  const double seconds = std::chrono::duration<double>(at - part.last).count();
  part.has_answered ? metrics_.observe_inter_token(seconds) : metrics_.observe_first_token(seconds);
  part.has_answered = true;
  part.last = at;
}

// A sink may cancel or finish anything in its calls, so that every use looks its submission up anew.
void EngineService::deliver(const Batch& batch) {
  metrics_.observe_step(batch.seconds);
  ++batches_;
  std::vector<uint64_t> touched;
  for (const auto& [key, event] : batch.items) {
    const auto found = live_.find(static_cast<uint64_t>(key.submission));
    if (found == live_.end() || found->second.parts[key.index].is_done) continue;
    account(found->second.parts[key.index], event, batch.at);
    const std::shared_ptr<SubmissionSink> sink = found->second.sink;
    if (event.finish != engine::FinishReason::kNone) {
      close(found->second, key.index, engine::finish_reason_name(event.finish));
    }
    if (std::exchange(found->second.touched_by, batches_) != batches_) touched.push_back(found->first);
    sink->on_event(key.index, event);
  }
  for (const auto& [key, progress] : batch.progress) {
    const auto found = live_.find(static_cast<uint64_t>(key.submission));
    if (found == live_.end()) continue;
    const std::shared_ptr<SubmissionSink> sink = found->second.sink;
    sink->on_progress(key.index, progress);
  }
  for (const uint64_t id : touched) {
    auto found = live_.find(id);
    if (found == live_.end()) continue;
    const std::shared_ptr<SubmissionSink> sink = found->second.sink;
    sink->on_step();
    found = live_.find(id);
    if (found != live_.end() && found->second.open == 0) live_.erase(found);
  }
}

}  // namespace ps::server
