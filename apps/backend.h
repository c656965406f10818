// Which implementation of the ops a command runs on.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "base/status.h"
#include "ops/table.h"

namespace ps::apps {

struct BackendArguments {
  std::string backend = "auto";  // auto, cpu or ref
  std::string isa = "auto";      // of the CPU backend: auto, avx2, avx512 or amx
};

// Declares --backend and --isa on `command`; `arguments` holds the defaults.
void declare_backend_options(CLI::App& command, BackendArguments& arguments);

// The op table that the arguments name: "auto" is the CPU backend, and there the widest instruction set of the machine.
// An unknown name is invalid, a set that the machine lacks unsupported, and so is a set for a backend that has none to
// choose from; all name the legal values.
[[nodiscard]] Result<const ops::OpTable*> pick_backend(const BackendArguments& arguments);

}  // namespace ps::apps
