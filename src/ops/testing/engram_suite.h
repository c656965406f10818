// Expectations of ops/engram.h, for every table.
#pragma once

#include "ops/engram.h"
#include "ops/numerics.h"
#include "ops/testing/op_fixture.h"
#include "ops/testing/weight_data.h"

namespace ps::ops::test {

// A table with one E8M0 scale per 32 values of a row, or unquantized.
struct TableData {
  TableData(Pcg64& random, DType table_dtype, int64_t row_count, int32_t row_dim)
      : dtype(table_dtype), rows(row_count), dim(row_dim) {
    const auto count = static_cast<size_t>(rows * dim);
    if (dtype == DType::kF8E4M3) {
      for (size_t i = 0; i < count; ++i) {
        const auto code = static_cast<uint8_t>(random.integer(0, 256));
        bytes.push_back(std::byte((code & 0x7F) == 0x7F ? 0 : code));
      }
      for (size_t i = 0; i < count / 32; ++i) scales.push_back(static_cast<uint8_t>(random.integer(100, 130)));
      return;
    }
    plain = VectorData(random_floats(random, rows * dim, Data::kWide), dtype);
  }
  [[nodiscard]] EngramTable view() const {
    const bool quantized = dtype == DType::kF8E4M3;
    return {dtype, rows, dim, quantized ? bytes.data() : plain.view().data, quantized ? scales.data() : nullptr};
  }
  [[nodiscard]] float at(int64_t row, int64_t k) const {
    const auto index = static_cast<size_t>(row * dim + k);
    if (dtype != DType::kF8E4M3) return plain.at(row * dim + k);
    return scaled_value(e4m3_value(static_cast<uint8_t>(bytes[index])), scales[index / 32]);
  }

