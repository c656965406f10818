// Opening checkpoint folders: every deviation from the schema is an error that names the tensor (pitfalls B5, G5).
#include "checkpoint/checkpoint.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>

#include "base/number_formats.h"
#include "checkpoint/schema.h"
#include "checkpoint/test_data.h"

namespace ps::checkpoint {
namespace {

namespace fs = std::filesystem;
using test::StoredTensor;
using test::TemporaryFolder;
using testing::HasSubstr;

int all_tensors(std::string_view) { return 0; }
bool all_rows(std::string_view) { return true; }

class CheckpointTest : public testing::Test {
 protected:
  // One checkpoint is written; each test gets its own copy.
  static void SetUpTestSuite() {
    original_ = std::make_unique<TemporaryFolder>();
    test::write_nano(original_->path() / "nano");
  }
  static void TearDownTestSuite() { original_.reset(); }
  void SetUp() override { fs::copy(original_->path() / "nano", folder()); }

  [[nodiscard]] fs::path folder() const { return temporary_.path() / "nano"; }
  [[nodiscard]] fs::path index_path() const { return folder() / "model.safetensors.index.json"; }
  [[nodiscard]] std::string message() const {
    const Result<Checkpoint> checkpoint = Checkpoint::open(folder());
    return checkpoint.ok() ? "opened" : std::string(checkpoint.status().message());
  }

  static std::string shard_of(std::string_view name) {
    std::string file;
    const Config config = test::nano_config();
    for_each_tensor(config, Storage::kOfficial, [&](const TensorSpec& spec) {
      if (spec.name == name) file = shard_file_name(spec.shard, num_shards(config));
    });
    EXPECT_FALSE(file.empty()) << name;
    return file;
  }

  // Lets `change` edit the tensors of one shard, and the index follow.
  void edit_shard(const std::string& file, const std::function<void(std::vector<StoredTensor>&)>& change) const {
    std::vector<StoredTensor> tensors = test::load_shard(folder() / file);
    change(tensors);
    test::store_shard(folder() / file, std::move(tensors));
    rewrite_index();
  }
  // Lets `change` edit one tensor.
  void edit(std::string_view name, const std::function<void(StoredTensor&)>& change) const {
    edit_shard(shard_of(name), [&](std::vector<StoredTensor>& tensors) {
      for (StoredTensor& tensor : tensors) {
        if (tensor.declaration.name == name) return change(tensor);
      }
      FAIL() << name;
    });
  }
  static void erase(std::vector<StoredTensor>& tensors, std::string_view name) {
    const auto removed = std::erase_if(tensors, [&](const StoredTensor& t) { return t.declaration.name == name; });
    EXPECT_EQ(removed, 1u) << name;
  }
  void remove(std::string_view name) const {
    edit_shard(shard_of(name), [&](std::vector<StoredTensor>& tensors) { erase(tensors, name); });
  }
  // Stores a linear as BF16 zeros of its logical shape, and its scale not at all.
  void dequantize(const std::string& prefix, int64_t rows, int64_t columns) const {
    edit_shard(shard_of(prefix + ".weight"), [&](std::vector<StoredTensor>& tensors) {
      erase(tensors, prefix + ".weight");
      erase(tensors, prefix + ".scale");
      tensors.push_back({{prefix + ".weight", DType::kBF16, {rows, columns}},
                         std::vector<std::byte>(static_cast<size_t>(2 * rows * columns))});
    });
  }

  void rewrite_index() const {
    std::string text = "{\"weight_map\": {";
    for (const fs::directory_entry& entry : fs::directory_iterator(folder())) {
      if (entry.path().extension() != ".safetensors") continue;
      for (const StoredTensor& tensor : test::load_shard(entry.path())) {
        if (text.back() != '{') text += ',';
        text += "\"" + tensor.declaration.name + "\":\"" + entry.path().filename().string() + "\"";
      }
    }
    write_index(text + "}}");
  }
  void write_index(const std::string& text) const { ASSERT_TRUE(write_file(index_path(), text).ok()); }
  void edit_text(const fs::path& path, std::string_view from, std::string_view to) const {
    std::string text = read_file(path, 1 << 26).value();
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    ASSERT_TRUE(write_file(path, text.replace(at, from.size(), to)).ok());
  }

