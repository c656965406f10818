// Official-layout checkpoints with random weights (design.md 5): tests, speed and memory without the release at hand.
//
// Bytes depend on the model, the seed and the storage alone: each piece of a tensor draws from a generator seeded by
// the seed, the tensor's name and the piece, so neither order nor number of threads shows. Storages of one seed hold
// exactly the same weights. Values are scaled so that activations stay near 1 through all layers, and nothing is
// constant, zero or equal to a neighbour: block scales vary, norms differ from 1, biases, sinks and gates are on.
// The folder appears under its name when it is complete. Knows no tokenizer: its text and its numbers are passed in.
// Threading: one call at a time per folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/config.h"
#include "checkpoint/schema.h"

namespace ps::checkpoint {

enum class Preset : uint8_t {
  kNano,        // a few MB: every layer kind, two Engram layers, DSpark, vision
  kFlashSlice,  // named layers of the published model in full size
};

// What the model must know of the tokenizer that it is written with.
struct SyntheticTokens {
  std::string tokenizer_json;  // content of tokenizer.json
  int64_t vocab_size = 0;
  int64_t num_classes = 0;  // of the Engram token map
  int32_t bos = 0;
  int32_t eos = 1;
  int32_t pad = 2;
  int32_t image = 0;  // placeholder of an image
  int32_t noise = 0;  // input of the open rows of a draft
  std::string bos_text;
  std::string eos_text;
  std::string pad_text;
};

struct SyntheticModel {
  Preset preset = Preset::kNano;
  Storage storage = Storage::kOfficial;
  // flash-slice only; 0 and empty mean as published.
  std::vector<int> layers;  // published layer ids; empty means all
  int64_t experts = 0;      // routed experts per layer
  int64_t engram_rows = 0;  // upper bound of rows per Engram table
  bool has_draft = false;   // three DSpark stages that tap the last layers
  bool has_vision = false;
};

struct SyntheticOutput {
  uint64_t seed = 0;
  int threads = 1;
  bool overwrite = false;  // replace an existing checkpoint; a folder with other files is never touched
  // Bytes written so far and in all; may be empty.
  std::function<void(int64_t done, int64_t total)> progress;
};

// The published config.json.
[[nodiscard]] Config published_config();

// invalid, with what is missing or legal: a slice without the owner or index source of one of its layers, sizes that
// give no legal config.
[[nodiscard]] Result<Config> synthetic_config(const SyntheticModel& model, const SyntheticTokens& tokens);

// Writes config, shards, index and tokenizer. invalid when `folder` holds something (unless overwrite), exhausted
// before anything is written when the file system has too little room. On failure `folder` is as it was.
// REQUIRES: a config of synthetic_config().
[[nodiscard]] Status write_synthetic(const Config& config, const SyntheticTokens& tokens, const SyntheticOutput& output,
                                     const std::filesystem::path& folder);

}  // namespace ps::checkpoint
