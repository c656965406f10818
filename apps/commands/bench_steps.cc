// pagestate bench decode and bench prefill: speed against the floor that the same machine sets in the same run.
#include <fmt/format.h>

#include <memory>

#include "apps/commands/commands.h"
#include "apps/machine_options.h"
#include "apps/step_bench.h"
#include "apps/units.h"
#include "base/json.h"
#include "base/macros.h"
#include "text/token_map.h"
#include "text/tokenizer.h"

namespace ps::apps {
namespace {

struct Options {
  std::string model;
  bool is_decode = false;
  bool json = false;
  MachineArguments machine;
  std::string kv_cache_dtype = "bf16";
  std::string index_cache_dtype = "fp4";
  StepBenchOptions bench;
};

void print_text(const Options& options, const StepBenchResult& result) {
  const auto line = [](const char* label, const std::string& value) { fmt::print("{:<20}{}\n", label, value); };
  line("run", fmt::format("{}, {} sequences, {} {}", options.is_decode ? "decode" : "prefill", options.bench.batch,
                          grouped(options.bench.context),
                          options.is_decode ? "tokens of synthetic context (random rows, no prompt was run)"
                                            : "random tokens each"));
  line("threads", fmt::format("{}{}", options.bench.threads, options.bench.pin_threads ? ", pinned" : ""));
  line("read bandwidth", fmt::format("{:.1f} GB/s", result.read_bytes_per_second * 1e-9));
  line("matrix peak", fmt::format("{:.1f} GFLOP/s ({})", result.flops_per_second * 1e-9, result.peak_unit));
  line("needed", fmt::format("{:.3f} GB, {:.2f} GFLOP; {:.1f} distinct experts per layer", result.needed_bytes * 1e-9,
                             result.needed_flops * 1e-9, result.distinct_experts));
  line("time", fmt::format("{:.2f} ms (median of {})", result.seconds * 1e3, result.all_seconds.size()));
  line("floor", fmt::format("{:.2f} ms", result.floor_seconds * 1e3));
  line("tokens per second",
       fmt::format("{:.2f} of {:.2f} at the floor", result.tokens_per_second(), result.floor_tokens_per_second()));
  line("ratio", fmt::format("{:.3f}", result.ratio));
  if (!result.op_table.empty()) fmt::print("\n{}", result.op_table);
}

void print_json(const Options& options, const StepBenchResult& result) {
  JsonWriter json;
  json.begin_object().key("run").string(options.is_decode ? "decode" : "prefill");
  json.key("context").integer(options.bench.context).key("batch").integer(options.bench.batch);
  json.key("synthetic_context").boolean(options.is_decode).key("threads").integer(options.bench.threads);
  json.key("read_bytes_per_second").real(result.read_bytes_per_second);
  json.key("flops_per_second").real(result.flops_per_second).key("peak_unit").string(result.peak_unit);
  json.key("needed_bytes").real(result.needed_bytes).key("needed_flops").real(result.needed_flops);
  json.key("distinct_experts").real(result.distinct_experts).key("seconds").real(result.seconds);
  json.key("floor_seconds").real(result.floor_seconds);
  json.key("tokens_per_second").real(result.tokens_per_second());
  json.key("floor_tokens_per_second").real(result.floor_tokens_per_second()).key("ratio").real(result.ratio);
  json.end_object();
  fmt::print("{}\n", json.text());
}

Status bench_steps(Options options) {
  PS_TRY(options.bench.format.main, cache::parse_main_format(options.kv_cache_dtype));
  PS_TRY(options.bench.format.index, cache::parse_index_format(options.index_cache_dtype));
  PS_TRY(const Machine machine, pick_machine(options.machine));
  options.bench.threads = machine.threads;
  options.bench.pin_threads = machine.pin_threads;
  PS_TRY(const checkpoint::Checkpoint checkpoint, open_checkpoint(options.model, machine));
  std::vector<int32_t> classes;
  if (!checkpoint.config().text_config.engram_layer_ids.empty()) {
    PS_TRY(const auto tokenizer, text::Tokenizer::load(checkpoint.tokenizer_path()));
    classes = text::engram_token_map(*tokenizer).class_of;
  }
  PS_RETURN_IF_ERROR(load_weights(checkpoint, machine, 0));
  PS_TRY(const StepBenchResult result, options.is_decode
                                           ? bench_decode(checkpoint, classes, *machine.table, options.bench)
                                           : bench_prefill(checkpoint, classes, *machine.table, options.bench));
  options.json ? print_json(options, result) : print_text(options, result);
  return {};
}

}  // namespace

void add_bench_steps(CLI::App& bench, bool is_decode, Work& chosen) {
  auto options = std::make_shared<Options>();
  options->is_decode = is_decode;
  CLI::App* command = bench.add_subcommand(is_decode ? "decode" : "prefill",
                                           is_decode ? "Steps of one token per sequence, against the memory floor"
                                                     : "Whole prompts, against the matrix peak");
  command->add_option("--model", options->model, "Checkpoint folder")->required();
  command
      ->add_option("--context", options->bench.context,
                   is_decode ? "Tokens before the step; their cache rows are synthetic" : "Tokens of a prompt")
      ->capture_default_str();
  command->add_option("--batch", options->bench.batch, "Sequences")->capture_default_str();
  if (!is_decode) command->add_option("--chunk", options->bench.chunk, "Rows of one forward")->capture_default_str();
  command->add_option("--repeats", options->bench.repeats, "Measured runs; their median counts")->capture_default_str();
  command->add_option("--kv-cache-dtype", options->kv_cache_dtype, "bf16 or fp4 (packed)")->capture_default_str();
  command->add_option("--index-cache-dtype", options->index_cache_dtype, "fp4 or fp8")->capture_default_str();
  command->add_option("--page-tokens", options->bench.page_tokens, "Tokens of one PAGE")->capture_default_str();
  command->add_flag("--ops", options->bench.profile_ops, "Also the seconds and share of every op");
  command->add_flag("--json", options->json, "One JSON object instead of text");
  declare_machine_options(*command, options->machine);
  command->callback([options, &chosen] { chosen = [options] { return bench_steps(*options); }; });
}

}  // namespace ps::apps
