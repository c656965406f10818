// pagestate bench, and bench serve: a synthetic load against the engine in process, or against a server.
#include <fmt/format.h>

#include <cstdlib>
#include <memory>

#include "apps/commands/commands.h"
#include "apps/engine_options.h"
#include "apps/load/engine_load.h"
#include "apps/load/http_load.h"
#include "apps/open_model.h"
#include "apps/units.h"
#include "base/json.h"
#include "base/macros.h"

namespace ps::apps {
namespace {

struct Options {
  std::string model;
  std::string url;
  std::string api_key;
  bool json = false;
  MachineArguments machine;
  EngineArguments engine;
  LoadOptions load;
};

void print_table(const LoadResult& result) {
  const auto line = [](const char* label, const std::string& value) { fmt::print("{:<28}{}\n", label, value); };
  const auto spread = [](const Percentiles& p) {
    return fmt::format("p50 {:.1f}  p95 {:.1f}  p99 {:.1f}", p.p50, p.p95, p.p99);
  };
  const auto tokens = static_cast<double>(result.answer_tokens);
  line("requests", grouped(result.requests));
  line("seconds", fmt::format("{:.2f}", result.seconds));
  line("prompt tokens",
       fmt::format("{}, {:.1f} % from the prefix cache", grouped(result.prompt_tokens), 100 * result.hit_rate()));
  line("prompt rows computed", fmt::format("{}, {:.1f} per second", grouped(result.computed_rows),
                                           static_cast<double>(result.computed_rows) / result.seconds));
  line("answer tokens", fmt::format("{}, {:.1f} per second", grouped(result.answer_tokens), tokens / result.seconds));
  line("time to first token, ms", spread(result.time_to_first_token_ms));
  line("between tokens, ms", spread(result.inter_token_ms));
  if (result.pages) {
    line("PAGEs in use",
         fmt::format("mean {:.1f}, most {} of {}", result.pages->mean, result.pages->most, result.pages->total));
  }
  line("steps, preemptions", fmt::format("{}, {}", grouped(result.steps), grouped(result.preemptions)));
  line("seconds in steps", fmt::format("{:.2f}", result.step_seconds));
  line("processor seconds", fmt::format("{:.2f}, {:.1f} us per answer token", result.processor_seconds,
                                        result.processor_seconds * 1e6 / tokens));
}

void print_json(const LoadResult& result) {
  JsonWriter json;
  const auto spread = [&](const char* key, const Percentiles& p) {
    json.key(key).begin_object().key("p50").real(p.p50).key("p95").real(p.p95).key("p99").real(p.p99).end_object();
  };
  json.begin_object().key("requests").integer(result.requests).key("seconds").real(result.seconds);
  json.key("prompt_tokens").integer(result.prompt_tokens).key("cached_tokens").integer(result.cached_tokens);
  json.key("hit_rate").real(result.hit_rate()).key("prompt_rows_computed").integer(result.computed_rows);
  json.key("answer_tokens").integer(result.answer_tokens).key("steps").integer(result.steps);
  json.key("preemptions").integer(result.preemptions).key("step_seconds").real(result.step_seconds);
  json.key("processor_seconds").real(result.processor_seconds);
  spread("time_to_first_token_ms", result.time_to_first_token_ms);
  spread("inter_token_ms", result.inter_token_ms);
  if (result.pages) {
    json.key("pages").begin_object().key("total").integer(result.pages->total);
    json.key("most_used").integer(result.pages->most).key("mean_used").real(result.pages->mean).end_object();
  }
  json.end_object();
  fmt::print("{}\n", json.text());
}

Result<LoadResult> load_in_process(const Options& options) {
  PS_TRY(const Machine machine, pick_machine(options.machine));
  PS_TRY(const engine::EngineOptions engine_options, apps::engine_options(options.engine, machine));
  PS_TRY(const auto model, open_model(options.model, machine, engine_options));
  const engine::MemoryPlan& memory = model->engine->memory();
  if (!options.json) fmt::print("{}\n", engine::describe(memory));
  PS_RETURN_IF_ERROR(load_weights(model->checkpoint, machine, memory));
  return run_load(*model->engine, model->checkpoint.config().text_config.vocab_size, options.load);
}

Status bench_serve(const Options& options) {
  PS_TRY(const LoadResult result,
         options.url.empty() ? load_in_process(options) : run_http_load(options.url, options.api_key, options.load));
  options.json ? print_json(result) : print_table(result);
  return {};
}

void declare_load(CLI::App& command, LoadOptions& load) {
  command.add_option("--requests", load.requests, "How many")->capture_default_str();
  command.add_option("--rate", load.rate, "Arrivals per second; 0: all at once")->capture_default_str();
  command.add_option("--concurrency", load.concurrency, "Requests under way at most; 0: any number")
      ->capture_default_str();
  command.add_option("--prompt-tokens", load.prompt_tokens, "Mean of a prompt's own part")->capture_default_str();
  command.add_option("--answer-tokens", load.answer_tokens, "Mean length of an answer")->capture_default_str();
  command.add_option("--shared-share", load.shared_share, "Share of requests that begin with a common prefix")
      ->capture_default_str();
  command.add_option("--prefixes", load.prefixes, "Number of common prefixes")->capture_default_str();
  command.add_option("--prefix-tokens", load.prefix_tokens, "Tokens of a common prefix")->capture_default_str();
  command.add_option("--seed", load.seed, "Of the load")->capture_default_str();
}

void declare_serve(CLI::App& command, Options& options) {
  auto* model = command.add_option("--model", options.model, "Checkpoint folder: the engine runs in this process");
  declare_engine_options(command, options.engine);
  declare_machine_options(command, options.machine);
  const std::vector<CLI::Option*> in_process = command.get_options(
      [model](const CLI::Option* option) { return option == model || !option->get_name().starts_with("--help"); });
  auto* url = command.add_option("--url", options.url, "A running pagestate serve, such as http://127.0.0.1:8000");
  for (CLI::Option* option : in_process) url->excludes(option);
  command.add_option("--api-key", options.api_key, "With --url: the server's key")->envname("PAGESTATE_API_KEY");
  declare_load(command, options.load);
  command.add_flag("--json", options.json, "One JSON object instead of a table");
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
  CLI::App* serve = bench->add_subcommand("serve", "A synthetic load: throughput, latencies, hit rate, PAGEs");
  declare_serve(*serve, *options);
  serve->callback([options, &chosen] {
    if (options->model.empty() && options->url.empty()) throw CLI::RequiredError("--model or --url");
    chosen = [options] { return bench_serve(*options); };
  });
}

}  // namespace ps::apps
