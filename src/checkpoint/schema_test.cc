// The schema against the published list of tensors, and every number that design.md 4 asks for.
#include "checkpoint/schema.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <map>
#include <sstream>

#include "base/testing.h"
#include "checkpoint/test_data.h"

namespace ps::checkpoint {
namespace {

using test::config_of_file;

std::vector<std::string> gunzip_lines(const std::filesystem::path& path) {
  std::string text;
  gzFile file = gzopen(path.c_str(), "rb");
  EXPECT_NE(file, nullptr) << path;
  char buffer[1 << 16];
  for (int count; (count = gzread(file, buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(count));
  gzclose(file);
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// "embed.weight<TAB>129280x5120<TAB>BF16", the form of the published list.
std::string list_line(const TensorSpec& spec) {
  std::string line = spec.name + "\t";
  for (int axis = 0; axis < spec.shape.rank; ++axis) line += (axis > 0 ? "x" : "") + std::to_string(spec.shape[axis]);
  return line + "\t" + std::string(dtype_name(spec.dtype));
}

TEST(Schema, IsThePublishedListLineForLine) {
  const std::vector<std::string> lines = gunzip_lines(test::data_path("tensors.tsv.gz"));
  const std::vector<TensorSpec> tensors = expected_tensors(config_of_file());
  ASSERT_EQ(tensors.size(), 96085u);
  ASSERT_EQ(lines.size(), tensors.size());
  for (size_t i = 0; i < lines.size(); ++i) ASSERT_EQ(list_line(tensors[i]), lines[i]) << "line " << i + 1;
}

TEST(Schema, TotalsArePublished) {
  const CheckpointTotals totals = checkpoint_totals(config_of_file());
  EXPECT_EQ(totals.tensors, 96085);
  EXPECT_EQ(totals.bytes, 510286023000);
  EXPECT_EQ(totals.bytes_of(Group::kBackbone), 298624579008);
  EXPECT_EQ(totals.bytes_of(Group::kEngramTable), 202758032400);
  EXPECT_EQ(totals.bytes_of(Group::kDraft), 7932874632);
  EXPECT_EQ(totals.bytes_of(Group::kVision), 970536960);
  EXPECT_EQ(totals.parameters, 763205315794);                          // 763.21 B
  EXPECT_EQ(totals.parameters_per_token, 16792502384);                 // 16.79 B
  EXPECT_EQ(totals.routed_expert_parameters, 543581798400);            // 543.58 B
  EXPECT_EQ(totals.parameters_of(Group::kEngramTable), 196613849600);  // 196.61 B
  EXPECT_EQ(totals.parameters_of(Group::kVision), 485268480);          // 485.3 M
}

TEST(Schema, ShardsArePublished) {
  const Config config = config_of_file();
  std::map<std::string, std::pair<int64_t, int64_t>> found;  // file -> tensors, bytes
  const int count = num_shards(config);
  EXPECT_EQ(count, 48);
  for_each_tensor(config, Storage::kOfficial, [&](const TensorSpec& spec) {
    auto& [tensors, bytes] = found[shard_file_name(spec.shard, count)];
    ++tensors;
    bytes += spec.size_bytes();
  });
  Result<std::string> text = read_file(test::data_path("shards.tsv"), 1 << 20);
  std::istringstream stream(text.value());
  std::string line;
  std::getline(stream, line);  // the heading
  size_t shards = 0;
  for (; std::getline(stream, line); ++shards) {
    std::istringstream row(line);
    std::string name;
    int64_t tensors = 0, bytes = 0;
    row >> name >> tensors >> bytes;
    EXPECT_EQ(found[name], std::make_pair(tensors, bytes)) << name;
  }
  EXPECT_EQ(shards, found.size());
}

TEST(Schema, UnquantizedStorageHoldsTheSameParameters) {
  const Config config = config_of_file();
  const CheckpointTotals official = checkpoint_totals(config);
  const CheckpointTotals bf16 = checkpoint_totals(config, Storage::kBf16);
  const CheckpointTotals f32 = checkpoint_totals(config, Storage::kF32);
  EXPECT_EQ(bf16.parameters, official.parameters);
  EXPECT_EQ(f32.parameters_per_token, official.parameters_per_token);
  EXPECT_LT(bf16.tensors, official.tensors);
  for_each_tensor(config, Storage::kF32, [&](const TensorSpec& spec) {
    ASSERT_FALSE(is_scale(spec.form)) << spec.name;
    ASSERT_EQ(spec.shape, spec.logical_shape) << spec.name;
    if (is_quantized_weight(spec.form)) {
      ASSERT_EQ(spec.dtype, DType::kF32) << spec.name;
    }
  });
}

// Weights whose precision the model needs are no linears: no storage ever quantizes them (pitfalls D3).
TEST(Schema, MixingGatesAndNormsKeepTheirPrecision) {
  for_each_tensor(config_of_file(), Storage::kOfficial, [](const TensorSpec& spec) {
    const auto has = [&](const char* part) { return spec.name.find(part) != std::string::npos; };
    if (has(".hc_")) {
      ASSERT_EQ(spec.dtype, DType::kF32) << spec.name;
    }
    if (has("norm") || has(".gate.weight") || has("k_weight") || has("q_weight")) {
      ASSERT_EQ(spec.dtype, DType::kBF16) << spec.name;
      ASSERT_EQ(spec.form, Form::kPlain) << spec.name;
    }
  });
}

TEST(Schema, LeavesOutWhatAModelDoesNotHave) {
  Config config = config_of_file();
  config.vision_config.reset();
  config.text_config.num_nextn_predict_layers = 0;
  config.text_config.compress_ratios.resize(40);
  config.text_config.engram_layer_ids.clear();
  config.text_config.engram_num_embeddings.clear();
  ASSERT_TRUE(validate(config).empty()) << join_problems(validate(config)).to_string();
  const CheckpointTotals totals = checkpoint_totals(config);
  for (const Group group : {Group::kEngramTable, Group::kDraft, Group::kVision}) EXPECT_EQ(totals.bytes_of(group), 0);
  EXPECT_EQ(num_shards(config), 42);
  for_each_tensor(config, Storage::kOfficial, [](const TensorSpec& spec) { ASSERT_LT(spec.shard, 42) << spec.name; });
}

}  // namespace
}  // namespace ps::checkpoint
