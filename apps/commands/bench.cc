// pagestate bench, and bench serve: a synthetic open-loop load against the engine in process.
#include <fmt/format.h>

#include <memory>

#include "apps/commands/commands.h"
#include "apps/engine_options.h"
#include "apps/load_generator.h"
#include "apps/units.h"
#include "base/json.h"
#include "base/macros.h"
#include "text/token_map.h"
#include "text/tokenizer.h"

namespace ps::apps {
namespace {

struct Options {
  std::string model;
  bool json = false;
  MachineArguments machine;
  EngineArguments engine;
  LoadOptions load;
};

void print_table(const LoadResult& result) {
  const auto line = [](const char* label, const std::string& value) { fmt::print("{:<28}{}\n", label, value); };
  const auto spread = [](const Percentiles& p) {
    return fmt::format("p50 {:.1f}  p90 {:.1f}  p99 {:.1f}", p.p50, p.p90, p.p99);
  };
  line("requests", grouped(result.requests));
  line("seconds", fmt::format("{:.2f}", result.seconds));
  line("prompt tokens",
       fmt::format("{}, {:.1f} % from the prefix cache", grouped(result.prompt_tokens), 100 * result.hit_rate()));
  line("prompt rows computed", fmt::format("{}, {:.1f} per second", grouped(result.computed_rows),
                                           static_cast<double>(result.computed_rows) / result.seconds));
  line("answer tokens", fmt::format("{}, {:.1f} per second", grouped(result.answer_tokens),
                                    static_cast<double>(result.answer_tokens) / result.seconds));
  line("time to first token, ms", spread(result.time_to_first_token_ms));
  line("between tokens, ms", spread(result.inter_token_ms));
  line("PAGEs in use",
       fmt::format("mean {:.1f}, most {} of {}", result.mean_pages_used, result.most_pages_used, result.pages));
  line("steps, preemptions", fmt::format("{}, {}", grouped(result.steps), grouped(result.preemptions)));
}

void print_json(const LoadResult& result) {
  JsonWriter json;
  const auto spread = [&](const char* key, const Percentiles& p) {
    json.key(key).begin_object().key("p50").real(p.p50).key("p90").real(p.p90).key("p99").real(p.p99).end_object();
  };
  json.begin_object().key("requests").integer(result.requests).key("seconds").real(result.seconds);
  json.key("prompt_tokens").integer(result.prompt_tokens).key("cached_tokens").integer(result.cached_tokens);
  json.key("hit_rate").real(result.hit_rate()).key("prompt_rows_computed").integer(result.computed_rows);
  json.key("answer_tokens").integer(result.answer_tokens).key("steps").integer(result.steps);
  json.key("preemptions").integer(result.preemptions);
  spread("time_to_first_token_ms", result.time_to_first_token_ms);
  spread("inter_token_ms", result.inter_token_ms);
  json.key("pages").begin_object().key("total").integer(result.pages).key("most_used").integer(result.most_pages_used);
  json.key("mean_used").real(result.mean_pages_used).end_object().end_object();
  fmt::print("{}\n", json.text());
}

Status bench_serve(const Options& options) {
  PS_TRY(const Machine machine, pick_machine(options.machine));
  PS_TRY(const engine::EngineOptions engine_options, apps::engine_options(options.engine, machine));
  PS_TRY(const checkpoint::Checkpoint checkpoint, open_checkpoint(options.model, machine));
  std::vector<int32_t> classes;
  if (!checkpoint.config().text_config.engram_layer_ids.empty()) {
    PS_TRY(const auto tokenizer, text::Tokenizer::load(checkpoint.tokenizer_path()));
    classes = text::engram_token_map(*tokenizer).class_of;
  }
  PS_TRY(const auto engine, engine::Engine::create(checkpoint, std::move(classes), {}, *machine.table, engine_options));
  if (!options.json) fmt::print("{}\n", engine::describe(engine->memory()));
  PS_RETURN_IF_ERROR(load_weights(checkpoint, machine, engine->memory()));
  PS_TRY(const LoadResult result, run_load(*engine, checkpoint.config().text_config.vocab_size, options.load));
  options.json ? print_json(result) : print_table(result);
  return {};
}

}  // namespace

void add_bench(CLI::App& program, Work& chosen) {
  auto options = std::make_shared<Options>();
  // Short requests and small PAGEs: the defaults show prefix hits on a small synthetic checkpoint.
  options->engine.page_tokens = 32;
  options->engine.token_budget = 512;
  CLI::App* bench = program.add_subcommand("bench", "Measure the engine");
  bench->require_subcommand(1);
  for (const bool is_decode : {true, false}) add_bench_steps(*bench, is_decode, chosen);
  CLI::App* serve =
      bench->add_subcommand("serve", "A synthetic open-loop load: throughput, latencies, hit rate, PAGEs");
  serve->add_option("--model", options->model, "Checkpoint folder")->required();
  serve->add_option("--requests", options->load.requests, "How many")->capture_default_str();
  serve->add_option("--rate", options->load.rate, "Arrivals per second; 0: all at once")->capture_default_str();
  serve->add_option("--prompt-tokens", options->load.prompt_tokens, "Mean of a prompt's own part")
      ->capture_default_str();
  serve->add_option("--answer-tokens", options->load.answer_tokens, "Mean length of an answer")->capture_default_str();
  serve->add_option("--shared-share", options->load.shared_share, "Share of requests that begin with a common prefix")
      ->capture_default_str();
  serve->add_option("--prefixes", options->load.prefixes, "Number of common prefixes")->capture_default_str();
  serve->add_option("--prefix-tokens", options->load.prefix_tokens, "Tokens of a common prefix")->capture_default_str();
  serve->add_option("--seed", options->load.seed, "Of the load")->capture_default_str();
  serve->add_flag("--json", options->json, "One JSON object instead of a table");
  declare_engine_options(*serve, options->engine);
  declare_machine_options(*serve, options->machine);
  serve->callback([options, &chosen] { chosen = [options] { return bench_serve(*options); }; });
}

}  // namespace ps::apps