 private:
  inline static std::unique_ptr<TemporaryFolder> original_;
  TemporaryFolder temporary_;
};

TEST_F(CheckpointTest, OpensAndGivesViews) {
  const Result<Checkpoint> opened = Checkpoint::open(folder());
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  const Checkpoint& checkpoint = opened.value();
  const CheckpointTotals totals = checkpoint_totals(checkpoint.config());
  EXPECT_EQ(checkpoint.num_tensors(), totals.tensors);
  EXPECT_EQ(checkpoint.payload_bytes(), totals.bytes);
  EXPECT_EQ(checkpoint.topology().count(LayerRole::kFull), 3);
  EXPECT_EQ(checkpoint.tokenizer_path(), folder() / "tokenizer.json");
  EXPECT_EQ(checkpoint.find("layers.0.attn.wq_a"), nullptr);
  EXPECT_EQ(checkpoint.tensor("layers.0.hc_attn_fn").shape, (Shape{24, 512}));

  const auto expect = [&](const char* prefix, WeightFormat format, int64_t rows, int64_t columns) {
    const MatrixView view = checkpoint.matrix(prefix);
    EXPECT_EQ(view.format, format) << prefix << " " << weight_format_name(view.format);
    EXPECT_EQ(view.rows, rows) << prefix;
    EXPECT_EQ(view.columns, columns) << prefix;
    EXPECT_EQ(view.scale != nullptr, format != WeightFormat::kBf16) << prefix;
  };
  expect("layers.3.attn.wq_a", WeightFormat::kFp8Block, 96, 128);
  expect("layers.3.ffn.experts.15.w2", WeightFormat::kFp4Row, 128, 64);
  expect("layers.1.engram.embed", WeightFormat::kFp8Row, checkpoint.config().text_config.engram_num_embeddings[0], 32);
  expect("embed", WeightFormat::kBf16, 512, 128);
  // Views lie in the file, in the order of the schema's names: compare with the shard's own bytes.
  const std::vector<StoredTensor> shard = test::load_shard(folder() / shard_of("norm.weight"));
  const TensorView& norm = checkpoint.tensor("norm.weight");
  const auto stored =
      std::find_if(shard.begin(), shard.end(), [](const auto& t) { return t.declaration.name == "norm.weight"; });
  ASSERT_NE(stored, shard.end());
  EXPECT_EQ(std::memcmp(norm.data, stored->bytes.data(), stored->bytes.size()), 0);
}

TEST_F(CheckpointTest, NamesARenamedTensor) {
  edit("mtp.1.ffn.shared_experts.w1.weight",
       [](StoredTensor& t) { t.declaration.name = "mtp.1.ffn.shared_expert.w1.weight"; });
  const std::string text = message();
  EXPECT_THAT(text, HasSubstr("mtp.1.ffn.shared_experts.w1.weight is missing"));
  EXPECT_THAT(text, HasSubstr("mtp.1.ffn.shared_expert.w1.weight is not a tensor of this model"));
  EXPECT_THAT(text, HasSubstr("2 mismatches"));
}

TEST_F(CheckpointTest, NamesMissingTensors) {
  remove("layers.2.attn.compressor.wgate.weight");
  EXPECT_THAT(message(), HasSubstr("layers.2.attn.compressor.wgate.weight is missing"));
}

TEST_F(CheckpointTest, NamesAMissingScale) {
  remove("layers.7.ffn.experts.3.w2.scale");
  EXPECT_THAT(message(), HasSubstr("1 mismatch; layers.7.ffn.experts.3.w2.scale is missing"));
}

TEST_F(CheckpointTest, NamesExtraTensors) {
  // At ratio 1 the compressor has no gate.
  edit_shard(shard_of("layers.6.attn_norm.weight"), [](std::vector<StoredTensor>& tensors) {
    tensors.push_back(
        {{"layers.6.attn.compressor.wgate.weight", DType::kBF16, {64, 128}}, std::vector<std::byte>(64 * 128 * 2)});
  });
  EXPECT_THAT(message(), HasSubstr("1 mismatch; layers.6.attn.compressor.wgate.weight is not a tensor of this model"));
}

TEST_F(CheckpointTest, NamesAMisshapedTensor) {
  edit("layers.4.engram.wkv.weight",
       [](StoredTensor& t) { std::swap(t.declaration.shape.dims[0], t.declaration.shape.dims[1]); });
  EXPECT_THAT(
      message(),
      HasSubstr(
          "layers.4.engram.wkv.weight is F8_E4M3 [192, 640], expected F8_E4M3 [640, 192] or BF16 or F32 [640, 192]"));
}

TEST_F(CheckpointTest, NamesAMistypedTensor) {
  // mHC weights in BF16 would be a quiet loss (pitfalls D3).
  edit("layers.0.hc_ffn_base", [](StoredTensor& t) {
    t.declaration.dtype = DType::kBF16;
    t.bytes.resize(48);
  });
  EXPECT_THAT(message(), HasSubstr("layers.0.hc_ffn_base is BF16 [24], expected F32 [24]"));
}

TEST_F(CheckpointTest, NamesAMistypedScale) {
  edit("layers.0.attn.wkv.scale", [](StoredTensor& t) { t.declaration.dtype = DType::kF8E4M3; });
  EXPECT_THAT(message(), HasSubstr("layers.0.attn.wkv.scale is F8_E4M3 [2, 4], expected F8_E8M0 [2, 4]"));
}

// Engram tables without their scales would be wrong by powers of two.
TEST_F(CheckpointTest, RefusesATableWithoutScales) {
  remove("layers.1.engram.embed.scale");
  EXPECT_THAT(message(), HasSubstr("layers.1.engram.embed.scale is missing"));
}

TEST_F(CheckpointTest, ListsTheFirstTwentyAndTheCount) {
  edit_shard(shard_of("layers.9.attn_norm.weight"), [](std::vector<StoredTensor>& tensors) {
    std::erase_if(tensors,
                  [](const StoredTensor& t) { return t.declaration.name.find(".ffn.experts.") != std::string::npos; });
  });
  const std::string text = message();
  EXPECT_THAT(text, HasSubstr("tensors: 96 mismatches"));  // 16 experts x 6
  EXPECT_THAT(text, HasSubstr("layers.9.ffn.experts.0.w1.weight is missing"));
  EXPECT_THAT(text, HasSubstr("and 76 more"));
  EXPECT_EQ(std::count(text.begin(), text.end(), ';'), 21);
}

TEST_F(CheckpointTest, AdmitsSingleLinearsUnquantized) {
  dequantize("layers.5.attn.wo_a", 64, 128);
  const Result<Checkpoint> checkpoint = Checkpoint::open(folder());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().to_string();
  EXPECT_EQ(checkpoint.value().matrix("layers.5.attn.wo_a").format, WeightFormat::kBf16);
}

TEST_F(CheckpointTest, RefusesExpertsOfMixedFormats) {
  dequantize("layers.5.ffn.experts.4.w3", 64, 128);
  EXPECT_THAT(
      message(),
      HasSubstr("1 mismatch; layers.5.ffn.experts.4.w3.weight is BF16, the first expert of its layer FP4 1x32"));
}

TEST_F(CheckpointTest, RefusesAScaleWithoutQuantizedWeight) {
  edit_shard(shard_of("layers.5.attn.wo_a.weight"), [](std::vector<StoredTensor>& tensors) {
    erase(tensors, "layers.5.attn.wo_a.weight");
    tensors.push_back({{"layers.5.attn.wo_a.weight", DType::kBF16, {64, 128}}, std::vector<std::byte>(64 * 128 * 2)});
  });
  EXPECT_THAT(message(), HasSubstr("layers.5.attn.wo_a.scale belongs to a weight that is not quantized"));
}

TEST_F(CheckpointTest, RefusesQuantizedTensorsOfAnUnquantizedConfig) {
  Config config = test::nano_config();
  config.quantization_config.reset();
  ASSERT_TRUE(write_file(folder() / "config.json", write_config(config)).ok());
  const std::string text = message();
  EXPECT_THAT(text, HasSubstr("layers.0.attn.wq_a.weight is F8_E4M3 [96, 128], expected BF16 or F32 [96, 128]"));
  EXPECT_THAT(text, HasSubstr("config.json has no quantization_config"));
}

TEST_F(CheckpointTest, ReadsOneFileWithoutIndex) {
  std::vector<StoredTensor> all;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder())) {
    if (entry.path().extension() != ".safetensors") continue;
    std::vector<StoredTensor> shard = test::load_shard(entry.path());
    std::move(shard.begin(), shard.end(), std::back_inserter(all));
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(folder())) {
    if (entry.path().filename().string().starts_with("model")) fs::remove(entry.path());
  }
  EXPECT_THAT(message(), HasSubstr("shard model.safetensors is missing"));
  test::store_shard(folder() / "model.safetensors", std::move(all));
  EXPECT_EQ(message(), "opened");
}

