// Synthetic checkpoints: the same bytes every time, legal, varied, and the same weights in every storage.
#include "checkpoint/synthetic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <map>
#include <set>

#include "base/number_formats.h"
#include "base/sha256.h"
#include "checkpoint/engram.h"
#include "checkpoint/test_data.h"

namespace ps::checkpoint {
namespace {

namespace fs = std::filesystem;
using test::nano_tokens;
using test::TemporaryFolder;
using testing::ElementsAre;
using testing::HasSubstr;

std::map<std::string, std::string> digests(const fs::path& folder) {
  std::map<std::string, std::string> result;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string content = read_file(entry.path(), 1 << 28).value();
    result[entry.path().filename()] = sha256_hex(std::as_bytes(std::span(content)));
  }
  return result;
}

// Value [n, k] of a stored matrix, by the definition of the formats (model.md 1.4).
float value_at(const MatrixView& m, int64_t n, int64_t k) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(m.data);
  const int64_t i = n * m.columns + k;
  const int64_t scales = m.columns / 32;
  switch (m.format) {
    case WeightFormat::kFp8Block: return e4m3_to_float(bytes[i]) * e8m0_to_float(m.scale[n / 32 * scales + k / 32]);
    case WeightFormat::kFp8Row: return e4m3_to_float(bytes[i]) * e8m0_to_float(m.scale[n * scales + k / 32]);
    case WeightFormat::kFp4Row:
      return e2m1_to_float(fp4_nibble(bytes + n * (m.columns / 2), k)) * e8m0_to_float(m.scale[n * scales + k / 32]);
    case WeightFormat::kBf16: {
      bf16 value;
      std::memcpy(&value, bytes + 2 * i, 2);
      return to_float(value);
    }
    case WeightFormat::kF32: {
      float value = 0;
      std::memcpy(&value, bytes + 4 * i, 4);
      return value;
    }
  }
  return 0;
}

TEST(Synthetic, BytesDependOnTheSeedAlone) {
  const TemporaryFolder folder;
  SyntheticTokens tokens = nano_tokens();
  tokens.vocab_size = 8192;  // an embedding of several pieces
  const Config config = synthetic_config({}, tokens).value();
  const auto write = [&](const char* name, uint64_t seed, int threads) {
    const Status status = write_synthetic(config, tokens, {.seed = seed, .threads = threads}, folder.path() / name);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return digests(folder.path() / name);
  };
  const auto first = write("a", 7, 1);
  EXPECT_EQ(write("b", 7, 1), first);
  EXPECT_EQ(write("c", 7, 3), first);
  size_t equal = 0;
  for (const auto& [name, digest] : write("d", 8, 1)) equal += first.at(name) == digest ? 1 : 0;
  EXPECT_EQ(equal, 4u) << "config, index and tokenizer do not depend on the seed, every shard does";
}

// Recorded results elsewhere rely on these very bytes.
TEST(Synthetic, BytesArePinned) {
  const TemporaryFolder folder;
  test::write_nano(folder.path() / "nano", Storage::kOfficial, 1);
  Sha256 all;
  for (const auto& [name, digest] : digests(folder.path() / "nano")) {
    if (name.ends_with(".safetensors")) all.update(std::as_bytes(std::span(digest)));
  }
  EXPECT_EQ(to_hex(all.finish()), "d514dedd3649219cf0b8d624fe2eb20ddb1244cc7aa016471cc99849fa85b973");
}

