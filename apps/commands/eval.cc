// pagestate eval: what a model can do, measured through the engine on a suite of held-out cases.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "apps/commands/commands.h"
#include "apps/engine_options.h"
#include "apps/eval/report.h"
#include "apps/eval/run.h"
#include "apps/eval/suite.h"
#include "apps/eval/summary.h"
#include "apps/progress.h"
#include "base/macros.h"
#include "base/mapped_file.h"
#include "text/token_map.h"
#include "text/tokenizer.h"

namespace ps::apps {
namespace {

struct Options {
  std::string model;
  std::string suite;
  std::string json;
  std::string svg;
  std::string compare;
  MachineArguments machine;
  int64_t show = 0;
  bool warm = false;
  eval::Selection selection;
  EngineArguments engine;
};

eval::Settings settings_of(const Options& options, const engine::EngineOptions& engine, std::string_view backend) {
  const auto on = [](bool value) { return std::string(value ? "on" : "off"); };
  return {{"kv-cache-dtype", options.engine.kv_cache_dtype},
          {"index-cache-dtype", options.engine.index_cache_dtype},
          {"encoder-replay", on(engine.encoder_replay)},
          {"decoder-replay", on(engine.decoder_replay)},
          {"prompts", options.warm ? "from the prefix cache" : "computed"},
          {"page-tokens", std::to_string(engine.page_tokens)},
          {"max-sequences", std::to_string(engine.max_sequences)},
          {"token-budget", std::to_string(engine.token_budget)},
          {"long-prefill-tokens", std::to_string(engine.long_prefill_tokens)},
          {"backend", std::string(backend)}};
}

// Opened in the order that finds errors early.
struct Bench {
  checkpoint::Checkpoint checkpoint;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::unique_ptr<engine::Engine> engine;
  eval::ReportHead head;
};

// Contexts as long as the longest case; when warm, PAGEs for all that can come between a prompt and its repetition:
// twice as many requests as run at once wait (eval::run_suite), and as many again run or have just ended.
void size_memory(const eval::Suite& suite, const Bench& bench, bool is_warm, engine::EngineOptions& options) {
  if (options.max_context == 0) {
    options.max_context = std::min(eval::longest_sequence(suite, *bench.tokenizer),
                                   int64_t{bench.checkpoint.config().text_config.max_position_embeddings});
  }
  if (is_warm && options.page_tokens > 0) {
    const int64_t context_pages = (options.max_context + options.page_tokens - 1) / options.page_tokens;
    options.pages = 4 * options.max_sequences * context_pages;
  }
}

Result<std::unique_ptr<Bench>> open_bench(const Options& options, const eval::Suite& suite) {
  PS_TRY(const Machine machine, pick_machine(options.machine));
  PS_TRY(engine::EngineOptions engine_options, apps::engine_options(options.engine, machine));
  if (options.warm && !engine_options.prefix_cache) {
    return Status::invalid("--warm needs the prefix cache, which --no-prefix-cache turns off");
  }
  // Cold prompts are computed, so that a result does not depend on what ran before.
  engine_options.prefix_cache = options.warm;
  PS_TRY(checkpoint::Checkpoint checkpoint, open_checkpoint(options.model, machine));
  PS_TRY(auto tokenizer, text::Tokenizer::load(checkpoint.tokenizer_path()));
  std::unique_ptr<Bench> bench(new Bench{std::move(checkpoint), std::move(tokenizer), nullptr, {}});
  const checkpoint::TextConfig& text = bench->checkpoint.config().text_config;
  if (engine_options.memory_bytes == 0) size_memory(suite, *bench, options.warm, engine_options);
  std::vector<int32_t> classes;
  if (!text.engram_layer_ids.empty()) classes = text::engram_token_map(*bench->tokenizer).class_of;
  PS_TRY(bench->engine, engine::Engine::create(bench->checkpoint, std::move(classes), bench->tokenizer->never_sampled(),
                                               *machine.table, engine_options));
  PS_RETURN_IF_ERROR(load_weights(bench->checkpoint, machine, bench->engine->memory()));
  bench->head = {options.model, options.suite, suite.sha256, settings_of(options, engine_options, machine.table->name)};
  return bench;
}

// The folder's own name: pictures travel, paths do not.
std::string model_name(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).lexically_normal();
  return (folder.has_filename() ? folder : folder.parent_path()).filename().string();
}

void print_head(const eval::ReportHead& head, const eval::Suite& suite) {
  fmt::print("{} on {} ({} texts, {} answers)\n ", head.model, head.suite, suite.windows.size(), suite.answers.size());
  for (const auto& [name, value] : head.settings) fmt::print(" {}={}", name, value);
  fmt::print("\n\n");
}

Result<eval::Outcomes> run(const Bench& bench, const eval::Suite& suite, const Options& options) {
  ProgressBar bar("evaluating", "k prompt tokens", 1e3);
  return eval::run_suite(suite, *bench.tokenizer, *bench.engine, {.warm = options.warm},
                         [&](int64_t done, int64_t total) { bar.update(done, total); });
}

Status evaluate(Options options) {
  if (options.suite.empty()) options.suite = (std::filesystem::path(options.model) / "suite").string();
  std::optional<eval::Baseline> before;
  if (!options.compare.empty()) {
    PS_TRY(before, eval::read_report(options.compare).with("--compare"));
  }
  PS_TRY(eval::Suite suite, eval::read_suite(options.suite).with("--suite"));
  PS_RETURN_IF_ERROR(eval::select(suite, options.selection));
  const auto is_needle = [](const eval::AnswerCase& answer) { return answer.needle_tokens > 0; };
  if (!options.svg.empty() && std::none_of(suite.answers.begin(), suite.answers.end(), is_needle)) {
    return Status::invalid("--svg: the selection has no needle cases to draw");
  }
  PS_TRY(const auto bench, open_bench(options, suite));
  print_head(bench->head, suite);
  std::fflush(stdout);

  PS_TRY(const eval::Outcomes outcomes, run(*bench, suite, options));
  const eval::Summary summary = eval::summarize(outcomes);
  fmt::print("{}", eval::to_text(summary));
  if (options.show > 0) fmt::print("\n{}", eval::show_answers(outcomes, options.show));
  std::optional<eval::Comparison> comparison;
  if (before) {
    PS_TRY(comparison, eval::compare(*before, bench->head, outcomes).with("--compare " + options.compare));
    fmt::print("\n{}", eval::to_text(*comparison, *before, bench->head));
  }
  const engine::EngineCounters counters = bench->engine->counters();
  int64_t cached = 0;
  int64_t prompts = 0;
  for (const eval::AnswerOutcome& answer : outcomes.answers) {
    cached += answer.cached_tokens;
    prompts += answer.prompt_tokens;
  }
  if (options.warm) fmt::print("\n{} of {} prompt tokens came from the prefix cache", cached, prompts);
  fmt::print("\n{:.1f} s, {} prompt rows, {} answer tokens\n", outcomes.seconds, counters.prompt_rows,
             counters.answer_tokens);
  if (!options.svg.empty()) {
    PS_RETURN_IF_ERROR(
        write_file(options.svg, eval::heat_map_svg(summary.needles, "Needle recall: " + model_name(options.model))));
  }
  if (options.json.empty()) return {};
  return write_file(options.json, eval::report_json(bench->head, outcomes, summary, comparison ? &*comparison : nullptr,
                                                    before ? &*before : nullptr));
}

void declare(CLI::App& command, Options& options) {
  command.add_option("--model", options.model, "Checkpoint folder")->required();
  command.add_option("--suite", options.suite, "Folder of *.jsonl files, or one file; default: MODEL/suite");
  command.add_option("--parts", options.selection.parts, "Of text, skills, needle; default: all")->delimiter(',');
  command.add_option("--skills", options.selection.skills, "Only these skills")->delimiter(',');
  command.add_option("--needle-tokens", options.selection.needle_tokens, "Only needles in texts of these lengths")
      ->delimiter(',');
  command
      .add_option("--limit", options.selection.limit,
                  "At most so many texts, answers of a skill, needles of a length and depth; 0: all")
      ->capture_default_str();
  command.add_flag("--warm", options.warm,
                   "Send each prompt twice and count the second answer, whose prompt comes from the prefix cache");
  command.add_option("--show", options.show, "Print so many answers of each skill, wrong ones first")
      ->capture_default_str();
  command.add_option("--json", options.json, "Write a report with every case to this file");
  command.add_option("--svg", options.svg, "Draw needle recall into this file");
  command.add_option("--compare", options.compare,
                     "A report of an earlier run (--json): differences on the same cases, with paired intervals");
  declare_engine_options(command, options.engine);
  declare_machine_options(command, options.machine);
}

}  // namespace

void add_eval(CLI::App& program, Work& chosen) {
  auto options = std::make_shared<Options>();
  options->engine.max_sequences = 16;
  options->engine.token_budget = 2048;
  CLI::App* command =
      program.add_subcommand("eval", "Measure a model: perplexity, exact answers, tool calls, recall of hidden facts");
  declare(*command, *options);
  command->callback([options, &chosen] { chosen = [options] { return evaluate(*options); }; });
}

}  // namespace ps::apps
