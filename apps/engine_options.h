// The command-line options that every command with an engine shares.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "apps/machine_options.h"
#include "base/status.h"
#include "engine/planner.h"

namespace ps::apps {

struct EngineArguments {
  std::string kv_cache_dtype = "bf16";
  std::string index_cache_dtype = "fp4";
  std::string memory;  // "8GiB", "500MB", or a fraction of the machine's, "0.5"; empty: as max-context says
  int64_t page_tokens = 256;
  int64_t max_sequences = 8;
  int64_t token_budget = 1024;
  int64_t long_prefill_tokens = 0;
  int64_t max_context = 0;
  int64_t image_interval_tokens = 8192;
  bool no_encoder_replay = false;
  bool no_decoder_replay = false;
  bool no_prefix_cache = false;
};

void declare_engine_options(CLI::App& command, EngineArguments& arguments);

// invalid, naming the option and its legal values.
[[nodiscard]] Result<engine::EngineOptions> engine_options(const EngineArguments& arguments, const Machine& machine);

}  // namespace ps::apps