TEST(Synthetic, StoragesHoldTheSameWeights) {
  const TemporaryFolder folder;
  test::write_nano(folder.path() / "official");
  test::write_nano(folder.path() / "bf16", Storage::kBf16);
  test::write_nano(folder.path() / "f32", Storage::kF32);
  const Checkpoint official = Checkpoint::open(folder.path() / "official").value();
  const Result<Checkpoint> bf16_checkpoint = Checkpoint::open(folder.path() / "bf16");
  const Result<Checkpoint> f32_checkpoint = Checkpoint::open(folder.path() / "f32");
  ASSERT_TRUE(bf16_checkpoint.ok()) << bf16_checkpoint.status().to_string();
  ASSERT_TRUE(f32_checkpoint.ok()) << f32_checkpoint.status().to_string();
  int64_t compared = 0;
  for_each_tensor(official.config(), Storage::kOfficial, [&](const TensorSpec& spec) {
    if (is_scale(spec.form)) return;
    if (!is_quantized_weight(spec.form)) {
      for (const Checkpoint* other : {&bf16_checkpoint.value(), &f32_checkpoint.value()}) {
        const TensorView& a = official.tensor(spec.name);
        const TensorView& b = other->tensor(spec.name);
        ASSERT_EQ(a.size_bytes, b.size_bytes) << spec.name;
        ASSERT_EQ(std::memcmp(a.data, b.data, static_cast<size_t>(a.size_bytes)), 0) << spec.name;
      }
      return;
    }
    const std::string prefix = spec.name.substr(0, spec.name.size() - 7);
    const MatrixView a = official.matrix(prefix);
    const MatrixView b = bf16_checkpoint.value().matrix(prefix);
    const MatrixView c = f32_checkpoint.value().matrix(prefix);
    ASSERT_EQ(b.format, WeightFormat::kBf16);
    ASSERT_EQ(c.format, WeightFormat::kF32);
    for (int64_t n = 0; n < a.rows; ++n) {
      for (int64_t k = 0; k < a.columns; ++k) {
        const float value = value_at(a, n, k);
        ASSERT_EQ(value, value_at(b, n, k)) << spec.name << " " << n << " " << k;
        ASSERT_EQ(value, value_at(c, n, k)) << spec.name << " " << n << " " << k;
      }
    }
    ++compared;
  });
  EXPECT_GT(compared, 700);
}

// No tensor is constant, no row is zero, block scales differ, and values have the spread that keeps activations near 1.
TEST(Synthetic, ValuesAreVariedAndScaled) {
  const TemporaryFolder folder;
  test::write_nano(folder.path() / "nano");
  const Checkpoint checkpoint = Checkpoint::open(folder.path() / "nano").value();
  for_each_tensor(checkpoint.config(), Storage::kOfficial, [&](const TensorSpec& spec) {
    const TensorView& view = checkpoint.tensor(spec.name);
    const auto width = static_cast<int64_t>(dtype_bytes(view.dtype));
    bool is_constant = view.shape.elements() > 1;
    for (int64_t i = width; i < view.size_bytes && is_constant; i += width) {
      is_constant = std::memcmp(view.data, view.data + i, static_cast<size_t>(width)) == 0;
    }
    ASSERT_FALSE(is_constant) << spec.name;
    if (is_scale(spec.form) || spec.logical_shape.rank != 2 || !spec.name.ends_with(".weight")) return;
    const MatrixView matrix = checkpoint.matrix(spec.name.substr(0, spec.name.size() - 7));
    double squares = 0;
    for (int64_t n = 0; n < matrix.rows; ++n) {
      double row = 0;
      for (int64_t k = 0; k < matrix.columns; ++k) {
        const double value = value_at(matrix, n, k);
        ASSERT_TRUE(std::isfinite(value)) << spec.name;
        row += value * value;
      }
      ASSERT_GT(row, 0) << spec.name << " row " << n;
      squares += row;
    }
    const double gain = std::sqrt(squares / static_cast<double>(matrix.rows));  // of inputs with unit variance
    const bool is_embedding = spec.name.ends_with("embed.weight");
    const double norm = is_embedding ? gain / std::sqrt(static_cast<double>(matrix.columns)) : gain;
    EXPECT_GT(norm, 0.3) << spec.name;
    EXPECT_LT(norm, 3.5) << spec.name;
  });
}

