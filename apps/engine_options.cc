#include "apps/engine_options.h"

#include <fmt/format.h>

#include <charconv>

#include "apps/units.h"
#include "base/cpu_info.h"
#include "base/macros.h"

namespace ps::apps {
namespace {

// A plain number below 1 is a share of the machine's memory.
Result<int64_t> parse_memory(const std::string& text) {
  double share = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), share);
  if (parsed.ec == std::errc{} && parsed.ptr == text.data() + text.size() && share > 0 && share < 1) {
    return static_cast<int64_t>(share * static_cast<double>(cpu_info().memory_bytes));
  }
  return parse_bytes(text).with("--memory (or a fraction of the machine's memory, 0 to 1)");
}

}  // namespace

void declare_engine_options(CLI::App& command, EngineArguments& arguments) {
  command.add_option("--kv-cache-dtype", arguments.kv_cache_dtype, "bf16 or fp4 (packed); equal results")
      ->capture_default_str();
  command.add_option("--index-cache-dtype", arguments.index_cache_dtype, "fp4 (official) or fp8 (approximates it)")
      ->capture_default_str();
  command.add_option("--memory", arguments.memory,
                     "For PAGEs, STATE and scratch: 8GiB, or a fraction of the machine's memory");
  command.add_option("--page-tokens", arguments.page_tokens, "Tokens of one PAGE")->capture_default_str();
  command.add_option("--max-sequences", arguments.max_sequences, "Sequences that run at once")->capture_default_str();
  command.add_option("--token-budget", arguments.token_budget, "Rows of one step")->capture_default_str();
  command
      .add_option("--long-prefill-tokens", arguments.long_prefill_tokens,
                  "Most prompt tokens of one sequence in a step; 0: no cap")
      ->capture_default_str();
  command.add_option("--max-context", arguments.max_context, "Tokens of one sequence; 0: what fits")
      ->capture_default_str();
  command
      .add_option("--image-interval-tokens", arguments.image_interval_tokens,
                  "Without encoder replay: distance of STATE images in a long prompt; 0: only at its end")
      ->capture_default_str();
  command.add_flag("--no-encoder-swa-bounded-replay", arguments.no_encoder_replay,
                   "A prefix hit restores an exact image of STATE instead of rebuilding windows");
  command.add_flag("--no-decoder-swa-bounded-replay", arguments.no_decoder_replay, "Every prompt row runs every layer");
  command.add_flag("--no-prefix-cache", arguments.no_prefix_cache, "Compute every prompt anew");
}

Result<engine::EngineOptions> engine_options(const EngineArguments& arguments, const Machine& machine) {
  engine::EngineOptions options;
  PS_TRY(options.format.main, cache::parse_main_format(arguments.kv_cache_dtype));
  PS_TRY(options.format.index, cache::parse_index_format(arguments.index_cache_dtype));
  if (!arguments.memory.empty()) {
    PS_TRY(options.memory_bytes, parse_memory(arguments.memory));
  }
  options.page_tokens = arguments.page_tokens;
  options.max_sequences = arguments.max_sequences;
  options.token_budget = arguments.token_budget;
  options.long_prefill_tokens = arguments.long_prefill_tokens;
  options.max_context = arguments.max_context;
  options.image_interval_tokens = arguments.image_interval_tokens;
  options.encoder_replay = !arguments.no_encoder_replay;
  options.decoder_replay = !arguments.no_decoder_replay;
  options.prefix_cache = !arguments.no_prefix_cache;
  options.threads = machine.threads;
  options.pin_threads = machine.pin_threads;
  return options;
}

}  // namespace ps::apps
