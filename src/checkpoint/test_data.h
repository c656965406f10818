// What the tests of this module share: the published config.json and small synthetic checkpoints. Test programs only.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/testing.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/synthetic.h"

namespace ps::checkpoint::test {

using ps::test::data_path;
using ps::test::TemporaryFolder;

inline std::string published_text() { return read_file(data_path("config.json"), 1 << 20).value(); }

inline Config config_of_file() {
  Result<Config> config = parse_config(published_text());
  EXPECT_TRUE(config.ok()) << config.status().to_string();
  return std::move(config).value();
}

// A vocabulary of 512 tokens in 400 classes; the text is none that a tokenizer reads.
inline SyntheticTokens nano_tokens() {
  SyntheticTokens tokens;
  tokens.tokenizer_json = "{}";
  tokens.vocab_size = 512;
  tokens.num_classes = 400;
  tokens.image = 300;
  tokens.noise = 301;
  return tokens;
}

inline Config nano_config(Storage storage = Storage::kOfficial) {
  Result<Config> config = synthetic_config({.preset = Preset::kNano, .storage = storage}, nano_tokens());
  EXPECT_TRUE(config.ok()) << config.status().to_string();
  return std::move(config).value();
}

inline void write_nano(const std::filesystem::path& folder, Storage storage = Storage::kOfficial, uint64_t seed = 1) {
  const Status status = write_synthetic(nano_config(storage), nano_tokens(), {.seed = seed, .threads = 2}, folder);
  ASSERT_TRUE(status.ok()) << status.to_string();
}

// A tensor in memory, for tests that change a shard.
struct StoredTensor {
  SafetensorsWriter::Declaration declaration;
  std::vector<std::byte> bytes;
};

inline std::vector<StoredTensor> load_shard(const std::filesystem::path& path) {
  std::vector<StoredTensor> tensors;
  Result<SafetensorsFile> file = SafetensorsFile::open(path);
  EXPECT_TRUE(file.ok()) << file.status().to_string();
  for (const SafetensorsEntry& entry : file->entries()) {
    const TensorView view = file->view(entry);
    tensors.push_back({{entry.name, entry.dtype, entry.shape}, {view.data, view.data + view.size_bytes}});
  }
  return tensors;
}

inline void store_shard(const std::filesystem::path& path, std::vector<StoredTensor> tensors) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return dtype_bytes(a.declaration.dtype) > dtype_bytes(b.declaration.dtype);
  });
  std::vector<SafetensorsWriter::Declaration> declarations;
  for (const StoredTensor& tensor : tensors) declarations.push_back(tensor.declaration);
  Result<SafetensorsWriter> file = SafetensorsWriter::create(path, declarations);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  for (const StoredTensor& tensor : tensors) {
    const Status status = file->append(tensor.bytes);
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  const Status status = file->finish();
  ASSERT_TRUE(status.ok()) << status.to_string();
}

}  // namespace ps::checkpoint::test