TEST_F(CheckpointTest, RefusesAnIndexThatContradictsTheShards) {
  const std::string norm = shard_of("norm.weight");
  edit_text(index_path(), "\"norm.weight\": \"" + norm + "\"", "\"norm.weight\": \"" + shard_of("embed.weight") + "\"");
  EXPECT_THAT(message(), HasSubstr("norm.weight is in " + norm + ", the index says " + shard_of("embed.weight")));
}

TEST_F(CheckpointTest, RefusesAnIndexWithTensorsThatNoShardHas) {
  edit_text(index_path(),
            "\"norm.weight\":", "\"ghost.weight\": \"" + shard_of("norm.weight") + "\", \"norm.weight\":");
  EXPECT_THAT(message(), HasSubstr("ghost.weight is in the index, but not in " + shard_of("norm.weight")));
}

TEST_F(CheckpointTest, RefusesShardTensorsThatTheIndexOmits) {
  edit_text(index_path(), "\"norm.weight\": \"" + shard_of("norm.weight") + "\", ", "");
  EXPECT_THAT(message(), HasSubstr("norm.weight in " + shard_of("norm.weight") + " is not in the index"));
}

TEST_F(CheckpointTest, RefusesMissingAndTruncatedShards) {
  const fs::path shard = folder() / shard_of("layers.3.attn_norm.weight");
  fs::resize_file(shard, fs::file_size(shard) - 1);
  EXPECT_THAT(message(), HasSubstr("the file is truncated"));
  fs::remove(shard);
  EXPECT_THAT(message(), HasSubstr("shard " + shard.filename().string() + " is missing"));
}

