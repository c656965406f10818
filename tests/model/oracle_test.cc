// The backbone in f32 compute against another implementation's recorded run, and bit for bit against our independent
// restatement.
#include <cmath>
#include <map>

#include "tests/model/golden_data.h"

namespace ps::tests {
namespace {

class Oracle : public ::testing::TestWithParam<const char*> {};

// 2e-5 of a position's logit range, at every position: the places where a quantizer sits on a rounding edge are listed
// in the golden itself, which holds the other implementation's values with our codes there.
TEST_P(Oracle, LogitsAgreeWithAnotherImplementation) {
  const Golden golden(std::string("oracle/") + GetParam());
  ASSERT_TRUE(golden.ok());
  const auto runner = golden.runner({.compute = DType::kF32});
  ASSERT_NE(runner, nullptr);
  const std::vector<float> logits = all_logits(*runner, golden.ids());
  const Recorded expected = golden.get("logits");
  ASSERT_EQ(logits.size(), expected.floats.size());
  const auto vocabulary = static_cast<size_t>(expected.row_size());
  for (size_t row = 0; row < golden.ids().size(); ++row) {
    const auto first = expected.floats.begin() + static_cast<std::ptrdiff_t>(row * vocabulary);
    const auto [low, high] = std::minmax_element(first, first + static_cast<std::ptrdiff_t>(vocabulary));
    float worst = 0;
    for (size_t k = 0; k < vocabulary; ++k)
      worst = std::max(worst, std::fabs(logits[row * vocabulary + k] - first[static_cast<std::ptrdiff_t>(k)]));
    EXPECT_LE(worst, 2e-5f * (*high - *low)) << "position " << row;
  }
}

TEST_P(Oracle, LogitsEqualTheRestatementBitForBit) {
  const Golden golden(std::string("oracle/") + GetParam());
  ASSERT_TRUE(golden.ok());
  const auto runner = golden.runner({.compute = DType::kF32});
  ASSERT_NE(runner, nullptr);
  EXPECT_EQ(all_logits(*runner, golden.ids()), golden.get("logits_reference").floats);
}

TEST_P(Oracle, SelectionsAndExpertsAreTheSame) {
  const Golden golden(std::string("oracle/") + GetParam());
  ASSERT_TRUE(golden.ok());
  const auto runner = golden.runner({.compute = DType::kF32});
  ASSERT_NE(runner, nullptr);
  Recorder recorder;
  runner->observe(&recorder);
  (void)all_logits(*runner, golden.ids());
  const std::map<std::string, std::string> names = {
      {"indexer.selected", "index.selected"}, {"indexer.candidates", "index.blocks"}, {"moe.experts", "ffn.experts"}};
  int compared = 0;
  for (const auto& [key, got] : recorder.integers) {
    const size_t dot = key.find('.');
    const std::string recorded_name = key.substr(0, dot + 1) + names.at(key.substr(dot + 1));
    if (!golden.has(recorded_name)) continue;
    const Recorded expected = golden.get(recorded_name);
    const int64_t rows = expected.shape[0];
    const int64_t columns = expected.row_size();
    const int64_t stride = static_cast<int64_t>(got.size()) / rows;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t k = 0; k < columns; ++k) {
        ASSERT_EQ(got[static_cast<size_t>(row * stride + k)], expected.integers[static_cast<size_t>(row * columns + k)])
            << recorded_name << " position " << row << " entry " << k;
      }
    }
    ++compared;
  }
  EXPECT_GE(compared, static_cast<int>(golden.checkpoint().topology().layers.size()));
}

TEST_P(Oracle, ResidualsAgreeLayerByLayer) {
  const Golden golden(std::string("oracle/") + GetParam());
  ASSERT_TRUE(golden.ok());
  const auto runner = golden.runner({.compute = DType::kF32});
  ASSERT_NE(runner, nullptr);
  Recorder recorder;
  runner->observe(&recorder);
  (void)all_logits(*runner, golden.ids());
  const std::vector<int64_t> positions = golden.get("positions").integers;
  for (size_t layer = 0; layer < golden.checkpoint().topology().layers.size(); ++layer) {
    const std::string name = "L" + std::to_string(layer);
    const Recorded expected = golden.get(name + ".h");
    const std::vector<float>& got = recorder.values.at(name + ".ffn.h");
    const auto width = static_cast<size_t>(expected.row_size());
    float largest = 0;
    float worst = 0;
    for (size_t i = 0; i < positions.size(); ++i) {
      for (size_t k = 0; k < width; ++k) {
        const float value = expected.floats[i * width + k];
        largest = std::max(largest, std::fabs(value));
        worst = std::max(worst, std::fabs(got[static_cast<size_t>(positions[i]) * width + k] - value));
      }
    }
    EXPECT_LE(worst, 1e-5f * largest) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, Oracle, ::testing::Values("short", "topk", "blocks"));

}  // namespace
}  // namespace ps::tests
