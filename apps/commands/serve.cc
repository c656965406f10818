// pagestate serve: the HTTP server over one engine. Its options become a server; serve_loop.h has its life.
#include <fmt/format.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <memory>
#include <span>

#include "apps/commands/commands.h"
#include "apps/engine_options.h"
#include "apps/open_model.h"
#include "apps/serve_loop.h"
#include "apps/units.h"
#include "apps/warm_up.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/mapped_file.h"
#include "base/sha256.h"
#include "server/server.h"

namespace ps::apps {
namespace {

constexpr double kMostDrainSeconds = 86400;

struct Options {
  std::string model;
  std::vector<std::string> served_names;
  MachineArguments machine;
  std::string default_thinking = "on";
  std::string chat_encoding = "recipe";
  std::string max_body = "64MiB";
  std::string max_pending = "4MiB";
  EngineArguments engine;
  server::ServerOptions server;
  double drain_seconds = 30;
};

Result<server::ChatOptions> chat_options(const Options& options) {
  const auto refuse = [](std::string_view name, const std::string& value, std::string_view legal) {
    return Status::invalid(fmt::format("{} is {}; legal values are {}", name, value, legal));
  };
  server::ChatOptions chat;
  chat.defaults.is_thinking = options.default_thinking == "on";
  if (!chat.defaults.is_thinking && options.default_thinking != "off") {
    return refuse("--default-thinking", options.default_thinking, "on and off");
  }
  if (options.chat_encoding == "model") {
    chat.encoding = text::ChatEncoding::kModel;
  } else if (options.chat_encoding != "recipe") {
    return refuse("--chat-encoding", options.chat_encoding, "recipe and model");
  }
  return chat;
}

// The same for the same model, program and way of writing prompts.
Result<std::string> fingerprint_of(const Options& options) {
  PS_TRY(std::string text, read_file(std::filesystem::path(options.model) / "config.json", int64_t{16} << 20));
  text += PAGESTATE_VERSION;
  text += options.chat_encoding;
  return "fp_" + sha256_hex(std::as_bytes(std::span(text))).substr(0, 16);
}

server::ModelInfo model_info(const Options& options, const checkpoint::Config& config, int64_t max_context,
                             const std::string& fingerprint) {
  server::ModelInfo info;
  info.names = options.served_names;
  if (info.names.empty()) {
    const std::filesystem::path path = std::filesystem::weakly_canonical(options.model);
    info.names.push_back(path.filename().empty() ? path.parent_path().filename() : path.filename());
  }
  info.created = static_cast<int64_t>(std::time(nullptr));
  info.max_context = max_context;
  info.vocabulary = static_cast<int32_t>(config.text_config.vocab_size);
  info.fingerprint = fingerprint;
  return info;
}

Status serve(Options options) {
  if (std::getenv("PS_LOG") == nullptr) set_log_level("info");
  if (!(options.drain_seconds >= 0 && options.drain_seconds <= kMostDrainSeconds)) {
    return Status::invalid(
        fmt::format("--drain-seconds is {}; legal values are 0 to {}", options.drain_seconds, kMostDrainSeconds));
  }
  PS_TRY(options.server.http.limits.body_bytes, parse_bytes(options.max_body).with("--max-body"));
  PS_TRY(options.server.http.max_pending_bytes, parse_bytes(options.max_pending).with("--max-pending"));
  PS_RETURN_IF_ERROR(server::check(options.server.http));
  PS_TRY(options.server.chat, chat_options(options));
  PS_TRY(const Machine machine, pick_machine(options.machine));
  PS_TRY(const engine::EngineOptions engine_options, apps::engine_options(options.engine, machine));
  const Signals signals;  // before any thread starts
  PS_TRY(const auto model, open_model(options.model, machine, engine_options));
  const engine::MemoryPlan& memory = model->engine->memory();
  log_info(fmt::format("event=engine max_context={} pages={} slots={} memory_bytes={}", memory.max_context,
                       memory.pages, memory.slots, memory.total_bytes()));
  PS_TRY(const std::string fingerprint, fingerprint_of(options));
  server::LocalEngine port(*model->engine);
  options.server.service.max_sequences = engine_options.max_sequences;
  PS_TRY(const auto server,
         server::Server::create(options.server, port, model->tokenizer,
                                model_info(options, model->checkpoint.config(), memory.max_context, fingerprint)));
  Status loaded = load_weights(model->checkpoint, machine, memory, [&signals] { return signals.is_pending(); });
  if (!loaded.ok() && loaded.code() == Code::kCancelled) {
    log_info("event=stopped what=\"before the weights were in\"");
    return {};
  }
  PS_RETURN_IF_ERROR(std::move(loaded));
  PS_RETURN_IF_ERROR(warm_up(*model->engine, model->checkpoint.config().text_config.vocab_size).with("warm-up"));
  const std::string& host = options.server.http.host;
  if (options.server.gate.api_key.empty() && host != "127.0.0.1" && host != "localhost" && host != "::1") {
    log_warning("event=open_server what=\"anybody who reaches the address may use it: no --api-key is set\"");
  }
  return serve_until_signal(*server, signals, options.drain_seconds);
}

void declare_chat(CLI::App& command, Options& options) {
  command
      .add_option("--default-thinking", options.default_thinking,
                  "on or off: whether the model thinks where a chat request does not say")
      ->capture_default_str();
  command
      .add_option("--chat-encoding", options.chat_encoding,
                  "How conversations become prompts: recipe (as the hosted API) or model (as the encoder beside it)")
      ->capture_default_str();
}

void declare_http(CLI::App& command, Options& options) {
  server::HttpOptions& http = options.server.http;
  command.add_option("--host", http.host, "Address to listen on; 0.0.0.0 opens the server to the network")
      ->capture_default_str();
  http.port = 8000;
  command.add_option("--port", http.port, "0: any free one")->capture_default_str();
  command.add_option("--api-key", options.server.gate.api_key, "Asked of all requests but /health and the page")
      ->check([](const std::string& key) { return key.empty() ? std::string("the key is empty") : std::string(); })
      ->envname("PAGESTATE_API_KEY");
  command.add_option("--cors-origin", options.server.gate.cors_origin,
                     "Browsers of this origin may call: https://example.org, or *; default: none");
  command.add_option("--max-connections", http.max_connections, "Open at once")->capture_default_str();
  command.add_option("--max-body", options.max_body, "Of a request")->capture_default_str();
  command.add_option("--max-pending", options.max_pending, "Unread bytes of a stream before its client is dropped")
      ->capture_default_str();
  command.add_option("--header-seconds", http.header_seconds, "For the headers of a request")->capture_default_str();
  command.add_option("--body-seconds", http.body_seconds, "Without a byte of the body, and beyond --body-rate in sum")
      ->capture_default_str();
  command.add_option("--write-seconds", http.write_seconds, "Without a client taking a byte that waits for it")
      ->capture_default_str();
  command.add_option("--body-rate", http.body_rate, "Bytes per second that a body must come with")
      ->capture_default_str();
  command.add_option("--idle-seconds", http.idle_seconds, "Between requests")->capture_default_str();
  command.add_option("--keep-alive-seconds", http.keep_alive_seconds, "Silence in a stream before a comment")
      ->capture_default_str();
  command.add_option("--max-queue", options.server.service.max_queue, "Sequences that wait beside those that run")
      ->capture_default_str();
  command.add_option("--watchdog-seconds", options.server.service.watchdog_seconds, "A longer step makes /health fail")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command.add_option("--drain-seconds", options.drain_seconds, "For running requests after SIGTERM or SIGINT")
      ->capture_default_str();
  command.add_option("--workers", options.server.workers, "Threads that parse and tokenize requests")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
}

}  // namespace

void add_serve(CLI::App& program, Work& chosen) {
  auto options = std::make_shared<Options>();
  CLI::App* command = program.add_subcommand("serve", "Serve the model over HTTP with OpenAI's API");
  command->add_option("--model", options->model, "Checkpoint folder")->required();
  command->add_option("--served-model-name", options->served_names,
                      "Names that the model answers to, the first its id; default: the folder's name");
  declare_http(*command, *options);
  declare_chat(*command, *options);
  declare_engine_options(*command, options->engine);
  declare_machine_options(*command, options->machine);
  command->callback([options, &chosen] { chosen = [options] { return serve(*options); }; });
}

}  // namespace ps::apps
