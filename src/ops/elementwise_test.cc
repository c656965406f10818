#include "ops/testing/elementwise_suite.h"

#include <gmock/gmock.h>

#include "base/testing.h"

namespace ps::ops::test {
namespace {

using testing::HasSubstr;

std::vector<float> reals(const JsonValue& object, std::string_view key) {
  std::vector<float> values;
  for (const JsonValue& item : object.find(key)->items()) values.push_back(static_cast<float>(item.real().value()));
  return values;
}

// A row (1, 0) turned by the angle is (cos, sin): the recorded samples of both frequency tables.
TEST(Rope, GivesTheRecordedAngles) {
  const JsonValue vectors = ps::test::load_json("test_vectors.json");
  const JsonValue& rope = *vectors.find("rope");
  const std::vector<float> window = reals(rope, "window_theta10000_inv_freq");
  const std::vector<float> compressed = reals(rope, "compressed_theta160000_yarn16_inv_freq");
  ThreadPool pool(1);
  Arena arena(HostBuffer::allocate(4096).value());
  Exec exec{pool, arena};
  for (const JsonValue& sample : rope.find("samples")->items()) {
    const std::vector<float>& table = sample.find("table")->text() == "window" ? window : compressed;
    const auto position = static_cast<int32_t>(sample.find("pos")->integer().value());
    const int64_t i = sample.find("i")->integer().value();
    Rows x(1, 64, DType::kF32);
    for (int64_t k = 0; k < 64; ++k) x.set(0, k, k % 2 == 0 ? 1.0f : 0.0f);
    ref::rope({x.view(), &position, table.data(), 1, 32, false}, exec);
    EXPECT_NEAR(static_cast<double>(x.at(0, 2 * i)), sample.find("cos")->real().value(), 2e-7) << position << " " << i;
    EXPECT_NEAR(static_cast<double>(x.at(0, 2 * i + 1)), sample.find("sin")->real().value(), 2e-7)
        << position << " " << i;
  }
}

TEST(CheckEmbed, NamesWhatIsWrong) {
  WeightData w(WeightFormat::kBF16, 50, 32);
  Rows h(3, 128, DType::kBF16);
  const std::vector<int32_t> ids = {1, 2, 3};
  const EmbedArgs valid{ids.data(), w.view(), h.view(), 4};
  EXPECT_EQ(check(valid).to_string(), "ok");
  EmbedArgs args = valid;
  args.streams = 3;
  EXPECT_THAT(std::string(check(args).message()), HasSubstr("embed: h is [3, 128], expected [3, 96]"));
  args = valid;
  args.ids = nullptr;
  EXPECT_THAT(std::string(check(args).message()), HasSubstr("ids is null"));
  args = valid;
  WeightData quantized(WeightFormat::kFp4Block32, 50, 32);
  args.w = quantized.view();
  EXPECT_THAT(std::string(check(args).message()), HasSubstr("w is FP4, expected BF16 or F32"));
  args = valid;
  args.streams = 0;
  EXPECT_THAT(std::string(check(args).message()), HasSubstr("streams is 0"));
}

TEST(CheckRmsNorm, NamesWhatIsWrong) {
  Rows x(2, 64, DType::kBF16);
  Rows y(2, 64, DType::kBF16);
  const VectorData w(std::vector<float>(64, 1.0f), DType::kBF16);
  const RmsNormArgs valid{x.view(), w.view(), y.view(), 1e-20f};
  EXPECT_EQ(check(valid).to_string(), "ok");
  EXPECT_EQ(check(RmsNormArgs{x.view(), w.view(), x.view(), 1e-20f}).to_string(), "ok");
  RmsNormArgs args = valid;
  args.w.size = 32;
  EXPECT_THAT(std::string(check(args).message()), HasSubstr("rms_norm: w has 32 values, expected 64"));
  args = valid;
  args.w.dtype = DType::kF8E4M3;
  EXPECT_THAT(std::string(check(args).message()), HasSubstr("w is F8_E4M3, expected BF16 or F32"));
  args = valid;
  args.y.grid = Grid::kMxfp8;
  EXPECT_THAT(std::string(check(args).message()), HasSubstr("claims the MXFP8 grid"));
  args = valid;
  args.y.rows = 1;
  EXPECT_THAT(std::string(check(args).message()), HasSubstr("y is [1, 64], expected [2, 64]"));
  args = valid;
  args.y = x.view();
  args.y.data = static_cast<std::byte*>(args.y.data) + 2;
  EXPECT_THAT(std::string(check(args).message()), HasSubstr("x and y overlap"));
  args = valid;
  args.eps = -1;
  EXPECT_THAT(std::string(check(args).message()), HasSubstr("eps is negative"));
}

TEST(CheckRope, NamesWhatIsWrong) {
  Rows x(2, 64, DType::kBF16);
  const std::vector<int32_t> positions = {0, 1};
  const std::vector<float> frequencies(8);
  const RopeArgs valid{x.view(), positions.data(), frequencies.data(), 4, 8, false};
  EXPECT_EQ(check(valid).to_string(), "ok");
  RopeArgs args = valid;
  args.pairs = 9;
  EXPECT_THAT(std::string(check(args).message()), HasSubstr("rope: 9 pairs do not fit into a head of 16"));
  args = valid;
  args.heads = 3;
  EXPECT_THAT(std::string(check(args).message()), HasSubstr("columns of x is 64, not a multiple of 3"));
  args = valid;
  args.positions = nullptr;
  EXPECT_THAT(std::string(check(args).message()), HasSubstr("positions is null"));
  args = valid;
  args.inverse_frequency = nullptr;
  EXPECT_THAT(std::string(check(args).message()), HasSubstr("inverse_frequency is null"));
  args = valid;
  args.x.grid = Grid::kMxfp8;
  EXPECT_THAT(std::string(check(args).message()), HasSubstr("claims the MXFP8 grid"));
}

TEST(CheckScaleAndCompactRows, NameWhatIsWrong) {
  Rows x(2, 8, DType::kBF16);
  Rows y(2, 9, DType::kBF16);
  EXPECT_THAT(std::string(check(ScaleArgs{x.view(), 1.0f, y.view()}).message()),
              HasSubstr("scale: y is [2, 9], expected [2, 8]"));
  const std::vector<int32_t> rows = {0, 1};
  EXPECT_EQ(check(CompactRowsArgs{x.view().data, 16, rows.data(), 2}).to_string(), "ok");
  EXPECT_THAT(std::string(check(CompactRowsArgs{x.view().data, 0, rows.data(), 2}).message()),
              HasSubstr("compact_rows: row_bytes is 0"));
  EXPECT_THAT(std::string(check(CompactRowsArgs{x.view().data, 16, nullptr, 2}).message()), HasSubstr("rows is null"));
  EXPECT_THAT(std::string(check(CompactRowsArgs{nullptr, 16, rows.data(), 2}).message()), HasSubstr("data is null"));
}

}  // namespace
}  // namespace ps::ops::test
