#include "ops/testing/linear_suite.h"

#include <gmock/gmock.h>

#include "base/testing.h"

namespace ps::ops::test {
namespace {

TEST(WeightRows, SliceOfEveryFormatHoldsTheSameRows) {
  Pcg64 random(1);
  for (WeightFormat format : kAllFormats) {
    const WeightData w = random_weight(random, format, 96, 64);
    const Weight part = weight_rows(w.view(), 32, 64);
    EXPECT_EQ(part.rows, 64);
    EXPECT_EQ(part.columns, 64);
    Rows x = random_rows(random, 2, 64, DType::kBF16);
    const Grid grid = is_quantized(format) ? Grid::kMxfp8 : Grid::kNone;
    if (is_quantized(format)) put_on_grid(x);
    Rows whole(2, 96, DType::kBF16);
    Rows slice(2, 64, DType::kBF16);
    ThreadPool pool(1);
    Arena arena(HostBuffer::allocate(1 << 20).value());
    Exec exec{pool, arena};
    ref::linear({x.view(grid), w.view(), whole.view()}, exec);
    ref::linear({x.view(grid), part, slice.view()}, exec);
    for (int64_t t = 0; t < 2; ++t) {
      for (int64_t n = 0; n < 64; ++n)
        EXPECT_TRUE(same_bits(slice.at(t, n), whole.at(t, n + 32))) << format_text(format);
    }
  }
}

TEST(QuantizeMxfp8, GivesTheRecordedVectors) {
  const JsonValue vectors = ps::test::load_json("test_vectors.json");
  for (const JsonValue& vector : vectors.find("act_quant_e4m3_block32")->items()) {
    const auto x = ps::test::integers<uint16_t>(vector, "x_bf16");
    const auto expected = ps::test::integers<uint16_t>(vector, "dequant_bf16");
    const auto columns = static_cast<int64_t>(x.size());
    Rows rows(1, columns, DType::kBF16);
    for (int64_t k = 0; k < columns; ++k) rows.set(0, k, to_float(bf16{x[static_cast<size_t>(k)]}));
    ThreadPool pool(1);
    Arena arena(HostBuffer::allocate(1 << 16).value());
    Exec exec{pool, arena};
    ref::quantize_mxfp8({rows.view(), rows.view(Grid::kMxfp8)}, exec);
    for (int64_t k = 0; k < columns; ++k) {
      EXPECT_EQ(to_bf16(rows.at(0, k)).bits, expected[static_cast<size_t>(k)]) << k;
    }
  }
}

// A valid call, to be spoilt one field at a time.
struct LinearCall {
  explicit LinearCall(WeightFormat format)
      : w(format, 64, 96),
        x(3, 96, DType::kBF16),
        y(3, 64, DType::kBF16),
        args{x.view(is_quantized(format) ? Grid::kMxfp8 : Grid::kNone), w.view(), y.view()} {}
  WeightData w;
  Rows x;
  Rows y;
  LinearArgs args;
};

TEST(CheckLinear, AcceptsEveryKind) {
  for (WeightFormat format : kAllFormats) EXPECT_EQ(check(LinearCall(format).args).to_string(), "ok");
  LinearCall call(WeightFormat::kBF16);
  Rows logits(3, 64, DType::kF32);
  call.args.y = logits.view();
  EXPECT_EQ(check(call.args).to_string(), "ok");
}

TEST(CheckLinear, NamesWhatIsWrong) {
  const auto refused = [](WeightFormat format, auto spoil) {
    LinearCall call(format);
    spoil(call.args);
    return std::string(check(call.args).message());
  };
  using testing::HasSubstr;
  const auto bf = WeightFormat::kBF16;
  const auto fp8 = WeightFormat::kFp8Block32;
  const auto fp4 = WeightFormat::kFp4Block32;
  EXPECT_THAT(refused(bf, [](LinearArgs& a) { a.x.columns = 64; }),
              HasSubstr("linear: columns of x is 64, but columns of w is 96"));
  EXPECT_THAT(refused(bf, [](LinearArgs& a) { a.y.rows = 2; }), HasSubstr("y is [2, 64], expected [3, 64]"));
  EXPECT_THAT(refused(bf, [](LinearArgs& a) { a.y.columns = 63; }), HasSubstr("y is [3, 63], expected [3, 64]"));
  EXPECT_THAT(refused(bf, [](LinearArgs& a) { a.x.stride = 95; }), HasSubstr("stride"));
  EXPECT_THAT(refused(bf, [](LinearArgs& a) { a.x.data = nullptr; }), HasSubstr("x has no data"));
  EXPECT_THAT(refused(bf, [](LinearArgs& a) { a.w.data = nullptr; }), HasSubstr("w has no data"));
  EXPECT_THAT(refused(bf, [](LinearArgs& a) { a.w.rows = 0; }), HasSubstr("w is [0, 96]"));
  EXPECT_THAT(refused(bf, [](LinearArgs& a) { a.x.dtype = DType::kF8E4M3; }), HasSubstr("x is F8_E4M3"));
  EXPECT_THAT(refused(bf, [](LinearArgs& a) { a.x.grid = Grid::kMxfp8; }),
              HasSubstr("w is BF16, but x is on the MXFP8 grid"));
  EXPECT_THAT(refused(fp8, [](LinearArgs& a) { a.x.grid = Grid::kNone; }),
              HasSubstr("w is FP8, but x is not on the MXFP8 grid"));
  EXPECT_THAT(refused(fp4, [](LinearArgs& a) { a.x.grid = Grid::kNone; }), HasSubstr("w is FP4, but x is not"));
  EXPECT_THAT(refused(bf, [](LinearArgs& a) { a.y.grid = Grid::kMxfp8; }), HasSubstr("y is written unquantized"));
  EXPECT_THAT(refused(fp8, [](LinearArgs& a) { a.w.scale = nullptr; }), HasSubstr("w is FP8 without scales"));
  EXPECT_THAT(refused(bf, [](LinearArgs& a) { a.w.scale = reinterpret_cast<const uint8_t*>(a.w.data); }),
              HasSubstr("w is BF16 with scales"));
  EXPECT_THAT(refused(fp8, [](LinearArgs& a) { a.w.rows = a.y.columns = 48; }), HasSubstr("not whole blocks of 32"));
  EXPECT_THAT(refused(fp4, [](LinearArgs& a) { a.w.columns = a.x.columns = 80; }), HasSubstr("not whole blocks of 32"));
  EXPECT_THAT(refused(fp8, [](LinearArgs& a) { a.y.dtype = DType::kF32; }), HasSubstr("w is quantized"));
  EXPECT_THAT(refused(bf, [](LinearArgs& a) { a.x.dtype = DType::kF32; }), HasSubstr("y is BF16, but x is F32"));
}

TEST(CheckLinear, RefusesOverlapButNotColumnsOfOneBuffer) {
  WeightData w(WeightFormat::kBF16, 64, 96);
  Rows buffer(3, 160, DType::kBF16);
  ConstActivations x = buffer.view();
  Activations y = buffer.view();
  x.columns = 96;
  y.columns = 64;
  EXPECT_THAT(std::string(check(LinearArgs{x, w.view(), y}).message()), testing::HasSubstr("x and y overlap"));
  y.data = static_cast<std::byte*>(y.data) + 96 * 2;
  EXPECT_EQ(check(LinearArgs{x, w.view(), y}).to_string(), "ok");
  y.data = static_cast<std::byte*>(y.data) - 2;
  EXPECT_FALSE(check(LinearArgs{x, w.view(), y}).ok());
  y.data = static_cast<std::byte*>(y.data) + 2 * 25;  // runs over the end of a row into x's next one
  EXPECT_FALSE(check(LinearArgs{x, w.view(), y}).ok());
}

TEST(CheckLinear, GroupsDivideTheRowsAndInputIsNeverQuantized) {
  WeightData w(WeightFormat::kFp8Block32, 128, 32);
  Rows x(2, 64, DType::kBF16);
  Rows y(2, 128, DType::kBF16);
  GroupedLinearArgs args{x.view(), w.view(), y.view(), 2};
  EXPECT_EQ(check(args).to_string(), "ok");
  args.groups = 3;
  EXPECT_THAT(std::string(check(args).message()), testing::HasSubstr("rows of w is 128, not a multiple of 3"));
  args.groups = 8;
  EXPECT_THAT(std::string(check(args).message()), testing::HasSubstr("rows of w per group is 16"));
  args.groups = 4;
  EXPECT_THAT(std::string(check(args).message()), testing::HasSubstr("x is [2, 64], expected [2, 128]"));
  args.groups = 0;
  EXPECT_THAT(std::string(check(args).message()), testing::HasSubstr("groups is 0"));
  args.groups = 2;
  args.x.grid = Grid::kMxfp8;
  EXPECT_THAT(std::string(check(args).message()), testing::HasSubstr("never quantized"));
}

TEST(CheckLinear, QuantizerNeedsWholeGroups) {
  Rows x(2, 64, DType::kBF16);
  QuantizeMxfp8Args args{x.view(), x.view(Grid::kMxfp8)};
  EXPECT_EQ(check(args).to_string(), "ok");
  args.x.columns = args.y.columns = 48;
  EXPECT_THAT(std::string(check(args).message()), testing::HasSubstr("columns of x is 48, not a multiple of 32"));
  args = {x.view(), x.view(Grid::kMxfp8)};
  args.y.data = static_cast<std::byte*>(args.y.data) + 2;
  EXPECT_THAT(std::string(check(args).message()), testing::HasSubstr("overlap"));
}

}  // namespace
}  // namespace ps::ops::test
