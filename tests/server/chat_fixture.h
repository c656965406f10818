// A server whose model says what a test tells it to, for the chat surfaces: what a client sent becomes a prompt that
// can be looked at, and what the model "wrote" becomes an answer.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/server/server_fixture.h"

namespace ps::tests {

// Keeps the requests that reach a scripted engine.
class WatchedEngine final : public server::EnginePort {
 public:
  server::test::ScriptedEngine script;

  [[nodiscard]] Status check(const engine::Request& request) const override { return script.check(request); }
  [[nodiscard]] const engine::MemoryPlan& memory() const override { return script.memory(); }
  [[nodiscard]] Result<engine::SequenceId> add(engine::Request request) override {
    const std::lock_guard lock(mutex_);
    requests_.push_back(request);
    return script.add(std::move(request));
  }
  void abort(engine::SequenceId id) override { script.abort(id); }
  [[nodiscard]] bool has_work() const override { return script.has_work(); }
  [[nodiscard]] std::span<const engine::Event> step() override { return script.step(); }
  [[nodiscard]] std::optional<engine::PromptProgress> progress(engine::SequenceId id) const override {
    return script.progress(id);
  }
  [[nodiscard]] engine::EngineCounters counters() const override { return script.counters(); }

  [[nodiscard]] std::vector<engine::Request> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<engine::Request> requests_;
};

class ChatServer {
 public:
  // The model answers every prompt with `says`, cut into tokens, and ends.
  explicit ChatServer(std::string_view says, const server::ServerOptions& options = {}) {
    engine.script.max_context = 1 << 20;
    this->says(says);
    running.emplace(engine, server::test::small_tokenizer(), options);
  }
  // Of the next request.
  void says(std::string_view text) { engine.script.answer = server::test::small_tokenizer()->encode(text); }

  Reply post_json(const std::string& path, const std::string& fields) {
    return running->ask(post(path, R"({"model":"m",)" + fields + "}"));
  }
  // One question; more fields may follow.
  Reply chat(const std::string& more = {}) {
    return post_json("/v1/chat/completions",
                     R"("messages":[{"role":"user","content":"Hello"}],"max_tokens":5000)" + more);
  }
  Reply messages(const std::string& more = {}) {
    return post_json("/v1/messages", R"("messages":[{"role":"user","content":"Hello"}],"max_tokens":5000)" + more);
  }
  Reply responses(const std::string& more = {}) {
    return post_json("/v1/responses", R"("input":"Hello","max_output_tokens":5000)" + more);
  }
  // What the model was given last.
  [[nodiscard]] std::string prompt() const {
    const auto requests = engine.requests();
    return requests.empty() ? "no request" : server::test::small_tokenizer()->decode(requests.back().prompt);
  }

  WatchedEngine engine;
  std::optional<RunningServer> running;
};

inline const std::string kOff = R"(,"thinking":{"type":"disabled"})";
inline const std::string kTool =
    R"(,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","required":[]}}}])";
inline const std::string kAnthropicTool = R"(,"tools":[{"name":"f","input_schema":{"type":"object"}}])";
inline const std::string kFlatTool = R"(,"tools":[{"type":"function","name":"f","parameters":{"type":"object"}}])";

// A block with one call of f(x).
inline std::string block_of(const std::string& value) {
  return "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"x\" string=\"true\">" + value +
         "</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";
}

// Follows keys and indices; null where the path ends early.
inline JsonValue at(const JsonValue& value, const std::vector<std::string>& path) {
  const JsonValue* here = &value;
  for (const std::string& step : path) {
    if (here->is_array()) {
      const size_t index = std::stoul(step);
      if (index >= here->items().size()) return {};
      here = &here->items()[index];
    } else {
      here = here->find(step);
      if (here == nullptr) return {};
    }
  }
  return *here;
}
inline std::string text_at(const Reply& reply, const std::vector<std::string>& path) {
  const JsonValue value = at(reply.json(), path);
  return value.is_string() || value.is_number() ? value.text() : "(" + std::string(value.kind_name()) + ")";
}

// One answer as all surfaces give it, streamed or not.
struct Answer {
  std::string reasoning;
  std::string content;
  std::vector<std::string> calls;  // name and arguments
  std::string finish;
  bool operator==(const Answer&) const = default;
};

inline Answer answer_of(const JsonValue& body) {
  Answer answer;
  const JsonValue message = at(body, {"choices", "0", "message"});
  if (const JsonValue* text = message.find("reasoning_content")) answer.reasoning = text->text();
  if (const JsonValue* text = message.find("content")) answer.content = text->text();
  if (const JsonValue* calls = message.find("tool_calls")) {
    for (const JsonValue& call : calls->items()) {
      answer.calls.push_back(at(call, {"function", "name"}).text() + at(call, {"function", "arguments"}).text());
    }
  }
  answer.finish = at(body, {"choices", "0", "finish_reason"}).text();
  return answer;
}

// Of the chunks of a stream with one choice.
inline Answer answer_of(const std::vector<JsonValue>& chunks) {
  Answer answer;
  for (const JsonValue& chunk : chunks) {
    const JsonValue delta = at(chunk, {"choices", "0", "delta"});
    const JsonValue* reasoning = delta.find("reasoning_content");
    const JsonValue* content = delta.find("content");
    if (reasoning != nullptr && reasoning->is_string()) answer.reasoning += reasoning->text();
    if (content != nullptr && content->is_string()) answer.content += content->text();
    const JsonValue call = at(delta, {"tool_calls", "0", "function"});
    if (call.find("name") != nullptr) answer.calls.push_back(call.find("name")->text());
    if (call.find("arguments") != nullptr) answer.calls.back() += call.find("arguments")->text();
    const JsonValue finish = at(chunk, {"choices", "0", "finish_reason"});
    if (finish.is_string()) answer.finish = finish.text();
  }
  return answer;
}

}  // namespace ps::tests
