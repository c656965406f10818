// What the service needs of an engine, so that tests can put another one in its place.
// Threading: check() and memory() from any thread; the rest from the engine thread only.
#pragma once

#include <optional>
#include <span>

#include "engine/engine.h"

namespace ps::server {

class EnginePort {
 public:
  virtual ~EnginePort() = default;
  [[nodiscard]] virtual Status check(const engine::Request& request) const = 0;
  [[nodiscard]] virtual const engine::MemoryPlan& memory() const = 0;
  [[nodiscard]] virtual Result<engine::SequenceId> add(engine::Request request) = 0;
  virtual void abort(engine::SequenceId id) = 0;
  [[nodiscard]] virtual bool has_work() const = 0;
  [[nodiscard]] virtual std::span<const engine::Event> step() = 0;
  [[nodiscard]] virtual std::optional<engine::PromptProgress> progress(engine::SequenceId id) const = 0;
  [[nodiscard]] virtual engine::EngineCounters counters() const = 0;
  [[nodiscard]] virtual engine::EngineView look() const { return {}; }
};

// The engine itself. REQUIRES: it outlives the port.
class LocalEngine final : public EnginePort {
 public:
  explicit LocalEngine(engine::Engine& engine) : engine_(engine) {}
  [[nodiscard]] Status check(const engine::Request& request) const override { return engine_.check(request); }
  [[nodiscard]] const engine::MemoryPlan& memory() const override { return engine_.memory(); }
  [[nodiscard]] Result<engine::SequenceId> add(engine::Request request) override {
    return engine_.add(std::move(request));
  }
  void abort(engine::SequenceId id) override { engine_.abort(id); }
  [[nodiscard]] bool has_work() const override { return engine_.has_work(); }
  [[nodiscard]] std::span<const engine::Event> step() override { return engine_.step(); }
  [[nodiscard]] std::optional<engine::PromptProgress> progress(engine::SequenceId id) const override {
    return engine_.progress(id);
  }
  [[nodiscard]] engine::EngineCounters counters() const override { return engine_.counters(); }
  [[nodiscard]] engine::EngineView look() const override { return engine_.look(); }

 private:
  engine::Engine& engine_;
};

}  // namespace ps::server
