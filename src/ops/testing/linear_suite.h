// Expectations of ops/linear.h, for every table.
#pragma once

#include "base/quantize.h"
#include "ops/testing/op_fixture.h"
#include "ops/testing/weight_data.h"

namespace ps::ops::test {

struct LinearCase {
  WeightFormat format;
  int64_t tokens;
  int64_t outputs;
  int64_t inputs;
  DType x_dtype = DType::kBF16;
  DType y_dtype = DType::kBF16;
  Data data = Data::kNormal;
};

inline std::string case_text(const LinearCase& c) {
  return format_text(c.format) + " T=" + std::to_string(c.tokens) + " N=" + std::to_string(c.outputs) +
         " K=" + std::to_string(c.inputs) + " x=" + std::string(dtype_name(c.x_dtype)) +
         " y=" + std::string(dtype_name(c.y_dtype)) + " data=" + std::to_string(static_cast<int>(c.data));
}

inline std::vector<LinearCase> linear_cases() {
  std::vector<LinearCase> cases;
  const auto add_dtypes = [&cases](LinearCase c) {
    cases.push_back(c);  // native compute
    c.y_dtype = DType::kF32;
    if (!is_quantized(c.format)) cases.push_back(c);  // F32 outputs of native compute
    c.x_dtype = DType::kF32;
    cases.push_back(c);  // f32 compute
  };
  for (WeightFormat format : kAllFormats) {
    const bool fp8 = format == WeightFormat::kFp8Block32;
    for (int64_t tokens : {1, 2, 3, 7}) {
      add_dtypes({format, tokens, fp8 ? 32 : 1, 32});
      add_dtypes({format, tokens, fp8 ? 96 : 33, 160});
    }
    add_dtypes({format, 5, fp8 ? 64 : 24, 1280});
    add_dtypes({format, 300, 32, 64});  // more rows than any tile
    for (Data data : {Data::kWide, Data::kPositive, Data::kSpecial})
      add_dtypes({format, 3, 32, 96, DType::kBF16, DType::kBF16, data});
    cases.push_back({format, 2, 64, 5120});
  }
  for (int64_t inputs : {1, 2, 31, 33, 63, 65}) {  // K that is no multiple of a block
    for (int64_t outputs : {1, 15, 16, 17}) add_dtypes({WeightFormat::kF32, 2, outputs, inputs});
    add_dtypes({WeightFormat::kBF16, 3, 5, inputs});
  }
  return cases;
}

struct LinearData {
  Rows x;
  WeightData w;
  [[nodiscard]] Grid grid() const { return is_quantized(w.format()) ? Grid::kMxfp8 : Grid::kNone; }
};

// Rounds x to the MXFP8 grid.
inline void put_on_grid(Rows& x) {
  for (int64_t t = 0; t < x.rows(); ++t) {
    std::vector<float> row = x.row(t);
    fake_quantize_mxfp8(row.data(), x.columns());
    for (int64_t k = 0; k < x.columns(); ++k) x.set(t, k, row[static_cast<size_t>(k)]);
  }
}

inline LinearData linear_data(const LinearCase& c, uint64_t seed) {
  Pcg64 random(seed);
  LinearData data{random_rows(random, c.tokens, c.inputs, c.x_dtype, c.data),
                  random_weight(random, c.format, c.outputs, c.inputs, 1.0, c.data)};
  if (is_quantized(c.format)) put_on_grid(data.x);
  return data;
}

class LinearSuite : public OpSuite {
 protected:
  [[nodiscard]] Rows linear(const Rows& x, const WeightData& w, Grid grid, DType y_dtype, int threads = 1) const {
    Rows y(x.rows(), w.rows(), y_dtype);
    ScratchBounds bounds;
    bounds.tokens = x.rows();
    bounds.columns = x.columns();
    run_op(table().linear, LinearArgs{x.view(grid), w.view(), y.view()}, bounds, threads);
    EXPECT_TRUE(y.gaps_intact());
    return y;
  }
};

TEST_P(LinearSuite, EveryDotProductFollowsTheCanonicalOrder) {
  uint64_t seed = 1;
  for (const LinearCase& c : linear_cases()) {
    SCOPED_TRACE(case_text(c));
    const LinearData data = linear_data(c, ++seed);
    const Rows y = linear(data.x, data.w, data.grid(), c.y_dtype);
    Rows bits(c.tokens, c.outputs, c.y_dtype);
    std::vector<Bounded> exact;
    for (int64_t n = 0; n < c.outputs; ++n) {
      const std::vector<float> w = data.w.row(n);
      for (int64_t t = 0; t < c.tokens; ++t) {
        const std::vector<float> x = data.x.row(t);
        bits.set(t, n, contract_dot(x, w));
        exact.push_back(stored(exact_dot(x, w, canonical_steps(c.inputs)), c.y_dtype));
      }
    }
    if (is_bitwise()) expect_same_rows("canonical order", y, bits);
    expect_within("bound", y, [&](int64_t t, int64_t n) { return exact[static_cast<size_t>(n * c.tokens + t)]; });
  }
}

TEST_P(LinearSuite, RowDependsOnNothingElse) {
  uint64_t seed = 100;
  for (WeightFormat format : kAllFormats) {
    for (int64_t tokens : {2, 17, 70}) {
      const LinearCase c{format, tokens, 64, 320, DType::kBF16, DType::kBF16, Data::kWide};
      SCOPED_TRACE(case_text(c));
      const LinearData data = linear_data(c, ++seed);
      const Rows y = linear(data.x, data.w, data.grid(), c.y_dtype);
      for (int64_t row : {int64_t{0}, tokens / 2, tokens - 1}) {
        const Rows alone = linear(data.x.only(row), data.w, data.grid(), c.y_dtype);
        expect_same_row("a row alone", alone, 0, y, row);
      }
      for (int threads : kThreadCounts) {
        expect_same_rows("threads", linear(data.x, data.w, data.grid(), c.y_dtype, threads), y);
      }
    }
  }
}

TEST_P(LinearSuite, QuantizedWeightEqualsItsDecodedValues) {
  uint64_t seed = 200;
  for (WeightFormat format : {WeightFormat::kFp8Block32, WeightFormat::kFp4Block32}) {
    for (WeightFormat plain : {WeightFormat::kF32, WeightFormat::kBF16}) {
      const LinearCase c{format, 5, 96, 192};
      const LinearData data = linear_data(c, ++seed);
      const Rows quantized = linear(data.x, data.w, Grid::kMxfp8, DType::kBF16);
      const Rows decoded = linear(data.x, data.w.decoded(plain), Grid::kNone, DType::kBF16);
      expect_same_rows(case_text(c), quantized, decoded);
    }
  }
}

TEST_P(LinearSuite, ComputeDtypeOnlyRoundsTheStore) {
  for (WeightFormat format : kAllFormats) {
    const LinearData data = linear_data({format, 4, 32, 96}, 300);
    const Rows x = data.x.converted(DType::kF32);
    const Rows wide = linear(x, data.w, data.grid(), DType::kF32);
    const Rows narrow = linear(data.x, data.w, data.grid(), DType::kBF16);
    expect_same_rows(format_text(format), narrow, wide.converted(DType::kBF16));
  }
}

TEST_P(LinearSuite, NanScaleMakesItsOwnRowsNan) {
  for (WeightFormat format : {WeightFormat::kFp8Block32, WeightFormat::kFp4Block32}) {
    LinearData data = linear_data({format, 3, 96, 128}, 400);
    const Rows clean = linear(data.x, data.w, Grid::kMxfp8, DType::kBF16);
    data.w.scales()[data.w.scale_index(40, 70)] = 255;
    const Rows y = linear(data.x, data.w, Grid::kMxfp8, DType::kBF16);
    for (int64_t n = 0; n < 96; ++n) {
      const bool poisoned = format == WeightFormat::kFp8Block32 ? n / 32 == 1 : n == 40;
      for (int64_t t = 0; t < 3; ++t) {
        EXPECT_EQ(std::isnan(y.at(t, n)), poisoned) << format_text(format) << " row " << n;
        EXPECT_TRUE(poisoned || same_bits(y.at(t, n), clean.at(t, n))) << format_text(format) << " row " << n;
      }
    }
  }
}

// Scale code 0 is 2^-127, a subnormal float: the scale itself must not be flushed, only products that are subnormal.
TEST_P(LinearSuite, SubnormalScaleKeepsNormalProducts) {
  WeightData w(WeightFormat::kFp8Block32, 32, 32);
  w.scales()[0] = 0;
  w.set_code(0, 0, 0x7E);  // 448 * 2^-127, normal
  w.set_code(1, 0, 0x40);  // 2 * 2^-127 = 2^-126, the smallest normal
  w.set_code(2, 0, 0x3F);  // 1.875 * 2^-127, subnormal
  w.set_code(3, 0, 0xFE);  // -448 * 2^-127
  Rows x(1, 32, DType::kF32);
  for (int64_t k = 0; k < 32; ++k) x.set(0, k, 0.0f);
  x.set(0, 0, 0x1p60f);
  const Rows y = linear(x, w, Grid::kMxfp8, DType::kF32);
  EXPECT_EQ(y.at(0, 0), 448 * 0x1p-67f);
  EXPECT_EQ(y.at(0, 1), 0x1p-66f);
  EXPECT_EQ(y.at(0, 2), 0.0f);
  EXPECT_EQ(y.at(0, 3), -448 * 0x1p-67f);

  WeightData w4(WeightFormat::kFp4Block32, 3, 32);
  w4.scales().assign(3, 0);
  w4.set_code(0, 0, 7);   // 6 * 2^-127
  w4.set_code(1, 0, 12);  // -2 * 2^-127
  w4.set_code(2, 0, 3);   // 1.5 * 2^-127, subnormal
  const Rows y4 = linear(x, w4, Grid::kMxfp8, DType::kF32);
  EXPECT_EQ(y4.at(0, 0), 6 * 0x1p-67f);
  EXPECT_EQ(y4.at(0, 1), -0x1p-66f);
  EXPECT_EQ(y4.at(0, 2), 0.0f);
}

TEST_P(LinearSuite, SubnormalOperandsAndResultsCountAsZero) {
  WeightData w(WeightFormat::kF32, 2, 2);
  w.set(0, 0, 0x1p100f);
  w.set(1, 1, 0x1p-100f);
  Rows x(1, 2, DType::kF32);
  x.set(0, 0, 0x1p-127f);  // subnormal operand
  x.set(0, 1, 0x1p-30f);   // subnormal product
  const Rows y = linear(x, w, Grid::kNone, DType::kF32);
  EXPECT_TRUE(same_bits(y.at(0, 0), 0.0f));
  EXPECT_TRUE(same_bits(y.at(0, 1), 0.0f));
}

TEST_P(LinearSuite, ZerosOfAnySignSumToPlusZero) {
  WeightData w(WeightFormat::kBF16, 3, 33);
  Rows x(2, 33, DType::kBF16);
  for (int64_t k = 0; k < 33; ++k) {
    for (int64_t n = 0; n < 3; ++n) w.set(n, k, n == 0 ? -1.0f : (k % 2 == 0 ? 2.0f : -0.0f));
    x.set(0, k, 0.0f);
    x.set(1, k, -0.0f);
  }
  const Rows y = linear(x, w, Grid::kNone, DType::kBF16);
  for (int64_t t = 0; t < 2; ++t) {
    for (int64_t n = 0; n < 3; ++n) EXPECT_TRUE(same_bits(y.at(t, n), 0.0f)) << t << " " << n;
  }
}

TEST_P(LinearSuite, InfinityAndNanStayInTheirRow) {
  LinearData data = linear_data({WeightFormat::kBF16, 4, 17, 70}, 500);
  data.x.set(1, 69, std::numeric_limits<float>::infinity());
  data.x.set(2, 5, std::nanf(""));
  const Rows y = linear(data.x, data.w, Grid::kNone, DType::kBF16);
  for (int64_t n = 0; n < 17; ++n) {
    EXPECT_TRUE(std::isfinite(y.at(0, n)));
    EXPECT_TRUE(std::isinf(y.at(1, n)));
    EXPECT_TRUE(std::isnan(y.at(2, n)));
    EXPECT_TRUE(std::isfinite(y.at(3, n)));
  }
}

TEST_P(LinearSuite, NoRowsIsNoWork) {
  Pcg64 random(1);
  for (WeightFormat format : kAllFormats) {
    const WeightData w = random_weight(random, format, 32, 64);
    EXPECT_EQ(
        linear(Rows(0, 64, DType::kBF16), w, is_quantized(format) ? Grid::kMxfp8 : Grid::kNone, DType::kBF16).rows(),
        0);
  }
}

class GroupedLinearSuite : public OpSuite {
 protected:
  [[nodiscard]] Rows grouped(const Rows& x, const WeightData& w, int32_t groups, int threads = 1) const {
    Rows y(x.rows(), w.rows(), x.dtype());
    ScratchBounds bounds;
    bounds.tokens = x.rows();
    bounds.columns = x.columns();
    run_op(table().grouped_linear, GroupedLinearArgs{x.view(), w.view(), y.view(), groups}, bounds, threads);
    EXPECT_TRUE(y.gaps_intact());
    return y;
  }
};

TEST_P(GroupedLinearSuite, EachGroupIsALinearOpOfItsColumns) {
  struct Shape {
    int32_t groups;
    int64_t outputs;
    int64_t inputs;
  };
  uint64_t seed = 600;
  for (WeightFormat format : kAllFormats) {
    for (const Shape& shape : {Shape{1, 32, 32}, Shape{8, 64, 96}, Shape{3, 32, 160}}) {
      for (DType dtype : {DType::kBF16, DType::kF32}) {
        Pcg64 random(++seed);
        SCOPED_TRACE(format_text(format) + " groups " + std::to_string(shape.groups));
        const Rows x = random_rows(random, 5, shape.groups * shape.inputs, dtype, Data::kWide);
        const WeightData w = random_weight(random, format, shape.groups * shape.outputs, shape.inputs);
        const Rows y = grouped(x, w, shape.groups);
        Rows bits(5, w.rows(), dtype);
        std::vector<Bounded> exact;
        for (int64_t n = 0; n < w.rows(); ++n) {
          for (int64_t t = 0; t < 5; ++t) {
            const std::vector<float> row = x.row(t);
            const auto first = row.begin() + n / shape.outputs * shape.inputs;
            const std::vector<float> part(first, first + shape.inputs);
            bits.set(t, n, contract_dot(part, w.row(n)));
            exact.push_back(stored(exact_dot(part, w.row(n), canonical_steps(shape.inputs)), dtype));
          }
        }
        if (is_bitwise()) expect_same_rows("canonical order", y, bits);
        expect_within("bound", y, [&](int64_t t, int64_t n) { return exact[static_cast<size_t>(n * 5 + t)]; });
        expect_same_row("a row alone", grouped(x.only(3), w, shape.groups), 0, y, 3);
        for (int threads : kThreadCounts) expect_same_rows("threads", grouped(x, w, shape.groups, threads), y);
      }
    }
  }
}

class QuantizeMxfp8Suite : public OpSuite {
 protected:
  [[nodiscard]] Rows quantize(const Rows& x, DType y_dtype, int threads = 1) const {
    Rows y(x.rows(), x.columns(), y_dtype);
    ScratchBounds bounds;
    bounds.tokens = x.rows();
    bounds.columns = x.columns();
    run_op(table().quantize_mxfp8, QuantizeMxfp8Args{x.view(), y.view(Grid::kMxfp8)}, bounds, threads);
    EXPECT_TRUE(y.gaps_intact());
    return y;
  }
};

// model.md 2.1 from its definition: the smallest power of two at or above amax / 448, the nearest of all E4M3 values.
inline float nearest_e4m3(double scaled) {
  double best = 0;
  int best_code = 0;
  for (int code = 0; code < 0x7F; ++code) {
    const double value = e4m3_value(static_cast<uint8_t>(code));
    const double distance = std::fabs(value - std::fabs(scaled));
    const double best_distance = std::fabs(best - std::fabs(scaled));
    if (distance < best_distance || (distance == best_distance && code % 2 == 0 && best_code % 2 != 0)) {
      best = value;
      best_code = code;
    }
  }
  return static_cast<float>(std::copysign(best, scaled));
}

inline std::vector<float> contract_mxfp8(const std::vector<float>& x) {
  std::vector<float> y(x.size());
  for (size_t group = 0; group < x.size(); group += 32) {
    float amax = 1e-4f;
    for (size_t i = group; i < group + 32; ++i) amax = std::max(amax, std::fabs(x[i]));
    const float wanted = amax * (1.0f / 448.0f);
    int exponent = -126;
    while (std::ldexp(1.0, exponent) < static_cast<double>(wanted)) ++exponent;
    for (size_t i = group; i < group + 32; ++i) {
      const double scaled = std::ldexp(static_cast<double>(flush_subnormal(x[i])), -exponent);
      y[i] = static_cast<float>(std::ldexp(static_cast<double>(nearest_e4m3(scaled)), exponent));
    }
  }
  return y;
}

TEST_P(QuantizeMxfp8Suite, ValuesAreTheNearestOfTheGrid) {
  uint64_t seed = 700;
  for (Data data : {Data::kNormal, Data::kWide, Data::kPositive, Data::kSpecial}) {
    for (DType dtype : {DType::kBF16, DType::kF32}) {
      Pcg64 random(++seed);
      const Rows x = random_rows(random, 9, 160, dtype, data);
      Rows expected(9, 160, dtype);
      for (int64_t t = 0; t < 9; ++t) {
        const std::vector<float> row = contract_mxfp8(x.row(t));
        for (int64_t k = 0; k < 160; ++k) expected.set(t, k, row[static_cast<size_t>(k)]);
      }
      const Rows y = quantize(x, dtype);
      expect_same_rows("grid", y, expected);
      expect_same_rows("quantizing twice", quantize(y, dtype), y);
      expect_same_rows("BF16 holds every value", y.converted(DType::kBF16).converted(dtype), y);
      expect_same_row("a row alone", quantize(x.only(4), dtype), 0, y, 4);
      for (int threads : kThreadCounts) expect_same_rows("threads", quantize(x, dtype, threads), y);
    }
  }
}

TEST_P(QuantizeMxfp8Suite, WorksInPlaceAndOnNoRows) {
  Pcg64 random(800);
  Rows x = random_rows(random, 3, 96, DType::kBF16);
  const Rows expected = quantize(x, DType::kBF16);
  run_op(table().quantize_mxfp8, QuantizeMxfp8Args{x.view(), x.view(Grid::kMxfp8)}, {.tokens = 3, .columns = 96});
  expect_same_rows("in place", x, expected);
  EXPECT_TRUE(x.gaps_intact());
  EXPECT_EQ(quantize(Rows(0, 64, DType::kBF16), DType::kBF16).rows(), 0);
}

// The clamp keeps the grid: 448 * 2^k is a code, and a group of zeros stays zero.
TEST_P(QuantizeMxfp8Suite, LargestCodeAndZerosAreExact) {
  Rows x(2, 32, DType::kF32);
  for (int64_t k = 0; k < 32; ++k) {
    x.set(0, k, k == 0 ? 448.0f * 0x1p20f : 0.0f);
    x.set(1, k, k % 2 == 0 ? 0.0f : -0.0f);
  }
  const Rows y = quantize(x, DType::kF32);
  expect_same_rows("unchanged", y, x);
}

TEST_P(QuantizeMxfp8Suite, NanMakesItsGroupNan) {
  Pcg64 random(900);
  Rows x = random_rows(random, 1, 96, DType::kBF16);
  x.set(0, 40, std::nanf(""));
  const Rows y = quantize(x, DType::kBF16);
  for (int64_t k = 0; k < 96; ++k) EXPECT_EQ(std::isnan(y.at(0, k)), k / 32 == 1) << k;
}

INSTANTIATE_TEST_SUITE_P(Tables, LinearSuite, testing::ValuesIn(tables_under_test()), table_name);
INSTANTIATE_TEST_SUITE_P(Tables, GroupedLinearSuite, testing::ValuesIn(tables_under_test()), table_name);
INSTANTIATE_TEST_SUITE_P(Tables, QuantizeMxfp8Suite, testing::ValuesIn(tables_under_test()), table_name);

}  // namespace ps::ops::test
