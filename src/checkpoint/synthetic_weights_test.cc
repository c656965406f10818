// Tensors of several pieces: they differ, they join to the whole, and each decodes with the scales of its own piece.
#include "checkpoint/synthetic_weights.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/number_formats.h"
#include "checkpoint/test_data.h"

namespace ps::checkpoint {
namespace {

struct Case {
  const char* name;  // without suffix; chosen so that a recipe exists
  Form weight;
  Form scale;
  int64_t rows;
  int64_t columns;
  int64_t scale_rows;
};

constexpr Case kCases[] = {
    {"layers.0.attn.wq_a", Form::kBlockWeight, Form::kBlockScale, 352, 4096, 32},
    {"layers.0.ffn.experts.0.w1", Form::kFp4Weight, Form::kFp4Scale, 352, 4096, 1},
    {"layers.1.engram.embed", Form::kTableWeight, Form::kTableScale, 20011, 32, 1},
};

TensorSpec weight_spec(const Case& c, Storage storage) {
  TensorSpec spec;
  spec.name = std::string(c.name) + ".weight";
  spec.form = c.weight;
  spec.logical_shape = spec.shape = {c.rows, c.columns};
  spec.dtype = storage == Storage::kF32 ? DType::kF32 : DType::kF8E4M3;
  if (storage == Storage::kOfficial && c.weight == Form::kFp4Weight) {
    spec.dtype = DType::kI8;
    spec.shape = {c.rows, c.columns / 2};
  }
  return spec;
}

TensorSpec scale_spec(const Case& c) {
  TensorSpec spec;
  spec.name = std::string(c.name) + ".scale";
  spec.form = c.scale;
  spec.dtype = DType::kF8E8M0;
  spec.logical_shape = spec.shape = {c.rows / c.scale_rows, c.columns / 32};
  return spec;
}

std::vector<std::byte> fill_all(const SyntheticWeights& weights, const TensorSpec& spec) {
  std::vector<std::byte> all;
  std::vector<std::byte> piece(static_cast<size_t>(SyntheticWeights::piece_bytes(spec)));
  for (int64_t i = 0; i < SyntheticWeights::num_pieces(spec); ++i) {
    const int64_t bytes = weights.fill(spec, i, piece.data());
    EXPECT_LE(bytes, SyntheticWeights::piece_bytes(spec)) << spec.name;
    all.insert(all.end(), piece.begin(), piece.begin() + bytes);
  }
  return all;
}

TEST(SyntheticWeights, PiecesJoinToWholeTensors) {
  const Config config = test::nano_config();
  const SyntheticWeights official(config, Storage::kOfficial, 5);
  const SyntheticWeights decoded(config, Storage::kF32, 5);
  for (const Case& c : kCases) {
    const TensorSpec spec = weight_spec(c, Storage::kOfficial);
    const TensorSpec scale = scale_spec(c);
    ASSERT_GT(SyntheticWeights::num_pieces(spec), 2) << c.name;
    EXPECT_EQ(SyntheticWeights::num_pieces(spec), SyntheticWeights::num_pieces(scale)) << c.name;
    const std::vector<std::byte> codes = fill_all(official, spec);
    const std::vector<std::byte> scales = fill_all(official, scale);
    const std::vector<std::byte> values = fill_all(decoded, weight_spec(c, Storage::kF32));
    ASSERT_EQ(static_cast<int64_t>(codes.size()), spec.size_bytes()) << c.name;
    ASSERT_EQ(static_cast<int64_t>(scales.size()), scale.size_bytes()) << c.name;
    ASSERT_EQ(static_cast<int64_t>(values.size()), c.rows * c.columns * 4) << c.name;
    const auto* code_bytes = reinterpret_cast<const uint8_t*>(codes.data());
    for (int64_t i = 0; i < c.rows * c.columns; ++i) {
      const int64_t block = i / c.columns / c.scale_rows * (c.columns / 32) + i % c.columns / 32;
      const float code =
          c.weight == Form::kFp4Weight ? e2m1_to_float(fp4_nibble(code_bytes, i)) : e4m3_to_float(code_bytes[i]);
      float value = 0;
      std::memcpy(&value, values.data() + 4 * i, sizeof value);
      ASSERT_EQ(value, code * e8m0_to_float(std::to_integer<uint8_t>(scales[static_cast<size_t>(block)])))
          << c.name << " " << i;
    }
  }
}

TEST(SyntheticWeights, PiecesAndTensorsDiffer) {
  const Config config = test::nano_config();
  const SyntheticWeights weights(config, Storage::kOfficial, 5);
  TensorSpec spec;
  spec.name = "embed.weight";
  spec.shape = spec.logical_shape = {8192, 128};
  std::vector<std::byte> first(static_cast<size_t>(SyntheticWeights::piece_bytes(spec)));
  std::vector<std::byte> other(first.size());
  weights.fill(spec, 0, first.data());
  for (int64_t i = 1; i < SyntheticWeights::num_pieces(spec); ++i) {
    weights.fill(spec, i, other.data());
    EXPECT_NE(first, other) << i;
  }
  // Another tensor, another seed; and the same again.
  spec.name = "mtp.2.markov_head.embed.weight";
  weights.fill(spec, 0, other.data());
  EXPECT_NE(first, other);
  spec.name = "embed.weight";
  SyntheticWeights(config, Storage::kOfficial, 6).fill(spec, 0, other.data());
  EXPECT_NE(first, other);
  weights.fill(spec, 0, other.data());
  EXPECT_EQ(first, other);
}

}  // namespace
}  // namespace ps::checkpoint
