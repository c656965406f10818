// FP8/FP4 checkpoints in BF16 compute against an independent restatement of model.md: every rounding point, bit for
// bit.
#include <map>

#include "tests/model/golden_data.h"

namespace ps::tests {
namespace {

// Our observation points and the recorded tensors they must equal.
const std::map<std::string, std::string>& point_names() {
  static const std::map<std::string, std::string> names = {
      {"engram.h", "engram.h"},
      {"attn.x", "attn.x"},
      {"attn.qr", "attn.qr"},
      {"attn.q", "attn.q"},
      {"attn.kv", "attn.kv"},
      {"compressor.latent", "comp.latent"},
      {"indexer.key", "index.k_rope"},
      {"indexer.q", "index.q"},
      {"indexer.w", "index.w"},
      {"attn.o", "attn.o_raw"},
      {"attn.o_low", "attn.wo_a"},
      {"attn.y", "attn.y"},
      {"attn.h", "attn.h"},
      {"ffn.x", "ffn.x"},
      {"moe.y", "ffn.y"},
      {"ffn.h", "h"},
  };
  return names;
}

TEST(Native, EveryRoundingPointOfTwoLayersIsBitEqual) {
  const Golden golden("native/native2");
  ASSERT_TRUE(golden.ok());
  const auto runner = golden.runner({});
  ASSERT_NE(runner, nullptr);
  Recorder recorder;
  runner->observe(&recorder);
  const std::vector<float> logits = all_logits(*runner, golden.ids());
  int compared = 0;
  for (const auto& [key, got] : recorder.values) {
    const size_t dot = key.find('.');
    const auto name = point_names().find(key.substr(dot + 1));
    if (name == point_names().end()) continue;
    const Recorded expected = golden.get(key.substr(0, dot + 1) + name->second);
    ASSERT_EQ(got.size(), expected.floats.size()) << key;
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i], expected.floats[i]) << key << " row " << static_cast<int64_t>(i) / expected.row_size()
                                            << " channel " << static_cast<int64_t>(i) % expected.row_size();
    }
    ++compared;
  }
  EXPECT_EQ(compared, 31);  // 15 points of a layer twice, and one Engram layer
  EXPECT_EQ(recorder.values.at("head.x"), golden.get("final.x").floats);
  EXPECT_EQ(logits, golden.get("logits").floats);
}

TEST(Native, SixLayersAreBitEqualEndToEnd) {
  const Golden golden("native/native6");
  ASSERT_TRUE(golden.ok());
  const auto runner = golden.runner({});
  ASSERT_NE(runner, nullptr);
  Recorder recorder;
  runner->observe(&recorder);
  const std::vector<float> logits = all_logits(*runner, golden.ids());
  for (int layer = 0; layer < 6; ++layer) {
    const std::string name = "L" + std::to_string(layer);
    EXPECT_EQ(recorder.values.at(name + ".ffn.h"), golden.get(name + ".h").floats) << name;
  }
  EXPECT_EQ(logits, golden.get("logits").floats);
}

}  // namespace
}  // namespace ps::tests