TEST_F(CheckpointTest, RefusesHostileIndexes) {
  for (const char* name : {"../x.safetensors", "/etc/passwd", "", "..", "a/b"}) {
    write_index(std::string("{\"weight_map\": {\"norm.weight\": \"") + name + "\"}}");
    EXPECT_THAT(message(), HasSubstr("norm.weight: its shard is no file name of this folder")) << name;
  }
  write_index("{\"weight_map\": {\"a\": 1}}");
  EXPECT_THAT(message(), HasSubstr("a: its shard is no file name"));
  write_index("{\"weight_map\": {\"a\": \"x\", \"a\": \"y\"}}");
  EXPECT_THAT(message(), HasSubstr("a occurs twice"));
  write_index("{}");
  EXPECT_THAT(message(), HasSubstr("weight_map is missing"));
  write_index("{");
  EXPECT_THAT(message(), HasSubstr("model.safetensors.index.json"));
}

TEST_F(CheckpointTest, RefusesFoldersThatAreNone) {
  EXPECT_EQ(Checkpoint::open(folder() / "none").status().code(), Code::kNotFound);
  fs::remove(folder() / "config.json");
  EXPECT_EQ(Checkpoint::open(folder()).status().code(), Code::kNotFound);
}

// Whoever may only read can open, and nothing is written beside the files (pitfalls G5).
TEST_F(CheckpointTest, WorksInAReadOnlyFolder) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder()))
    fs::permissions(entry.path(), fs::perms{0444});
  fs::permissions(folder(), fs::perms{0555});
  fs::permissions(folder().parent_path(), fs::perms{0755});
  const auto open_unprivileged = [this] {
    constexpr uid_t kNobody = 65534;
    if (geteuid() == 0 && setuid(kNobody) != 0) std::_Exit(2);
    const std::ofstream probe(folder() / "probe");
    if (probe.is_open()) std::_Exit(3);
    const Result<Checkpoint> checkpoint = Checkpoint::open(folder());
    std::fprintf(stderr, "%s\n", checkpoint.status().to_string().c_str());
    std::_Exit(checkpoint.ok() && checkpoint.value().load(all_tensors, 2, {}).ok() ? 0 : 1);
  };
  EXPECT_EXIT(open_unprivileged(), testing::ExitedWithCode(0), "");
  fs::permissions(folder(), fs::perms::owner_all);
}

