// Servers in this process: on the synthetic checkpoint `nano`, or on an engine that says what it is told to.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

#include "checkpoint/checkpoint.h"
#include "cpu/table.h"
#include "engine/engine.h"
#include "server/server.h"
#include "server/testing.h"
#include "tests/server/client.h"
#include "text/token_map.h"

namespace ps::tests {

struct Nano {
  checkpoint::Checkpoint checkpoint;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::vector<int32_t> classes;
};

inline const Nano& nano() {
  static const Nano opened = [] {
    auto checkpoint = checkpoint::Checkpoint::open(PAGESTATE_NANO);
    if (!checkpoint.ok()) throw std::runtime_error(checkpoint.status().to_string());
    auto tokenizer = text::Tokenizer::load(checkpoint->tokenizer_path()).value();
    auto classes = text::engram_token_map(*tokenizer).class_of;
    return Nano{std::move(checkpoint).value(), std::move(tokenizer), std::move(classes)};
  }();
  return opened;
}

inline engine::EngineOptions small_engine() {
  engine::EngineOptions options;
  options.page_tokens = 64;
  options.max_sequences = 8;
  options.token_budget = 512;
  options.max_context = 2048;
  options.pages = 256;
  return options;
}

// Waits until `holds`; false when it does not come to that.
template <typename Condition>
bool wait_until(Condition holds, int seconds = 60) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

class RunningServer {
 public:
  RunningServer(server::EnginePort& engine, std::shared_ptr<const text::Tokenizer> tokenizer,
                server::ServerOptions options = {}) {
    server::ModelInfo model{{"test-model", "other/name"}, 1, engine.memory().max_context, 512};
    auto made = server::Server::create(options, engine, std::move(tokenizer), std::move(model));
    if (!made.ok()) throw std::runtime_error(made.status().to_string());
    server = std::move(made).value();
    server->start();
  }
  [[nodiscard]] Client client(int receive_buffer = 0) const { return Client(server->port(), receive_buffer); }
  [[nodiscard]] Reply ask(const std::string& request) const { return client().ask(request); }

  std::unique_ptr<server::Server> server;
};

class NanoServer {
 public:
  explicit NanoServer(server::ServerOptions options = {},
                      const engine::EngineOptions& engine_options = small_engine()) {
    auto made = engine::Engine::create(nano().checkpoint, nano().classes, nano().tokenizer->never_sampled(),
                                       cpu::table(), engine_options);
    if (!made.ok()) throw std::runtime_error(made.status().to_string());
    engine_ = std::move(made).value();
    port_.emplace(*engine_);
    options.service.max_sequences = engine_options.max_sequences;
    running_.emplace(*port_, nano().tokenizer, options);
  }
  [[nodiscard]] Client client(int receive_buffer = 0) const { return running_->client(receive_buffer); }
  [[nodiscard]] Reply ask(const std::string& request) const { return running_->ask(request); }
  [[nodiscard]] server::Server& server() { return *running_->server; }
  [[nodiscard]] int64_t pages() const { return engine_->memory().pages; }
  // Whether nothing runs or waits, and every PAGE is free again.
  [[nodiscard]] bool is_at_rest() {
    const server::EngineStatus status = server().status();
    return status.running == 0 && status.waiting == 0 && status.free_pages() == pages();
  }
  // Stops the server, so that the engine may be looked at.
  [[nodiscard]] const engine::Engine& stopped_engine() {
    running_.reset();
    return *engine_;
  }

 private:
  std::unique_ptr<engine::Engine> engine_;
  std::optional<server::LocalEngine> port_;
  std::optional<RunningServer> running_;
};

}  // namespace ps::tests
