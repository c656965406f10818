// The scheduler's acceptance scenarios on a real checkpoint, each against uninterrupted runs, bit for bit (runtime.md
// 9.1).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "engine/planner.h"
#include "ops/table.h"

namespace ps::apps {

struct ScenarioResult {
  std::string name;
  std::string settings;  // "kv=bf16 index=fp4 replay=off"
  bool passed = false;
  std::string detail;  // what differed; empty when passed
  double seconds = 0;
};

struct ValidationSetup {
  const checkpoint::Checkpoint* checkpoint = nullptr;
  const ops::OpTable* table = nullptr;
  std::vector<int32_t> token_classes;
  int64_t page_tokens = 0;  // a PAGE no shorter than the window, so that every setting is legal
  int threads = 1;
  bool pin_threads = false;
};

// Runs every scenario under every cache format and both replay settings; `report` sees each result as it comes.
[[nodiscard]] Status run_validation(const ValidationSetup& setup,
                                    const std::function<void(const ScenarioResult&)>& report);

}  // namespace ps::apps
