// pagestate validate: the acceptance scenarios on any checkpoint, a line each, and a JSON report.
#include <fmt/format.h>

#include <memory>

#include "apps/commands/commands.h"
#include "apps/machine_options.h"
#include "apps/validation.h"
#include "base/json.h"
#include "base/macros.h"
#include "base/mapped_file.h"
#include "text/token_map.h"
#include "text/tokenizer.h"

namespace ps::apps {
namespace {

struct Options {
  std::string model;
  std::string output;
  MachineArguments machine;
  int64_t page_tokens = 0;
};

std::string report_json(const Options& options, const std::vector<ScenarioResult>& results) {
  int64_t passed = 0;
  JsonWriter json;
  json.begin_object().key("model").string(options.model).key("scenarios").begin_array();
  for (const ScenarioResult& result : results) {
    passed += result.passed ? 1 : 0;
    json.begin_object().key("name").string(result.name).key("settings").string(result.settings);
    json.key("passed")
        .boolean(result.passed)
        .key("detail")
        .string(result.detail)
        .key("seconds")
        .real(result.seconds)
        .end_object();
  }
  json.end_array().key("passed").integer(passed).key("failed").integer(std::ssize(results) - passed).end_object();
  return std::move(json).text() + "\n";
}

Status validate(const Options& options) {
  ValidationSetup setup;
  PS_TRY(const Machine machine, pick_machine(options.machine));
  setup.table = machine.table;
  PS_TRY(const checkpoint::Checkpoint checkpoint, open_checkpoint(options.model, machine));
  setup.checkpoint = &checkpoint;
  setup.threads = machine.threads;
  setup.pin_threads = machine.pin_threads;
  const checkpoint::TextConfig& text = checkpoint.config().text_config;
  // The smallest PAGE that every setting accepts, so that short prompts span several.
  setup.page_tokens = options.page_tokens > 0 ? options.page_tokens : (text.sliding_window + 15) / 16 * 16;
  if (!text.engram_layer_ids.empty()) {
    PS_TRY(const auto tokenizer, text::Tokenizer::load(checkpoint.tokenizer_path()));
    setup.token_classes = text::engram_token_map(*tokenizer).class_of;
  }
  PS_RETURN_IF_ERROR(load_weights(checkpoint, machine, 0));
  std::vector<ScenarioResult> results;
  int64_t failed = 0;
  PS_RETURN_IF_ERROR(run_validation(setup, [&](const ScenarioResult& result) {
    fmt::print("{:<6} {:<24} {:<36} {:6.2f} s{}\n", result.passed ? "passed" : "FAILED", result.name, result.settings,
               result.seconds, result.passed ? "" : "  " + result.detail);
    std::fflush(stdout);
    failed += result.passed ? 0 : 1;
    results.push_back(result);
  }));
  fmt::print("{} passed, {} failed\n", std::ssize(results) - failed, failed);
  if (!options.output.empty()) PS_RETURN_IF_ERROR(write_file(options.output, report_json(options, results)));
  if (failed > 0) return Status::internal(fmt::format("{} of {} scenarios failed", failed, results.size()));
  return {};
}

}  // namespace

void add_validate(CLI::App& program, Work& chosen) {
  auto options = std::make_shared<Options>();
  CLI::App* command = program.add_subcommand("validate", "Run the scheduler's acceptance scenarios on a checkpoint");
  command->add_option("--model", options->model, "Checkpoint folder")->required();
  command->add_option("--output", options->output, "Write a JSON report to this file");
  command
      ->add_option("--page-tokens", options->page_tokens, "Tokens of one PAGE; 0: the smallest that covers the window")
      ->capture_default_str();
  declare_machine_options(*command, options->machine);
  command->callback([options, &chosen] { chosen = [options] { return validate(*options); }; });
}

}  // namespace ps::apps
