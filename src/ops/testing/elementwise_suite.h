// Expectations of ops/elementwise.h, for every table.
#pragma once

#include "ops/testing/op_fixture.h"
#include "ops/testing/weight_data.h"

namespace ps::ops::test {

inline constexpr DType kComputeDtypes[] = {DType::kBF16, DType::kF32};

class EmbedSuite : public OpSuite {
 protected:
  [[nodiscard]] Rows embed(const std::vector<int32_t>& ids, const WeightData& w, int32_t streams, DType dtype,
                           int threads = 1) const {
    Rows h(static_cast<int64_t>(ids.size()), streams * w.columns(), dtype);
    run_op(table().embed, EmbedArgs{ids.data(), w.view(), h.view(), streams},
           {.tokens = h.rows(), .columns = w.columns()}, threads);
    EXPECT_TRUE(h.gaps_intact());
    return h;
  }
};

TEST_P(EmbedSuite, EveryStreamHoldsTheRow) {
  Pcg64 random(1);
  for (WeightFormat format : {WeightFormat::kBF16, WeightFormat::kF32}) {
    for (DType dtype : kComputeDtypes) {
      for (int32_t streams : {1, 4}) {
        const WeightData w = random_weight(random, format, 50, 37, 1.0, Data::kWide);
        const std::vector<int32_t> ids = {49, 0, 7, 7, 31, 48, 1, 2, 3, 4, 5};
        const Rows h = embed(ids, w, streams, dtype);
        Rows expected(h.rows(), h.columns(), dtype);
        for (int64_t t = 0; t < h.rows(); ++t) {
          for (int64_t k = 0; k < h.columns(); ++k) expected.set(t, k, w.at(ids[static_cast<size_t>(t)], k % 37));
        }
        expect_same_rows(format_text(format), h, expected);
        for (int threads : kThreadCounts) expect_same_rows("threads", embed(ids, w, streams, dtype, threads), h);
      }
    }
  }
  EXPECT_EQ(embed({}, random_weight(random, WeightFormat::kBF16, 2, 8), 4, DType::kBF16).rows(), 0);
}

class RmsNormSuite : public OpSuite {
 protected:
  [[nodiscard]] Rows norm(const Rows& x, const VectorData& w, float eps, DType y_dtype, int threads = 1) const {
    Rows y(x.rows(), x.columns(), y_dtype);
    run_op(table().rms_norm, RmsNormArgs{x.view(), w.view(), y.view(), eps},
           {.tokens = x.rows(), .columns = x.columns()}, threads);
    EXPECT_TRUE(y.gaps_intact());
    return y;
  }
};

inline std::vector<float> contract_norm(const std::vector<float>& x, const VectorData& w, float eps) {
  const float mean = contract_lane_dot(x, x) / static_cast<float>(x.size());
  const FlushSubnormals flush;
  const float r = 1.0f / std::sqrt(mean + eps);
  std::vector<float> y;
  for (size_t k = 0; k < x.size(); ++k) y.push_back(w.at(static_cast<int64_t>(k)) * (x[k] * r));
  return y;
}

inline Bounded exact_norm(const std::vector<float>& x, const VectorData& w, float eps, int64_t k, DType dtype) {
  double sum = 0;
  for (float value : x)
    sum += static_cast<double>(flush_subnormal(value)) * static_cast<double>(flush_subnormal(value));
  const double size = static_cast<double>(x.size());
  const double y = static_cast<double>(w.at(k)) * static_cast<double>(flush_subnormal(x[static_cast<size_t>(k)])) /
                   std::sqrt(sum / size + static_cast<double>(eps));
  return stored({y, std::fabs(y) * (size / 32 + 12) * 0x1p-24}, dtype);
}

TEST_P(RmsNormSuite, FollowsTheContract) {
  uint64_t seed = 10;
  for (int64_t columns : {1, 7, 16, 17, 40, 1280}) {
    for (Data data : {Data::kNormal, Data::kWide, Data::kSpecial}) {
      for (DType dtype : kComputeDtypes) {
        for (DType w_dtype : kComputeDtypes) {
          Pcg64 random(++seed);
          SCOPED_TRACE("D=" + std::to_string(columns) + " data " + std::to_string(static_cast<int>(data)));
          const Rows x = random_rows(random, 6, columns, dtype, data);
          const VectorData w(random_floats(random, columns), w_dtype);
          const Rows y = norm(x, w, 1e-20f, dtype);
          Rows bits(6, columns, dtype);
          for (int64_t t = 0; t < 6; ++t) {
            const std::vector<float> row = contract_norm(x.row(t), w, 1e-20f);
            for (int64_t k = 0; k < columns; ++k) bits.set(t, k, row[static_cast<size_t>(k)]);
          }
          if (is_bitwise()) expect_same_rows("bits", y, bits);
          expect_within("bound", y, [&](int64_t t, int64_t k) { return exact_norm(x.row(t), w, 1e-20f, k, dtype); });
          expect_same_row("a row alone", norm(x.only(5), w, 1e-20f, dtype), 0, y, 5);
          for (int threads : kThreadCounts) expect_same_rows("threads", norm(x, w, 1e-20f, dtype, threads), y);
        }
      }
    }
  }
}

TEST_P(RmsNormSuite, WorksInPlaceOnZerosAndOnNoRows) {
  Pcg64 random(90);
  const VectorData w(random_floats(random, 64), DType::kF32);
  Rows x = random_rows(random, 4, 64, DType::kBF16);
  for (int64_t k = 0; k < 64; ++k) x.set(2, k, 0.0f);
  const Rows expected = norm(x, w, 1e-20f, DType::kBF16);
  for (int64_t k = 0; k < 64; ++k) EXPECT_EQ(expected.at(2, k), 0.0f) << "a zero row stays finite";
  run_op(table().rms_norm, RmsNormArgs{x.view(), w.view(), x.view(), 1e-20f}, {.tokens = 4, .columns = 64});
  expect_same_rows("in place", x, expected);
  EXPECT_TRUE(x.gaps_intact());
  EXPECT_EQ(norm(Rows(0, 64, DType::kBF16), w, 1e-20f, DType::kBF16).rows(), 0);
}

struct RopeShape {
  int32_t heads;
  int32_t head_dim;
  int32_t pairs;
};

class RopeSuite : public OpSuite {
 protected:
  [[nodiscard]] Rows rope(Rows x, const RopeShape& shape, const std::vector<int32_t>& positions,
                          const std::vector<float>& frequencies, bool inverse, int threads = 1) const {
    run_op(table().rope, RopeArgs{x.view(), positions.data(), frequencies.data(), shape.heads, shape.pairs, inverse},
           {.tokens = x.rows(), .columns = x.columns()}, threads);
    EXPECT_TRUE(x.gaps_intact());
    return x;
  }
};

// f_i = base^(-2i / channels)
inline std::vector<float> rope_frequencies(int32_t pairs, double base = 10000) {
  std::vector<float> frequencies;
  for (int32_t i = 0; i < pairs; ++i)
    frequencies.push_back(static_cast<float>(std::pow(base, -1.0 * i / std::max(pairs, 1))));
  return frequencies;
}

inline Rows contract_rope(const Rows& x, const RopeShape& shape, const std::vector<int32_t>& positions,
                          const std::vector<float>& frequencies, bool inverse) {
  Rows y = x;
  const FlushSubnormals flush;
  for (int64_t t = 0; t < x.rows(); ++t) {
    for (int64_t head = 0; head < shape.heads; ++head) {
      for (int64_t i = 0; i < shape.pairs; ++i) {
        const float angle = static_cast<float>(positions[static_cast<size_t>(t)]) * frequencies[static_cast<size_t>(i)];
        const auto c = static_cast<float>(std::cos(static_cast<double>(angle)));
        auto s = static_cast<float>(std::sin(static_cast<double>(angle)));
        if (inverse) s = -s;
        const int64_t at = head * shape.head_dim + shape.head_dim - 2 * shape.pairs + 2 * i;
        const float a = x.at(t, at);
        const float b = x.at(t, at + 1);
        y.set(t, at, std::fma(a, c, -(b * s)));
        y.set(t, at + 1, std::fma(a, s, b * c));
      }
    }
  }
  return y;
}

TEST_P(RopeSuite, RotatesTheLastChannelsOfEveryHead) {
  uint64_t seed = 100;
  const std::vector<int32_t> positions = {0, 1, 127, 128, 65535, 1048575, 3};
  for (const RopeShape& shape :
       {RopeShape{1, 2, 1}, RopeShape{3, 16, 4}, RopeShape{2, 64, 32}, RopeShape{4, 10, 5}, RopeShape{5, 8, 0}}) {
    for (DType dtype : kComputeDtypes) {
      for (bool inverse : {false, true}) {
        Pcg64 random(++seed);
        SCOPED_TRACE("heads " + std::to_string(shape.heads) + " pairs " + std::to_string(shape.pairs));
        const std::vector<float> frequencies = rope_frequencies(shape.pairs);
        const Rows x = random_rows(random, 7, shape.heads * shape.head_dim, dtype, Data::kWide);
        const Rows y = rope(x, shape, positions, frequencies, inverse);
        const Rows bits = contract_rope(x, shape, positions, frequencies, inverse);
        if (is_bitwise()) expect_same_rows("bits", y, bits);
        expect_within("bound", y, [&](int64_t t, int64_t k) {
          const double size = std::hypot(static_cast<double>(x.at(t, k)), static_cast<double>(x.at(t, k ^ 1)));
          return Bounded{static_cast<double>(bits.at(t, k)), size * (dtype == DType::kBF16 ? 0x1p-7 : 0x1p-21)};
        });
        expect_same_row("a row alone", rope(x.only(4), shape, {positions[4]}, frequencies, inverse), 0, y, 4);
        for (int threads : kThreadCounts) {
          expect_same_rows("threads", rope(x, shape, positions, frequencies, inverse, threads), y);
        }
      }
    }
  }
}

TEST_P(RopeSuite, InverseUndoesTheRotation) {
  Pcg64 random(150);
  const RopeShape shape{2, 32, 8};
  const std::vector<int32_t> positions = {5, 900000};
  const Rows x = random_rows(random, 2, 64, DType::kF32);
  const std::vector<float> frequencies = rope_frequencies(8);
  const Rows y = rope(rope(x, shape, positions, frequencies, false), shape, positions, frequencies, true);
  expect_within("round trip", y, [&](int64_t t, int64_t k) {
    const double size = std::hypot(static_cast<double>(x.at(t, k)), static_cast<double>(x.at(t, k ^ 1)));
    return Bounded{static_cast<double>(x.at(t, k)), size * 0x1p-20};
  });
  EXPECT_EQ(rope(Rows(0, 64, DType::kBF16), shape, {}, frequencies, false).rows(), 0);
}

class ScaleSuite : public OpSuite {};

TEST_P(ScaleSuite, IsOneRoundedProduct) {
  Pcg64 random(200);
  for (DType dtype : kComputeDtypes) {
    for (float factor : {1.0f / 64.0f, 0.3f, -0.0f}) {
      Rows x = random_rows(random, 5, 33, dtype, Data::kWide);
      Rows y(5, 33, dtype);
      Rows expected(5, 33, dtype);
      for (int64_t t = 0; t < 5; ++t) {
        for (int64_t k = 0; k < 33; ++k) expected.set(t, k, x.at(t, k) * factor);
      }
      run_op(table().scale, ScaleArgs{x.view(), factor, y.view()}, {.tokens = 5, .columns = 33}, 3);
      expect_same_rows("product", y, expected);
      run_op(table().scale, ScaleArgs{x.view(), factor, x.view()}, {.tokens = 5, .columns = 33});
      expect_same_rows("in place", x, expected);
      EXPECT_TRUE(x.gaps_intact() && y.gaps_intact());
    }
  }
}

class CompactRowsSuite : public OpSuite {};

TEST_P(CompactRowsSuite, KeepsTheChosenRowsInOrder) {
  for (const std::vector<int32_t>& rows :
       {std::vector<int32_t>{}, {0}, {6}, {0, 1, 2, 3, 4, 5, 6}, {1, 2, 6}, {0, 2, 3, 5}}) {
    for (int64_t row_bytes : {1, 4, 10}) {
      std::vector<uint8_t> data;
      for (int64_t i = 0; i < 7 * row_bytes; ++i) data.push_back(static_cast<uint8_t>(i));
      const std::vector<uint8_t> before = data;
      const auto count = static_cast<int32_t>(rows.size());
      run_op(table().compact_rows, CompactRowsArgs{data.data(), row_bytes, rows.data(), count}, {.tokens = 7});
      for (int64_t i = 0; i < 7 * row_bytes; ++i) {
        const int64_t row = i / row_bytes;
        const int64_t from = row < count ? rows[static_cast<size_t>(row)] * row_bytes + i % row_bytes : i;
        EXPECT_EQ(data[static_cast<size_t>(i)], before[static_cast<size_t>(from)]) << "byte " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, EmbedSuite, testing::ValuesIn(tables_under_test()), table_name);
INSTANTIATE_TEST_SUITE_P(Tables, RmsNormSuite, testing::ValuesIn(tables_under_test()), table_name);
INSTANTIATE_TEST_SUITE_P(Tables, RopeSuite, testing::ValuesIn(tables_under_test()), table_name);
INSTANTIATE_TEST_SUITE_P(Tables, ScaleSuite, testing::ValuesIn(tables_under_test()), table_name);
INSTANTIATE_TEST_SUITE_P(Tables, CompactRowsSuite, testing::ValuesIn(tables_under_test()), table_name);

}  // namespace ps::ops::test