TEST(Synthetic, NanoHasEveryKindOfLayer) {
  const Config config = test::nano_config();
  const LayerTopology topology = layer_topology(config.text_config);
  std::set<std::pair<LayerRole, int>> kinds;
  bool has_reuse_of_reindex = false;
  for (const LayerInfo& layer : topology.layers) {
    kinds.insert({layer.role, layer.ratio});
    if (layer.role == LayerRole::kReuse) {
      has_reuse_of_reindex |= topology.layers[static_cast<size_t>(layer.index_source)].role == LayerRole::kReindex;
    }
  }
  EXPECT_EQ(kinds.size(), 6u);  // WINDOW, FULL 2, REUSE 2, FULL 1, REINDEX 1, REUSE 1
  EXPECT_TRUE(has_reuse_of_reindex);
  EXPECT_EQ(topology.drafts.size(), 3u);
  EXPECT_EQ(config.text_config.engram_layer_ids.size(), 2u);
  EXPECT_TRUE(config.has_vision());
  EXPECT_LT(checkpoint_totals(config).bytes, 16 << 20);
}

Result<Config> slice(SyntheticModel model) {
  model.preset = Preset::kFlashSlice;
  return synthetic_config(model, nano_tokens());
}

TEST(SyntheticSlice, KeepsRolesUnderNewNumbers) {
  const Result<Config> config = slice({.layers = {21, 0, 1, 2, 3, 20, 24}, .experts = 8, .engram_rows = 100000});
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  const TextConfig& t = config.value().text_config;
  EXPECT_EQ(t.num_hidden_layers, 7);
  EXPECT_THAT(t.compress_ratios, ElementsAre(0, 0, 2, 2, 1, 1, 1));
  EXPECT_THAT(t.kv_source_layer_ids, ElementsAre(2, 4));
  EXPECT_THAT(t.index_source_layer_ids, ElementsAre(2, 4, 6));
  EXPECT_EQ(t.candidate_source_layer_id, 4);
  EXPECT_THAT(t.engram_layer_ids, ElementsAre(1));
  EXPECT_EQ(t.n_routed_experts, 8);
  EXPECT_EQ(t.hidden_size, 5120);
  EXPECT_FALSE(config.value().has_vision());
  EXPECT_FALSE(t.has_draft());
  const LayerTopology topology = layer_topology(t);
  EXPECT_EQ(topology.layers[5].role, LayerRole::kReuse);
  EXPECT_EQ(topology.layers[6].role, LayerRole::kReindex);
  EXPECT_TRUE(topology.layers[6].uses_candidates);
}

TEST(SyntheticSlice, NamesTheMissingLayer) {
  const auto message = [](std::vector<int> layers) {
    return std::string(slice({.layers = std::move(layers)}).status().message());
  };
  EXPECT_THAT(message({0, 3}), HasSubstr("layer 3 (REUSE) needs layer 2, which is not among them"));
  EXPECT_THAT(message({2, 9}), HasSubstr("layer 9 (REUSE) needs layer 8"));
  EXPECT_THAT(message({24}), HasSubstr("layer 24 (REINDEX) needs layer 20"));
  EXPECT_THAT(message({20, 25}), HasSubstr("layer 25 (REUSE) needs layer 24"));
  EXPECT_THAT(message({0, 0}), HasSubstr("names a layer twice"));
  EXPECT_THAT(message({0, 40}), HasSubstr("legal layers are 0 to 39"));
  EXPECT_THAT(message({-1}), HasSubstr("legal layers are 0 to 39"));
  EXPECT_THAT(std::string(slice({.layers = {0}, .experts = 5}).status().message()),
              HasSubstr("num_experts_per_tok = 6: at most n_routed_experts = 5"));
}

TEST(SyntheticSlice, BoundsTheTables) {
  for (const int64_t limit : {8000, 100000, 1000003}) {
    const Result<Config> config = slice({.layers = {1, 14, 15}, .experts = 8, .engram_rows = limit});
    ASSERT_TRUE(config.ok()) << config.status().to_string();
    const std::vector<int64_t>& rows = config.value().text_config.engram_num_embeddings;
    ASSERT_EQ(rows.size(), 2u);
    EXPECT_LE(rows[0], limit);
    EXPECT_LE(rows[1], limit);
    EXPECT_GT(rows[1], limit * 9 / 10);
  }
  EXPECT_THAT(std::string(slice({.layers = {1}, .engram_rows = 100}).status().message()),
              HasSubstr("--engram-rows 100: the smallest tables have"));
  EXPECT_EQ(slice({.layers = {1}, .engram_rows = int64_t{1} << 40}).value().text_config.engram_vocab_size, 16000000);
}