  DType dtype;
  int64_t rows;
  int32_t dim;
  std::vector<std::byte> bytes;
  std::vector<uint8_t> scales;
  VectorData plain;
};

class EngramGatherSuite : public OpSuite {
 protected:
  [[nodiscard]] Rows gather(const TableData& source, const std::vector<int64_t>& ids, int32_t columns, DType dtype,
                            int threads = 1) const {
    Rows e(static_cast<int64_t>(ids.size()) / columns, columns * source.dim, dtype);
    run_op(table().engram_gather, EngramGatherArgs{source.view(), ids.data(), columns, e.view()},
           {.tokens = e.rows(), .columns = e.columns()}, threads);
    EXPECT_TRUE(e.gaps_intact());
    return e;
  }
};

TEST_P(EngramGatherSuite, RowsAreDequantizedAndConcatenated) {
  uint64_t seed = 1;
  for (DType table_dtype : {DType::kF8E4M3, DType::kBF16, DType::kF32}) {
    for (DType dtype : {DType::kBF16, DType::kF32}) {
      for (int32_t columns : {1, 3, 24}) {
        Pcg64 random(++seed);
        const TableData source(random, table_dtype, 50, 64);
        std::vector<int64_t> ids = {49, 0};
        while (static_cast<int32_t>(ids.size()) < 7 * columns) ids.push_back(random.integer(0, 50));
        ids.resize(static_cast<size_t>(7 * columns));
        const Rows e = gather(source, ids, columns, dtype);
        Rows expected(7, columns * 64, dtype);
        for (int64_t t = 0; t < 7; ++t) {
          for (int64_t k = 0; k < columns * 64; ++k) {
            expected.set(t, k, source.at(ids[static_cast<size_t>(t * columns + k / 64)], k % 64));
          }
        }
        expect_same_rows(std::string(dtype_name(table_dtype)), e, expected);
        for (int threads : kThreadCounts) expect_same_rows("threads", gather(source, ids, columns, dtype, threads), e);
      }
    }
  }
}

TEST_P(EngramGatherSuite, ExtremeScales) {
  Pcg64 random(50);
  TableData source(random, DType::kF8E4M3, 3, 32);
  source.scales = {0, 255, 127};
  source.bytes[0] = std::byte{0x7E};  // 448 * 2^-127 is normal
  source.bytes[1] = std::byte{0x38};  // 1 * 2^-127 is not
  const Rows e = gather(source, {0, 1, 2}, 1, DType::kF32);
  EXPECT_EQ(e.at(0, 0), 448 * 0x1p-127f);
  EXPECT_EQ(e.at(0, 1), 0.0f);
  for (int64_t k = 0; k < 32; ++k) {
    EXPECT_TRUE(std::isnan(e.at(1, k)));
    EXPECT_TRUE(std::isfinite(e.at(2, k)));
  }
  EXPECT_EQ(gather(source, {}, 1, DType::kBF16).rows(), 0);
}

struct MixData {
  Rows u;
  Rows h;
  WeightData q;
  WeightData k;
  std::vector<uint8_t> alive;
};

inline MixData mix_data(uint64_t seed, int64_t tokens, int64_t dim, DType dtype, WeightFormat format) {
  Pcg64 random(seed);
  return {random_rows(random, tokens, 5 * dim, dtype),
          random_rows(random, tokens, 4 * dim, dtype),
          random_weight(random, format, 4, dim),
          random_weight(random, format, 4, dim),
          {}};
}

inline std::vector<float> columns_of_row(const Rows& rows, int64_t t, int64_t first, int64_t count) {
  std::vector<float> values;
  for (int64_t k = first; k < first + count; ++k) values.push_back(rows.at(t, k));
  return values;
}

inline Rows contract_engram_mix(const MixData& data) {
  const int64_t dim = data.q.columns();
  Rows h = data.h;
  for (int64_t t = 0; t < h.rows(); ++t) {
    if (!data.alive.empty() && data.alive[static_cast<size_t>(t)] == 0) continue;
    for (int64_t c = 0; c < 4; ++c) {
      const std::vector<float> stream = columns_of_row(data.h, t, c * dim, dim);
      const std::vector<float> key = columns_of_row(data.u, t, c * dim, dim);
      const FlushSubnormals flush;
      std::vector<float> weighted;
      for (int64_t k = 0; k < dim; ++k)
        weighted.push_back(stream[static_cast<size_t>(k)] * (data.q.at(c, k) * data.k.at(c, k)));
      const auto size = static_cast<float>(dim);
      const float r_h = 1.0f / std::sqrt(contract_lane_dot(stream, stream) / size + 1e-20f);
      const float r_key = 1.0f / std::sqrt(contract_lane_dot(key, key) / size + 1e-20f);
      const auto scale = static_cast<float>(std::pow(static_cast<double>(dim), -0.5));
      const float dot = contract_lane_dot(weighted, key) * (r_h * r_key) * scale;
      const float argument = std::copysign(std::sqrt(std::max(std::fabs(dot), 1e-6f)), dot);
      const float gamma = 1.0f / (1.0f + ops::exp_f32(-argument));
      for (int64_t k = 0; k < dim; ++k) {
        h.set(t, c * dim + k, std::fma(gamma, data.u.at(t, 4 * dim + k), stream[static_cast<size_t>(k)]));
      }
    }
  }
  return h;
}

class EngramMixSuite : public OpSuite {
 protected:
  [[nodiscard]] Rows mix(const MixData& data, int threads = 1) const {
    Rows h = data.h;
    run_op(table().engram_mix,
           EngramMixArgs{data.u.view(), data.q.view(), data.k.view(), data.alive.empty() ? nullptr : data.alive.data(),
                         1e-20f, h.view()},
           {.tokens = h.rows(), .columns = h.columns()}, threads);
    EXPECT_TRUE(h.gaps_intact());
    return h;
  }
};

// F64 of one element; the gate's slope is at most 1/4, and that of the root 500 at its floor.
inline Bounded exact_engram_mix(const MixData& data, int64_t t, int64_t at) {
  const int64_t dim = data.q.columns();
  const int64_t c = at / dim;
  const double h = static_cast<double>(data.h.at(t, at));
  double h2 = 0;
  double key2 = 0;
  double dot = 0;
  double magnitude = 0;
  for (int64_t k = 0; k < dim; ++k) {
    const double hk = static_cast<double>(data.h.at(t, c * dim + k));
    const double key = static_cast<double>(data.u.at(t, c * dim + k));
    const double product = hk * static_cast<double>(data.q.at(c, k)) * static_cast<double>(data.k.at(c, k)) * key;
    h2 += hk * hk;
    key2 += key * key;
    dot += product;
    magnitude += std::fabs(product);
  }
  const double size = static_cast<double>(dim);
  const double factor = 1 / std::sqrt((h2 / size + 1e-20) * (key2 / size + 1e-20)) / std::sqrt(size);
  const double error = magnitude * factor * (size / 8 + 20) * 0x1p-24;
  const double root = std::sqrt(std::max(std::fabs(dot * factor), 1e-6));
  const double gamma = 1 / (1 + std::exp(-std::copysign(root, dot)));
  const double value = static_cast<double>(data.u.at(t, 4 * dim + at % dim));
  const double slope = 0.25 * error / std::max(root, 1e-3);
  return stored({h + gamma * value, std::fabs(value) * (slope + 4 * 0x1p-24) + std::fabs(h + gamma * value) * 0x1p-24},
                data.h.dtype());
}

TEST_P(EngramMixSuite, FollowsTheContract) {
  uint64_t seed = 100;
  for (int64_t dim : {1, 16, 37, 320}) {
    for (DType dtype : {DType::kBF16, DType::kF32}) {
      for (WeightFormat format : {WeightFormat::kBF16, WeightFormat::kF32}) {
        SCOPED_TRACE("D=" + std::to_string(dim) + " " + format_text(format));
        MixData data = mix_data(++seed, 5, dim, dtype, format);
        const Rows h = mix(data);
        if (is_bitwise()) expect_same_rows("bits", h, contract_engram_mix(data));
        expect_within("bound", h, [&](int64_t t, int64_t at) { return exact_engram_mix(data, t, at); });
        for (int threads : kThreadCounts) expect_same_rows("threads", mix(data, threads), h);
        const MixData alone{data.u.only(3), data.h.only(3), data.q, data.k, {}};
        expect_same_row("a row alone", mix(alone), 0, h, 3);
      }
    }
  }
}

TEST_P(EngramMixSuite, ImageRowsKeepTheirStreams) {
  MixData data = mix_data(200, 4, 32, DType::kBF16, WeightFormat::kBF16);
  const Rows all = mix(data);
  data.alive = {1, 0, 1, 0};
  const Rows some = mix(data);
  for (int64_t t = 0; t < 4; ++t) expect_same_row("alive", some, t, t % 2 == 0 ? all : data.h, t);
  EXPECT_EQ(mix(mix_data(1, 0, 16, DType::kBF16, WeightFormat::kBF16)).rows(), 0);
}

INSTANTIATE_TEST_SUITE_P(Tables, EngramGatherSuite, testing::ValuesIn(tables_under_test()), table_name);
INSTANTIATE_TEST_SUITE_P(Tables, EngramMixSuite, testing::ValuesIn(tables_under_test()), table_name);

}  // namespace ps::ops::test