// Has the page cache forget most of the shards; false where the file system keeps them all the same. NOTE: whoever
// opens a small file has the system read all of it, so this comes after.
bool drop_shards(const fs::path& folder) {
  int64_t cached = 0;
  int64_t all = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    const int descriptor = open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
    fsync(descriptor);  // what is not on the disk yet stays
    close(descriptor);
    const MappedFile file = MappedFile::open(entry.path()).value();
    file.forget(0, file.size_bytes());
    const auto pages = file.cached_pages(0, file.size_bytes());
    if (!pages) return false;
    cached += pages->cached;
    all += pages->all;
  }
  return cached < all / 2;
}

TEST_F(CheckpointTest, AColdStartReadsWhatComesAndAWarmOneNothing) {
  const Checkpoint checkpoint = Checkpoint::open(folder()).value();
  if (!drop_shards(folder())) GTEST_SKIP() << "the file system keeps its files in memory";
  const auto no_experts = [](std::string_view name) {
    return name.find(".experts.") == std::string_view::npos ? 0 : -1;
  };
  int64_t last = -1;
  int64_t total = 0;
  const auto progress = [&](int64_t done, int64_t all) {
    EXPECT_GE(done, last);
    last = done;
    total = all;
    return true;
  };
  EXPECT_EQ(checkpoint.load(all_tensors, 2, [](int64_t, int64_t) { return false; }).status().code(), Code::kCancelled);
  const LoadFigures cold = checkpoint.load(no_experts, 2, progress).value();
  EXPECT_EQ(cold.total_bytes, checkpoint.load_bytes(no_experts));
  EXPECT_LT(cold.cached_bytes, cold.total_bytes);
  EXPECT_GT(total, 0);
  EXPECT_EQ(last, total) << "the last report is not of the end";
  ASSERT_TRUE(checkpoint.load(all_tensors, 2, {}).ok());
  last = -1;
  const LoadFigures warm = checkpoint.load(all_tensors, 2, progress).value();
  EXPECT_EQ(warm.total_bytes, checkpoint.payload_bytes());
  EXPECT_EQ(warm.cached_bytes, warm.total_bytes);
  EXPECT_EQ(total, 0) << "a warm start has nothing to do";
}

