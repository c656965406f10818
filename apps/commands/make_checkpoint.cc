// pagestate make-checkpoint: an official-layout checkpoint with random weights, for tests and for speed.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "apps/commands/commands.h"
#include "apps/progress.h"
#include "apps/units.h"
#include "base/macros.h"
#include "base/thread_pool.h"
#include "checkpoint/synthetic.h"
#include "text/synthetic_tokenizer.h"
#include "text/token_map.h"
#include "text/tokenizer.h"

namespace ps::apps {
namespace {

using checkpoint::Preset;
using checkpoint::Storage;

constexpr int kNanoVocab = 512;
constexpr int kFlashVocab = 129280;

struct Options {
  checkpoint::SyntheticModel model;
  checkpoint::SyntheticOutput output;
  std::string preset;
  std::string dense_dtype;
  std::string folder;
  int vocab = 0;
  int threads = 0;
};

Result<int32_t> added_token(const text::Tokenizer& tokenizer, std::string_view content) {
  if (const auto id = tokenizer.find_added(content)) return *id;
  return Status::internal("the synthetic tokenizer has no " + std::string(content));
}

// The tokenizer of that size and what the model must know of it.
Result<checkpoint::SyntheticTokens> synthetic_tokens(int vocab) {
  checkpoint::SyntheticTokens tokens;
  PS_TRY(tokens.tokenizer_json, text::make_synthetic_tokenizer(vocab).with("--vocab"));
  PS_TRY(const std::shared_ptr<const text::Tokenizer> tokenizer, text::Tokenizer::parse(tokens.tokenizer_json));
  tokens.vocab_size = tokenizer->vocab_size();
  tokens.num_classes = text::engram_token_map(*tokenizer).classes;
  tokens.bos = tokenizer->bos();
  tokens.eos = tokenizer->eos();
  tokens.pad_text = "<｜▁pad▁｜>";
  PS_TRY(tokens.pad, added_token(*tokenizer, tokens.pad_text));
  PS_TRY(tokens.image, added_token(*tokenizer, "<｜deepseek_image｜>"));
  PS_TRY(tokens.noise, added_token(*tokenizer, "<｜System｜>"));
  tokens.bos_text = tokenizer->token_spelling(tokens.bos);
  tokens.eos_text = tokenizer->token_spelling(tokens.eos);
  return tokens;
}

Status refuse_slice_options(const checkpoint::SyntheticModel& model) {
  const bool has_any =
      !model.layers.empty() || model.experts > 0 || model.engram_rows > 0 || model.has_draft || model.has_vision;
  if (!has_any) return {};
  return Status::invalid("--layers, --experts, --engram-rows, --draft and --vision belong to --preset flash-slice");
}

Status make_checkpoint(Options options) {
  checkpoint::SyntheticModel& model = options.model;
  model.preset = options.preset == "nano" ? Preset::kNano : Preset::kFlashSlice;
  if (model.preset == Preset::kNano) PS_RETURN_IF_ERROR(refuse_slice_options(model));
  if (!options.dense_dtype.empty()) model.storage = options.dense_dtype == "f32" ? Storage::kF32 : Storage::kBf16;
  const int default_vocab = model.preset == Preset::kNano ? kNanoVocab : kFlashVocab;
  PS_TRY(const checkpoint::SyntheticTokens tokens, synthetic_tokens(options.vocab > 0 ? options.vocab : default_vocab));
  PS_TRY(const checkpoint::Config config, synthetic_config(model, tokens));
  const checkpoint::CheckpointTotals totals = checkpoint_totals(config, model.storage);
  fmt::print("{}: {} layers, {} parameters, {} tensors, {}\n", options.folder, config.text_config.num_hidden_layers,
             human_count(totals.parameters), grouped(totals.tensors), human_bytes(totals.bytes));
  options.output.threads = options.threads > 0 ? options.threads : physical_cores();
  ProgressBar bar("writing", "GB", 1e9);
  options.output.progress = [&bar](int64_t done, int64_t total) { bar.update(done, total); };
  return write_synthetic(config, tokens, options.output, options.folder);
}

}  // namespace

void add_make_checkpoint(CLI::App& program, Work& chosen) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      program.add_subcommand("make-checkpoint", "Write an official-layout checkpoint with random weights");
  command
      ->add_option("--preset", options->preset, "nano: a few MB with every kind of layer; flash-slice: real dimensions")
      ->required()
      ->check(CLI::IsMember({"nano", "flash-slice"}));
  command->add_option("--out", options->folder, "The new folder")->required();
  command->add_option("--seed", options->output.seed, "Equal seeds give equal bytes (default 0)");
  command
      ->add_option("--layers", options->model.layers,
                   "flash-slice: published layers to keep, e.g. 0,1,2,20,24 (default all)")
      ->delimiter(',');
  command->add_option("--experts", options->model.experts, "flash-slice: routed experts per layer (default 384)")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--engram-rows", options->model.engram_rows,
                   "flash-slice: most rows per Engram table (default 384 million)")
      ->check(CLI::PositiveNumber);
  command->add_flag("--draft", options->model.has_draft, "flash-slice: with the DSpark stages");
  command->add_flag("--vision", options->model.has_vision, "flash-slice: with the vision tower");
  command->add_option("--dense-dtype", options->dense_dtype, "The same weights unquantized")
      ->check(CLI::IsMember({"bf16", "f32"}));
  command->add_option("--vocab", options->vocab, "Vocabulary size (default 512 for nano, 129280 for flash-slice)")
      ->check(CLI::PositiveNumber);
  command->add_option("--threads", options->threads, "Generating threads (default: physical cores)")
      ->check(CLI::PositiveNumber);
  command->add_flag("--force", options->output.overwrite, "Replace the checkpoint in the folder");
  command->callback([options, &chosen] { chosen = [options] { return make_checkpoint(*options); }; });
}

}  // namespace ps::apps
