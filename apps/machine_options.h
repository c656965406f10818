// How a command uses the machine: which implementation of the ops, how many threads, where weights lie. The options of
// every command that opens a model.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "apps/backend.h"
#include "apps/weights.h"
#include "base/status.h"
#include "ops/table.h"

namespace ps::apps {

struct MachineArguments {
  BackendArguments backend;
  int threads = 0;                   // 0: one per physical core of the CPU set
  std::string pin_threads = "auto";  // auto, on or off
  std::string weights = "map";       // map or copy
};

struct Machine {
  const ops::OpTable* table = nullptr;
  int threads = 1;
  bool pin_threads = false;
  WeightMode weights = WeightMode::kMap;
};

void declare_machine_options(CLI::App& command, MachineArguments& arguments);

// invalid or unsupported, naming the option and its legal values.
[[nodiscard]] Result<Machine> pick_machine(const MachineArguments& arguments);

}  // namespace ps::apps
