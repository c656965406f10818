// pagestate generate: a prompt, or token ids, through one sequence; text to standard output as it comes, or the
// teacher-forced logits of every position to a file.
#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <memory>

#include "apps/commands/commands.h"
#include "apps/machine_options.h"
#include "apps/progress.h"
#include "base/macros.h"
#include "base/mapped_file.h"
#include "checkpoint/checkpoint.h"
#include "engine/runner.h"
#include "engine/sampler.h"
#include "text/detokenizer.h"
#include "text/token_map.h"
#include "text/tokenizer.h"

namespace ps::apps {
namespace {

struct Options {
  std::string model;
  std::string prompt;
  std::string tokens;
  std::string dump_logits;
  std::string kv_cache_dtype = "bf16";
  std::string index_cache_dtype = "fp4";
  std::string compute = "bf16";
  MachineArguments machine;
  int64_t max_tokens = 128;
  int64_t prefill_chunk = 512;
  int64_t page_tokens = 256;
  bool ignore_eos = false;
  bool print_ids = false;
  engine::SamplingOptions sampling;
};

// "1,2,3", or "@file" whose content is ids separated by commas or white space.
Result<std::vector<int32_t>> parse_ids(const std::string& argument) {
  std::string text = argument;
  if (text.starts_with('@')) {
    PS_TRY(text, read_file(argument.substr(1), 64 << 20));
  }
  std::vector<int32_t> ids;
  const char* at = text.data();
  const char* end = at + text.size();
  while (true) {
    while (at != end && (*at == ',' || *at == ' ' || *at == '\n' || *at == '\t' || *at == '\r')) ++at;
    if (at == end) break;
    int32_t id = 0;
    const auto parsed = std::from_chars(at, end, id);
    if (parsed.ec != std::errc{}) {
      return Status::invalid("--tokens: expected ids such as 1,2,3, found \"" +
                             std::string(at, std::min(end, at + 20)) + "\"");
    }
    ids.push_back(id);
    at = parsed.ptr;
  }
  if (ids.empty()) return Status::invalid("--tokens: no ids");
  return ids;
}

Result<DType> parse_compute(const std::string& name) {
  if (name == "bf16") return DType::kBF16;
  if (name == "f32") return DType::kF32;
  return Status::invalid("--compute is " + name + "; legal values are bf16, f32");
}

// Everything that a run needs, opened in the order that finds errors early.
struct Session {
  checkpoint::Checkpoint checkpoint;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::vector<int32_t> prompt;
  std::unique_ptr<engine::Runner> runner;
};

Result<std::vector<int32_t>> prompt_ids(const Options& options, const checkpoint::Config& config,
                                        const text::Tokenizer& tokenizer) {
  if (!options.tokens.empty()) return parse_ids(options.tokens);
  std::vector<int32_t> ids = {config.bos_token_id};
  tokenizer.encode(options.prompt, text::AddedTokens::kParse, ids);
  return ids;
}

Result<std::unique_ptr<Session>> open_session(const Options& options, int64_t answer_tokens) {
  engine::RunnerOptions runner_options;
  PS_TRY(runner_options.format.main, cache::parse_main_format(options.kv_cache_dtype));
  PS_TRY(runner_options.format.index, cache::parse_index_format(options.index_cache_dtype));
  PS_TRY(runner_options.compute, parse_compute(options.compute));
  PS_TRY(const Machine machine, pick_machine(options.machine));
  PS_RETURN_IF_ERROR(engine::check(options.sampling));
  PS_TRY(checkpoint::Checkpoint checkpoint, open_checkpoint(options.model, machine));
  PS_TRY(auto tokenizer, text::Tokenizer::load(checkpoint.tokenizer_path()));
  PS_TRY(auto prompt, prompt_ids(options, checkpoint.config(), *tokenizer));
  std::unique_ptr<Session> session(
      new Session{std::move(checkpoint), std::move(tokenizer), std::move(prompt), nullptr});

  runner_options.page_tokens = options.page_tokens;
  runner_options.prefill_chunk = options.prefill_chunk;
  runner_options.max_tokens = static_cast<int64_t>(session->prompt.size()) + answer_tokens;
  runner_options.threads = machine.threads;
  runner_options.pin_threads = machine.pin_threads;
  std::vector<int32_t> classes;
  if (!session->checkpoint.config().text_config.engram_layer_ids.empty()) {
    classes = text::engram_token_map(*session->tokenizer).class_of;
  }
  PS_TRY(session->runner,
         engine::Runner::create(session->checkpoint, std::move(classes), *machine.table, runner_options));
  PS_RETURN_IF_ERROR(load_weights(session->checkpoint, machine, session->runner->memory_bytes()));
  return session;
}

// Teacher-forced: row p holds the logits after token p.
Status dump_logits(const Options& options) {
  PS_TRY(const auto session, open_session(options, 0));
  const auto rows = static_cast<int64_t>(session->prompt.size());
  const int64_t vocabulary = session->checkpoint.config().text_config.vocab_size;
  PS_TRY(auto writer,
         checkpoint::SafetensorsWriter::create(
             options.dump_logits, {{"logits", DType::kF32, {rows, vocabulary}}, {"tokens", DType::kI32, {rows}}}));
  ProgressBar bar("prefill", "tokens", 1);
  Status written;
  const auto sink = [&](int64_t, std::span<const float> logits) {
    written = writer.append(std::as_bytes(logits));
    return written.ok();
  };
  Status fed = session->runner->feed(session->prompt, engine::LogitRows::kAll, sink, [&](int64_t done, int64_t total) {
    bar.update(done, total);
    return true;
  });
  PS_RETURN_IF_ERROR(std::move(written));
  PS_RETURN_IF_ERROR(std::move(fed));
  PS_RETURN_IF_ERROR(writer.append(std::as_bytes(std::span<const int32_t>(session->prompt))));
  return writer.finish();
}

void print_speed(int64_t prompt_tokens, double prefill_seconds, int64_t answer_tokens, double decode_seconds) {
  fmt::print(stderr, "[prompt {} tokens, {:.1f} tokens/s; answer {} tokens, {:.1f} tokens/s]\n", prompt_tokens,
             static_cast<double>(prompt_tokens) / prefill_seconds, answer_tokens,
             decode_seconds > 0 ? static_cast<double>(answer_tokens - 1) / decode_seconds : 0.0);
}

Status answer(const Options& options) {
  PS_TRY(const auto session, open_session(options, options.max_tokens));
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  const checkpoint::Config& config = session->checkpoint.config();
  engine::Runner& runner = *session->runner;
  engine::Sampler sampler(static_cast<int32_t>(config.text_config.vocab_size), session->tokenizer->never_sampled());
  text::Detokenizer detokenizer(*session->tokenizer);

  int32_t next = 0;
  const auto sample = [&](int64_t position, std::span<const float> logits) {
    next = sampler.sample(logits, options.sampling, {.position = position + 1});
    return true;
  };
  const Clock::time_point start = Clock::now();
  {
    ProgressBar bar("prefill", "tokens", 1);
    PS_RETURN_IF_ERROR(runner.feed(session->prompt, engine::LogitRows::kLast, sample, [&](int64_t done, int64_t total) {
      bar.update(done, total);
      return true;
    }));
  }
  const double prefill_seconds = seconds_since(start);
  const Clock::time_point decode_start = Clock::now();
  int64_t produced = 0;
  while (produced < options.max_tokens && (options.ignore_eos || next != config.eos_token_id)) {
    ++produced;
    if (options.print_ids) {
      fmt::print("{}{}", produced > 1 ? "," : "", next);
    } else {
      fmt::print("{}", detokenizer.push(next).text);
    }
    std::fflush(stdout);
    if (produced == options.max_tokens) break;
    PS_RETURN_IF_ERROR(runner.feed(std::span(&next, 1), engine::LogitRows::kLast, sample));
  }
  fmt::print("\n");
  print_speed(static_cast<int64_t>(session->prompt.size()), prefill_seconds, produced, seconds_since(decode_start));
  return {};
}

void declare(CLI::App& command, Options& options) {
  command.add_option("--model", options.model, "Checkpoint folder (config.json, shards, tokenizer.json)")->required();
  auto* prompt = command.add_option("--prompt", options.prompt,
                                    "Text, after the begin-of-sentence token; control tokens are recognized");
  auto* tokens = command.add_option("--tokens", options.tokens,
                                    "Token ids instead of a text: 1,2,3 or @FILE; nothing is put in front");
  prompt->excludes(tokens);
  command.add_option("--max-tokens", options.max_tokens, "Tokens to generate")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command.add_option(
      "--dump-logits", options.dump_logits,
      "Generate nothing; write the F32 logits after every given token, [tokens, vocabulary], to this safetensors file");
  command.add_option("--temperature", options.sampling.temperature, "0 is greedy")->capture_default_str();
  command.add_option("--top-p", options.sampling.top_p, "Keep the likeliest tokens up to this probability")
      ->capture_default_str();
  command.add_option("--top-k", options.sampling.top_k, "Keep the k likeliest tokens; 0 keeps all")
      ->capture_default_str();
  command.add_option("--seed", options.sampling.seed, "Of sampling; equal seeds give equal texts")
      ->capture_default_str();
  command.add_option("--kv-cache-dtype", options.kv_cache_dtype, "bf16 or fp4 (packed); both give the same text")
      ->capture_default_str();
  command.add_option("--index-cache-dtype", options.index_cache_dtype, "fp4 (official) or fp8 (approximates it)")
      ->capture_default_str();
  command.add_option("--prefill-chunk", options.prefill_chunk, "Rows of one forward; any value gives the same text")
      ->capture_default_str();
  command.add_option("--page-tokens", options.page_tokens, "Tokens of one PAGE")->capture_default_str();
  command.add_option("--compute", options.compute, "bf16 (official), or f32: activations unrounded, for comparisons")
      ->capture_default_str();
  declare_machine_options(command, options.machine);
  command.add_flag("--ignore-eos", options.ignore_eos, "Go on after the end-of-sentence token");
  command.add_flag("--print-ids", options.print_ids, "Print token ids instead of text");
}

}  // namespace

void add_generate(CLI::App& program, Work& chosen) {
  auto options = std::make_shared<Options>();
  CLI::App* command = program.add_subcommand("generate", "Generate text from a prompt, or dump logits");
  declare(*command, *options);
  command->callback([options, command, &chosen] {
    if (command->count("--prompt") + command->count("--tokens") == 0) throw CLI::RequiredError("--prompt or --tokens");
    if (!options->dump_logits.empty() && options->tokens.empty())
      throw CLI::RequiredError("--tokens (with --dump-logits)");
    chosen = [options] { return options->dump_logits.empty() ? answer(*options) : dump_logits(*options); };
  });
}

}  // namespace ps::apps