TEST(SyntheticSlice, AddsDraftAndVisionWhenAsked) {
  const Result<Config> config =
      slice({.layers = {0, 1}, .experts = 8, .engram_rows = 8000, .has_draft = true, .has_vision = true});
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_TRUE(config.value().has_vision());
  EXPECT_THAT(config.value().text_config.dspark_target_layer_ids, ElementsAre(0, 1));
  EXPECT_EQ(config.value().text_config.dspark_n_routed_experts, 8);
  EXPECT_EQ(config.value().text_config.compress_ratios.size(), 5u);
  // All layers and no bounds: the published model, but for the tokenizer's numbers.
  const Result<Config> whole = slice({.has_draft = true, .has_vision = true});
  ASSERT_TRUE(whole.ok()) << whole.status().to_string();
  EXPECT_EQ(checkpoint_totals(whole.value()).tensors, 96085);
}

TEST(SyntheticOutput, NeverTouchesOtherFiles) {
  const TemporaryFolder folder;
  const fs::path target = folder.path() / "nano";
  const Config config = test::nano_config();
  const auto write = [&](bool overwrite) {
    return std::string(write_synthetic(config, nano_tokens(), {.seed = 2, .overwrite = overwrite}, target).message());
  };
  fs::create_directory(target);
  EXPECT_EQ(write(false), "") << "an empty folder is filled";
  const auto before = digests(target);
  EXPECT_THAT(write(false), HasSubstr("is not empty; --force replaces the checkpoint in it"));
  ASSERT_TRUE(write_file(target / "config.json", "{}").ok());
  EXPECT_EQ(write(true), "");
  EXPECT_EQ(digests(target), before);
  ASSERT_TRUE(write_file(target / "thesis.txt", "x").ok());
  EXPECT_THAT(write(true), HasSubstr("holds thesis.txt, which belongs to no checkpoint"));
  fs::remove(target / "thesis.txt");
  fs::create_directory(target / "tokenizer.json.d");
  EXPECT_THAT(write(true), HasSubstr("holds tokenizer.json.d"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1) << "nothing is left beside the folder";
}

// No file may grow beyond `bytes` while this lives: a disk that is full.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit = {bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &before_); }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
};

TEST(SyntheticOutput, LeavesNothingAfterAFailure) {
  const TemporaryFolder folder;
  const FileSizeLimit limit(200 << 10);
  const Status status = write_synthetic(test::nano_config(), nano_tokens(), {}, folder.path() / "nano");
  EXPECT_THAT(std::string(status.message()), HasSubstr("cannot write"));
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(SyntheticOutput, AsksForRoomFirst) {
  const TemporaryFolder folder;
  const FileSizeLimit limit(200 << 10);  // so that nothing large is written where the question is missing
  const Config whole = slice({.has_draft = true, .has_vision = true}).value();
  if (fs::space(folder.path()).available > 550'000'000'000) GTEST_SKIP() << "this disk has room for the release";
  const Status status = write_synthetic(whole, nano_tokens(), {}, folder.path() / "whole");
  EXPECT_EQ(status.code(), Code::kExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("has room for"));
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(SyntheticOutput, ReportsProgress) {
  const TemporaryFolder folder;
  int64_t last = 0, total = 0;
  SyntheticOutput output;
  output.progress = [&](int64_t done, int64_t all) {
    EXPECT_GT(done, last);
    last = done;
    total = all;
  };
  ASSERT_TRUE(write_synthetic(test::nano_config(), nano_tokens(), output, folder.path() / "nano").ok());
  EXPECT_EQ(last, total);
  EXPECT_EQ(total, checkpoint_totals(test::nano_config()).bytes);
}

}  // namespace
}  // namespace ps::checkpoint