TEST_F(CheckpointTest, CopiesHoldTheBytesOfTheFileInMemoryOfTheirOwn) {
  const Checkpoint mapped = Checkpoint::open(folder()).value();
  const auto no_vision = [](std::string_view name) { return name.starts_with("vision.") ? -1 : name == "head.weight"; };
  const auto splits = [](std::string_view name) { return name.ends_with(".weight"); };
  // Node 1 may not exist: placing is advice.
  const std::vector<NodeShare> shares = {{0, 0, 0.5}, {1, 0.5, 1}};
  for (const bool is_cold : {false, true}) {
    Checkpoint copied = Checkpoint::open(folder()).value();
    if (is_cold) (void)drop_shards(folder());
    EXPECT_FALSE(copied.has_copies());
    ASSERT_TRUE(copied.copy_on_load(no_vision, splits, shares).ok());
    EXPECT_TRUE(copied.has_copies());
    int64_t last = 0;
    const auto progress = [&](int64_t done, int64_t) { return (last = done) >= 0; };
    EXPECT_EQ(copied.load(no_vision, 3, progress).value().total_bytes, copied.load_bytes(no_vision));
    EXPECT_EQ(last, copied.load_bytes(no_vision));
    const Checkpoint moved = std::move(copied);
    for (const std::string name : {"embed.weight", "head.weight", "norm.weight", "layers.0.attn.wq_a.weight",
                                   "layers.0.attn.wq_a.scale", "layers.3.ffn.experts.1.w2.weight"}) {
      const TensorView& a = mapped.tensor(name);
      const TensorView& b = moved.tensor(name);
      ASSERT_EQ(a.size_bytes, b.size_bytes) << name;
      EXPECT_EQ(std::memcmp(a.data, b.data, static_cast<size_t>(a.size_bytes)), 0) << name;
      EXPECT_EQ(reinterpret_cast<uintptr_t>(b.data) % 64, 0) << name;
    }
    EXPECT_EQ(moved.matrix("layers.0.attn.wq_a").data, moved.tensor("layers.0.attn.wq_a.weight").data);
  }
}

// The file lost its last byte: what comes before the tensor that had it is read, what comes after is not.
TEST_F(CheckpointTest, TensorsComeInTheOrderOfTheirStages) {
  const Checkpoint whole = Checkpoint::open(folder()).value();
  const auto shard_end = [&](const fs::path& path) {
    const SafetensorsFile file = SafetensorsFile::open(path).value();
    return std::max_element(file.entries().begin(), file.entries().end(),
                            [](const auto& a, const auto& b) { return a.end < b.end; })
        ->name;
  };
  std::string last;
  fs::path shard;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder())) {
    if (entry.path().extension() != ".safetensors") continue;
    shard = entry.path();
    last = shard_end(shard);
  }
  const std::string other = last == "norm.weight" ? "embed.weight" : "norm.weight";
  for (const bool is_last_first : {false, true}) {
    const auto stage = [&](std::string_view name) {
      return name == last ? (is_last_first ? 0 : 2) : name == other ? 1 : -1;
    };
    Checkpoint copied = Checkpoint::open(folder()).value();
    ASSERT_TRUE(copied.copy_on_load(stage, all_rows, {}).ok());
    const auto size = fs::file_size(shard);
    fs::resize_file(shard, size - 1);
    EXPECT_EQ(copied.load(stage, 1, {}).status().code(), Code::kCorrupt);
    fs::resize_file(shard, size);
    const TensorView& view = copied.tensor(other);
    const bool is_there = std::memcmp(view.data, whole.tensor(other).data, static_cast<size_t>(view.size_bytes)) == 0;
    EXPECT_EQ(is_there, !is_last_first) << last;
  }
}

TEST_F(CheckpointTest, AFileThatShrinksIsAnErrorAndNoCrash) {
  Checkpoint checkpoint = Checkpoint::open(folder()).value();
  ASSERT_TRUE(checkpoint.copy_on_load(all_tensors, all_rows, {}).ok());
  for (const fs::directory_entry& entry : fs::directory_iterator(folder())) {
    if (entry.path().extension() == ".safetensors") fs::resize_file(entry.path(), 8192);
  }
  const Status status = checkpoint.load(all_tensors, 2, {}).status();
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_NE(status.message().find(".safetensors: shrank"), std::string::npos) << status.message();
  const Status mapped = Checkpoint::open(folder()).status();
  EXPECT_FALSE(mapped.ok());
}

// Checkpoints that another program wrote: the golden ones of the reference.
TEST(CheckpointGolden, OpensCheckpointsOfTheReference) {
  int opened = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(fs::path(PAGESTATE_TEST_DATA) / "golden" / "native")) {
    if (!fs::exists(entry.path() / "config.json")) continue;
    const Result<Checkpoint> checkpoint = Checkpoint::open(entry.path());
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().to_string();
    ++opened;
  }
  EXPECT_GE(opened, 1);
}

}  // namespace
}  // namespace ps::checkpoint
