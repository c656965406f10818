// pagestate chat: a conversation in the terminal, with an engine in this process or with a server.
#include <fmt/format.h>

#include <cstdlib>
#include <memory>

#include "apps/chat/local_backend.h"
#include "apps/chat/remote_backend.h"
#include "apps/chat/session.h"
#include "apps/commands/commands.h"
#include "apps/engine_options.h"
#include "apps/open_model.h"
#include "base/macros.h"

namespace ps::apps {
namespace {

struct Options {
  std::string model;
  std::string url;
  std::string model_name;
  std::string think = "high";
  MachineArguments machine;
  bool no_history = false;
  EngineArguments engine;
  chat::SessionSettings session;
};

Result<std::unique_ptr<chat::Backend>> open_backend(const Options& options) {
  if (!options.url.empty()) {
    const char* key = std::getenv("PAGESTATE_API_KEY");
    return chat::make_remote_backend(options.url, options.model_name, key == nullptr ? "" : key);
  }
  PS_TRY(const Machine machine, pick_machine(options.machine));
  PS_TRY(const engine::EngineOptions engine_options, apps::engine_options(options.engine, machine));
  PS_TRY(auto model, open_model(options.model, machine, engine_options));
  PS_RETURN_IF_ERROR(load_weights(model->checkpoint, machine, model->engine->memory()));
  return chat::make_local_backend(std::move(model));
}

Status run_chat(const Options& options) {
  chat::SessionSettings settings = options.session;
  PS_RETURN_IF_ERROR(chat::set_thinking(settings, options.think).with("--think"));
  PS_TRY(const auto backend, open_backend(options));
  chat::InterruptFlag interrupt;
  const auto lines = chat::make_line_source(options.no_history ? "" : chat::default_history_path(), interrupt);
  chat::Console console;
  chat::Session session(*backend, *lines, console, interrupt, std::move(settings));
  return session.run();
}

void declare(CLI::App& command, Options& options) {
  auto* model = command.add_option("--model", options.model, "Checkpoint folder: the engine runs in this process");
  auto* url = command.add_option("--url", options.url,
                                 "A server, such as http://127.0.0.1:8000; PAGESTATE_API_KEY holds its key, if any");
  url->excludes(model);
  command.add_option("--model-name", options.model_name, "With --url: of the server's models; default: its first")
      ->needs(url);
  command.add_option("--think", options.think, "off, low, high or max")->capture_default_str();
  command.add_option("--system", options.session.system, "System prompt");
  chat::SamplingWishes& sampling = options.session.sampling;
  command.add_option("--temperature", sampling.temperature, "0 is greedy; default: 1, or the server's")
      ->check(CLI::Range(0.0, 2.0));
  command.add_option("--top-p", sampling.top_p,
                     "Keep the likeliest tokens up to this probability; default: 0.95, or "
                     "the server's");
  command.add_option("--max-tokens", sampling.max_tokens, "Of an answer; default: what the context has room for")
      ->check(CLI::PositiveNumber);
  command.add_option("--seed", sampling.seed, "Equal seeds give equal answers; default: another one each time")
      ->check(CLI::NonNegativeNumber);
  command.add_flag("--no-history", options.no_history, "Neither read nor write the file of earlier lines");
  declare_engine_options(command, options.engine);
  declare_machine_options(command, options.machine);
}

}  // namespace

void add_chat(CLI::App& program, Work& chosen) {
  auto options = std::make_shared<Options>();
  options->engine.max_sequences = 1;
  CLI::App* command = program.add_subcommand("chat", "Talk to a model, in this process or on a server");
  declare(*command, *options);
  command->callback([options, &chosen] {
    if (options->model.empty() && options->url.empty()) throw CLI::RequiredError("--model or --url");
    chosen = [options] { return run_chat(*options); };
  });
}

}  // namespace ps::apps
