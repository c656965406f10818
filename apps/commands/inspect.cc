// pagestate inspect: what a config.json implies before any weight is read, and whether the shards beside it agree.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>

#include "apps/commands/commands.h"
#include "apps/inspect_report.h"
#include "apps/units.h"
#include "base/log.h"
#include "base/macros.h"

namespace ps::apps {
namespace {

struct Options {
  std::string model;
  std::string tokenizer;
  std::string memory = "64GiB";
  std::string kv_cache_dtype = "bf16";
  std::string index_cache_dtype = "fp4";
  int64_t page_tokens = 256;
  bool is_json = false;
};

Status run(const Options& options) {
  InspectRequest request;
  request.model = options.model;
  request.tokenizer = options.tokenizer;
  request.page_tokens = options.page_tokens;
  PS_TRY(request.format.main, cache::parse_main_format(options.kv_cache_dtype));
  PS_TRY(request.format.index, cache::parse_index_format(options.index_cache_dtype));
  Result<int64_t> memory = parse_bytes(options.memory).with("--memory");
  if (!memory.ok()) return std::move(memory).status();
  request.memory_bytes = memory.value();
  PS_TRY(const InspectReport report, inspect(request));
  for (const std::string& field : report.config.unknown_fields) {
    log_warning(fmt::format("config=\"{}\" unknown_field={} effect=none", report.config_path.string(), field));
  }
  fmt::print("{}", options.is_json ? to_json(report) : to_text(report));
  std::fflush(stdout);
  return report.verdict();
}

}  // namespace

void add_inspect(CLI::App& program, Work& chosen) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      program.add_subcommand("inspect", "What fits where: layers, weights, cache bytes, Engram addressing");
  command->add_option("model", options->model, "Checkpoint folder, or a config.json alone: no weights are needed")
      ->required();
  command->add_flag("--json", options->is_json, "One JSON object instead of tables");
  command->add_option("--memory", options->memory, "For the cache alone, e.g. 64GiB: how many tokens fit")
      ->capture_default_str();
  command->add_option("--kv-cache-dtype", options->kv_cache_dtype, "bf16 or fp4 (packed), for the PAGE details")
      ->capture_default_str();
  command->add_option("--index-cache-dtype", options->index_cache_dtype, "fp4 (official) or fp8, for the PAGE details")
      ->capture_default_str();
  command->add_option("--page-tokens", options->page_tokens, "Tokens of one PAGE")->capture_default_str();
  command->add_option("--tokenizer", options->tokenizer,
                      "tokenizer.json to check the Engram token classes with; default: the one beside config.json");
  command->footer(
      "A folder with shards is also held against the schema, tensor by tensor; a mismatch is reported and exits with "
      "1.\n"
      "JSON: model, layers[], roles, owners, index_sources, candidate_source, parameters{total, per_token},\n"
      "checkpoint{tensors, bytes, shards, groups[], components[], verified}, cache{page_tokens, memory_bytes, "
      "formats[],\n"
      "owners[]}, engram{compressed_vocab_size, layers[], token_map}. docs/inspect.md describes every key.");
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace ps::apps
