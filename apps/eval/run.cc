#include "apps/eval/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <string_view>
#include <utility>

#include "apps/eval/tool_calls.h"
#include "base/macros.h"

namespace ps::apps::eval {
namespace {

constexpr std::string_view kEndOfThinking = "</think>";

// Behind the thinking; all of it where there is none.
std::string_view reply_of(std::string_view answer) {
  const size_t at = answer.find(kEndOfThinking);
  return at == std::string_view::npos ? answer : answer.substr(at + kEndOfThinking.size());
}

// Whether the prompt leaves the model thinking, so that a reply without an end of it is no reply.
bool is_thinking(const AnswerCase& asked) { return asked.answer.find(kEndOfThinking) != std::string::npos; }

ToolOutcome judge_calls(const AnswerOutcome& outcome) {
  ToolOutcome judged;
  const std::string_view expected_text = reply_of(outcome.asked->answer);
  const std::string_view given_text = reply_of(outcome.text);
  judged.is_expected = has_calls(expected_text);
  judged.is_made = has_calls(given_text);
  if (!judged.is_made) return judged;
  const auto given = parse_calls(given_text);
  Status valid;
  if (!given.ok()) {
    valid = Status(given.status().code(), std::string(given.status().message()));
  } else {
    valid = check_calls(given.value(), outcome.asked->tools);
  }
  judged.is_valid = valid.ok() && outcome.ended;
  judged.fault = outcome.ended ? valid.message() : "did not end";
  if (!judged.is_valid || !judged.is_expected) return judged;
  const auto expected = parse_calls(expected_text);
  judged.is_correct = expected.ok() && same_calls(expected.value(), given.value());
  return judged;
}

// One request to the engine.
struct Task {
  size_t index = 0;  // into the suite's windows, or its answers
  bool is_text = false;
  bool is_warm_up = false;
  std::vector<int32_t> prompt;
  int64_t max_tokens = 1;
};

struct Running {
  Task task;
  std::vector<int32_t> answer;
};

// Keeps the engine busy and collects what it says.
class Session {
 public:
  Session(const Suite& suite, const text::Tokenizer& tokenizer, engine::Engine& engine, const RunOptions& options)
      : suite_(suite), tokenizer_(tokenizer), engine_(engine), options_(options) {
    outcomes_.texts.resize(suite.windows.size());
    outcomes_.answers.resize(suite.answers.size());
    for (size_t i = 0; i < suite.answers.size(); ++i) outcomes_.answers[i].asked = &suite.answers[i];
  }

  Result<Outcomes> run(const std::function<void(int64_t, int64_t)>& progress);

 private:
  void queue_all();
  Status submit(Task task);
  Status take(const engine::Event& event);
  void finish_text(const Task& task, std::span<const float> logprobs);
  void finish_answer(const Running& running, const engine::Event& event);

