// Which implementation of the ops a command runs on.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "base/status.h"
#include "ops/table.h"

namespace ps::apps {

// Declares --backend on `command`; `name` holds the default.
void declare_backend_option(CLI::App& command, std::string& name);

// "auto": what the environment variable PS_FORCE_ISA names, or the widest instruction set of this machine. Otherwise
// "ref", "avx2", "avx512" or "amx". An unknown name is invalid, a set that the machine lacks unsupported; both name the
// legal values.
[[nodiscard]] Result<const ops::OpTable*> pick_backend(const std::string& name);

}  // namespace ps::apps