  const Suite& suite_;
  const text::Tokenizer& tokenizer_;
  engine::Engine& engine_;
  RunOptions options_;
  std::deque<Task> queue_;
  std::map<engine::SequenceId, Running> running_;
  Outcomes outcomes_;
  int64_t done_ = 0;
  int64_t total_ = 0;
};

void Session::queue_all() {
  for (size_t i = 0; i < suite_.windows.size(); ++i) {
    queue_.push_back({.index = i, .is_text = true, .prompt = window_tokens(suite_.windows[i], tokenizer_)});
  }
  for (size_t i = 0; i < suite_.answers.size(); ++i) {
    const AnswerCase& asked = suite_.answers[i];
    Task task{.index = i, .is_warm_up = options_.warm, .prompt = tokenizer_.encode(asked.prompt)};
    task.max_tokens = answer_room(std::ssize(tokenizer_.encode(asked.answer)));
    queue_.push_back(std::move(task));
  }
  // Long prompts first: the last steps then do not run one long sequence alone.
  std::stable_sort(queue_.begin(), queue_.end(),
                   [](const Task& a, const Task& b) { return a.prompt.size() > b.prompt.size(); });
  for (const Task& task : queue_) total_ += std::ssize(task.prompt);
}

Status Session::submit(Task task) {
  engine::Request request;
  request.prompt = task.prompt;
  request.max_tokens = task.is_warm_up ? 1 : task.max_tokens;
  request.prompt_logprobs = task.is_text;
  auto id = engine_.add(std::move(request));
  if (!id.ok()) {
    const std::string& place = task.is_text ? suite_.windows[task.index].place : suite_.answers[task.index].place;
    return std::move(id).status().with(place);
  }
  running_.emplace(id.value(), Running{std::move(task), {}});
  return {};
}

Status Session::take(const engine::Event& event) {
  const auto found = running_.find(event.sequence);
  if (found == running_.end()) return {};
  Running& running = found->second;
  if (!event.prompt_logprobs.empty()) finish_text(running.task, event.prompt_logprobs);
  if (event.token >= 0) running.answer.push_back(event.token);
  if (event.finish == engine::FinishReason::kNone) return {};
  Running ended = std::move(running);
  running_.erase(found);
  if (ended.task.is_warm_up) {
    ended.task.is_warm_up = false;
    return submit(std::move(ended.task));
  }
  done_ += std::ssize(ended.task.prompt);
  if (!ended.task.is_text) finish_answer(ended, event);
  return {};
}

void Session::finish_text(const Task& task, std::span<const float> logprobs) {
  const TextWindow& window = suite_.windows[task.index];
  TextOutcome& outcome = outcomes_.texts[task.index];
  outcome.id = window.id;
  outcome.source = window.source;
  outcome.tokens = std::ssize(logprobs);
  outcome.bytes = std::ssize(window.text);
  for (const float logprob : logprobs) outcome.loss -= static_cast<double>(logprob);
}

void Session::finish_answer(const Running& running, const engine::Event& event) {
  AnswerOutcome& outcome = outcomes_.answers[running.task.index];
  outcome.text = tokenizer_.decode(running.answer);
  outcome.ended = event.finish == engine::FinishReason::kStop;
  outcome.prompt_tokens = event.prompt_tokens;
  outcome.cached_tokens = event.cached_tokens;
  outcome.answer_tokens = std::ssize(running.answer);
  judge(outcome);
}

Result<Outcomes> Session::run(const std::function<void(int64_t, int64_t)>& progress) {
  const auto start = std::chrono::steady_clock::now();
  queue_all();
  // A few more requests than can run, so that a free slot never waits for this loop.
  const auto most_running = static_cast<size_t>(2 * engine_.memory().slots);
  while (!queue_.empty() || engine_.has_work()) {
    while (!queue_.empty() && running_.size() < most_running) {
      PS_RETURN_IF_ERROR(submit(std::move(queue_.front())));
      queue_.pop_front();
    }
    // NOTE: taking an event may add a request, and events live in the engine: none is read after the next step.
    const std::span<const engine::Event> view = engine_.step();
    const std::vector<engine::Event> events(view.begin(), view.end());
    for (const engine::Event& event : events) PS_RETURN_IF_ERROR(take(event));
    if (progress) progress(done_, total_);
  }
  outcomes_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return std::move(outcomes_);
}

}  // namespace

void judge(AnswerOutcome& outcome) {
  const AnswerCase& asked = *outcome.asked;
  const bool has_reply = !is_thinking(asked) || outcome.text.find(kEndOfThinking) != std::string::npos;
  outcome.is_exact = outcome.ended && outcome.text == asked.answer;
  outcome.is_right = outcome.ended && has_reply && reply_of(outcome.text) == reply_of(asked.answer);
  if (!asked.tools.empty()) outcome.tools = judge_calls(outcome);
}

std::vector<int32_t> window_tokens(const TextWindow& window, const text::Tokenizer& tokenizer) {
  std::vector<int32_t> ids = {tokenizer.bos()};
  tokenizer.encode(window.text, text::AddedTokens::kAsText, ids);
  if (window.ends) ids.push_back(tokenizer.eos());
  return ids;
}

int64_t answer_room(int64_t expected_tokens) noexcept { return expected_tokens + expected_tokens / 4 + 8; }

int64_t longest_sequence(const Suite& suite, const text::Tokenizer& tokenizer) {
  int64_t longest = 0;
  for (const TextWindow& window : suite.windows) {
    longest = std::max(longest, std::ssize(window_tokens(window, tokenizer)) + 1);
  }
  for (const AnswerCase& asked : suite.answers) {
    longest = std::max(
        longest, std::ssize(tokenizer.encode(asked.prompt)) + answer_room(std::ssize(tokenizer.encode(asked.answer))));
  }
  return longest;
}

Result<Outcomes> run_suite(const Suite& suite, const text::Tokenizer& tokenizer, engine::Engine& engine,
                           const RunOptions& options, const std::function<void(int64_t, int64_t)>& progress) {
  return Session(suite, tokenizer, engine, options).run(progress);
}

}  // namespace ps::apps::eval
