// Expectations of ops/hyper_connection.h, for every table.
#pragma once

#include <array>

#include "ops/hyper_connection.h"
#include "ops/numerics.h"
#include "ops/testing/op_fixture.h"
#include "ops/testing/weight_data.h"

namespace ps::ops::test {

struct HcParameters {
  WeightData fn;
  VectorData base;
  VectorData scale;
};

inline HcParameters hc_parameters(Pcg64& random, int64_t dim, DType vector_dtype = DType::kF32) {
  return {random_weight(random, WeightFormat::kF32, kMixes, 4 * dim, 1.0 / std::sqrt(4.0 * static_cast<double>(dim))),
          VectorData(random_floats(random, kMixes), vector_dtype), VectorData({0.7f, 1.3f, 2.1f}, vector_dtype)};
}

struct HcMixes {
  std::vector<float> pre;
  std::vector<float> post;
  std::vector<float> combine;
};

inline constexpr float kNormEps = 1e-20f;
inline constexpr float kHcEps = 1e-6f;

// model.md 2.9 and the contract's order for one row, in arithmetic T: float transcribes, double bounds.
template <typename T>
struct MixRow {
  std::array<T, 4> pre;
  std::array<T, 4> post;
  std::array<std::array<T, 4>, 4> m;
};

// exp() is the project's own in F32 (numerics.h) and the library's in F64.
inline float contract_exp(float x) { return ops::exp_f32(x); }
inline double contract_exp(double x) { return std::exp(x); }

template <typename T>
MixRow<T> contract_mix(const std::array<T, kMixes>& z, const HcParameters& p, int iterations) {
  const FlushSubnormals flush;
  const auto scaled = [&](size_t n, int64_t kind) {
    return z[n] * static_cast<T>(p.scale.at(kind)) + static_cast<T>(p.base.at(static_cast<int64_t>(n)));
  };
  const auto sigmoid = [](T x) { return T{1} / (T{1} + contract_exp(-x)); };
  const T eps = static_cast<T>(kHcEps);
  MixRow<T> row;
  for (size_t c = 0; c < 4; ++c) row.pre[c] = sigmoid(scaled(c, 0)) + eps;
  for (size_t c = 0; c < 4; ++c) row.post[c] = T{2} * sigmoid(scaled(4 + c, 1));
  auto& m = row.m;
  for (size_t i = 0; i < 4; ++i) {
    for (size_t j = 0; j < 4; ++j) m[i][j] = scaled(8 + 4 * i + j, 2);
    const T top = *std::max_element(m[i].begin(), m[i].end());
    for (size_t j = 0; j < 4; ++j) m[i][j] = contract_exp(m[i][j] - top);
    const T sum = m[i][0] + m[i][1] + m[i][2] + m[i][3];
    for (size_t j = 0; j < 4; ++j) m[i][j] = m[i][j] / sum + eps;
  }
  for (int pass = 0; pass < 2 * iterations - 1; ++pass) {
    for (size_t a = 0; a < 4; ++a) {
      if (pass % 2 == 0) {
        const T sum = m[0][a] + m[1][a] + m[2][a] + m[3][a] + eps;
        for (size_t i = 0; i < 4; ++i) m[i][a] = m[i][a] / sum;
      } else {
        const T sum = m[a][0] + m[a][1] + m[a][2] + m[a][3] + eps;
        for (size_t j = 0; j < 4; ++j) m[a][j] = m[a][j] / sum;
      }
    }
  }
  return row;
}

class HcMixSuite : public OpSuite {
 protected:
  [[nodiscard]] HcMixes mix(const Rows& h, const HcParameters& p, int threads = 1, int iterations = 20) const {
    const auto rows = static_cast<size_t>(h.rows());
    HcMixes mixes{std::vector<float>(rows * 4), std::vector<float>(rows * 4), std::vector<float>(rows * 16)};
    run_op(table().hc_mix,
           HcMixArgs{h.view(), p.fn.view(), p.base.view(), p.scale.view(), kNormEps, kHcEps, iterations,
                     mixes.pre.data(), mixes.post.data(), mixes.combine.data()},
           {.tokens = h.rows(), .columns = h.columns()}, threads);
    return mixes;
  }
};

inline void expect_same_mixes(const std::string& what, const HcMixes& actual, const HcMixes& expected) {
  expect_same_floats(what + " pre", actual.pre, expected.pre);
  expect_same_floats(what + " post", actual.post, expected.post);
  expect_same_floats(what + " combine", actual.combine, expected.combine);
}

// The contract's bits for all rows.
inline HcMixes contract_mixes(const Rows& h, const HcParameters& p, int iterations) {
  HcMixes mixes;
  for (int64_t t = 0; t < h.rows(); ++t) {
    const std::vector<float> v = h.row(t);
    const float mean = contract_lane_dot(v, v) / static_cast<float>(v.size());
    const float rho = 1.0f / std::sqrt(mean + kNormEps);
    std::array<float, kMixes> z;
    for (int64_t n = 0; n < kMixes; ++n) z[static_cast<size_t>(n)] = contract_dot(v, p.fn.row(n)) * rho;
    const MixRow<float> row = contract_mix(z, p, iterations);
    mixes.pre.insert(mixes.pre.end(), row.pre.begin(), row.pre.end());
    mixes.post.insert(mixes.post.end(), row.post.begin(), row.post.end());
    for (const auto& line : row.m) mixes.combine.insert(mixes.combine.end(), line.begin(), line.end());
  }
  return mixes;
}

// F64 all the way; every value is below 2, and the error of z enters at most 2.1 times, so one bound serves all.
inline void expect_close_to_exact(const HcMixes& actual, const Rows& h, const HcParameters& p, int iterations) {
  for (int64_t t = 0; t < h.rows(); ++t) {
    const std::vector<float> v = h.row(t);
    double square = 0;
    for (float value : v) square += static_cast<double>(value) * static_cast<double>(value);
    const double rho = 1 / std::sqrt(square / static_cast<double>(v.size()) + static_cast<double>(kNormEps));
    std::array<double, kMixes> z;
    double error = 0;
    for (int64_t n = 0; n < kMixes; ++n) {
      const Bounded dot =
          exact_dot(v, p.fn.row(n), canonical_steps(h.columns()) + static_cast<double>(h.columns()) / 32);
      z[static_cast<size_t>(n)] = dot.value * rho;
      error = std::max(error, dot.bound * rho);
    }
    const double bound = 8 * error + 60 * 0x1p-24;
    const MixRow<double> row = contract_mix(z, p, iterations);
    for (size_t c = 0; c < 4; ++c) {
      const auto at = static_cast<size_t>(t);
      EXPECT_NEAR(static_cast<double>(actual.pre[at * 4 + c]), row.pre[c], bound) << "row " << t;
      EXPECT_NEAR(static_cast<double>(actual.post[at * 4 + c]), row.post[c], bound) << "row " << t;
      for (size_t j = 0; j < 4; ++j) {
        EXPECT_NEAR(static_cast<double>(actual.combine[at * 16 + c * 4 + j]), row.m[c][j], 4 * bound) << "row " << t;
      }
    }
  }
}

TEST_P(HcMixSuite, FollowsTheContract) {
  uint64_t seed = 1;
  for (int64_t dim : {1, 5, 24, 320}) {
    for (DType dtype : {DType::kBF16, DType::kF32}) {
      for (int iterations : {1, 20}) {
        Pcg64 random(++seed);
        SCOPED_TRACE("D=" + std::to_string(dim) + " iterations " + std::to_string(iterations));
        const HcParameters p = hc_parameters(random, dim, dtype);
        const Rows h = random_rows(random, 5, 4 * dim, dtype);
        const HcMixes mixes = mix(h, p, 1, iterations);
        if (is_bitwise()) expect_same_mixes("bits", mixes, contract_mixes(h, p, iterations));
        expect_close_to_exact(mixes, h, p, iterations);
        for (int threads : kThreadCounts) expect_same_mixes("threads", mix(h, p, threads, iterations), mixes);
        const HcMixes alone = mix(h.only(3), p, 1, iterations);
        expect_same_floats("a row alone", alone.combine, {mixes.combine.begin() + 48, mixes.combine.begin() + 64});
        expect_same_floats("a row alone", alone.pre, {mixes.pre.begin() + 12, mixes.pre.begin() + 16});
      }
    }
  }
}

// F32 weights count in full: values that BF16 cannot hold change the mixes.
TEST_P(HcMixSuite, WeightsAreNotNarrowed) {
  Pcg64 random(50);
  HcParameters p = hc_parameters(random, 64);
  const Rows h = random_rows(random, 1, 256, DType::kBF16);
  const HcMixes wide = mix(h, p);
  p.fn = p.fn.decoded(WeightFormat::kBF16).decoded(WeightFormat::kF32);
  EXPECT_NE(mix(h, p).pre, wide.pre);
}

// A zero row and one of huge values stay finite.
TEST_P(HcMixSuite, ExtremeRowsStayFinite) {
  Pcg64 random(60);
  const HcParameters p = hc_parameters(random, 16);
  Rows h(2, 64, DType::kBF16);
  for (int64_t k = 0; k < 64; ++k) {
    h.set(0, k, 0.0f);
    h.set(1, k, k % 3 == 0 ? 0x1p55f : -0x1p50f);
  }
  const HcMixes mixes = mix(h, p);
  for (float value : mixes.pre) EXPECT_TRUE(std::isfinite(value));
  for (float value : mixes.combine) EXPECT_TRUE(std::isfinite(value));
  EXPECT_TRUE(mix(Rows(0, 64, DType::kBF16), p).pre.empty());
}

class HcCollapseSuite : public OpSuite {
 protected:
  [[nodiscard]] Rows collapse(const Rows& h, const std::vector<float>& pre, const std::vector<int32_t>* rows,
                              DType dtype, int threads = 1) const {
    Rows x(rows != nullptr ? static_cast<int64_t>(rows->size()) : h.rows(), h.columns() / 4, dtype);
    run_op(table().hc_collapse,
           HcCollapseArgs{h.view(), pre.data(), rows != nullptr ? rows->data() : nullptr, x.view()},
           {.tokens = h.rows(), .columns = h.columns()}, threads);
    EXPECT_TRUE(x.gaps_intact());
    return x;
  }
};

TEST_P(HcCollapseSuite, FollowsTheContract) {
  uint64_t seed = 100;
  for (int64_t dim : {1, 7, 64, 133}) {
    for (DType dtype : {DType::kBF16, DType::kF32}) {
      Pcg64 random(++seed);
      const Rows h = random_rows(random, 6, 4 * dim, dtype, Data::kWide);
      const std::vector<float> pre = random_floats(random, 24);
      const Rows x = collapse(h, pre, nullptr, dtype);
      Rows bits(6, dim, dtype);
      for (int64_t t = 0; t < 6; ++t) {
        for (int64_t k = 0; k < dim; ++k) {
          float value = pre[static_cast<size_t>(t * 4)] * h.at(t, k);
          for (int64_t c = 1; c < 4; ++c)
            value = std::fma(pre[static_cast<size_t>(t * 4 + c)], h.at(t, c * dim + k), value);
          bits.set(t, k, value);
        }
      }
      if (is_bitwise()) expect_same_rows("bits", x, bits);
      expect_within("bound", x, [&](int64_t t, int64_t k) {
        std::vector<float> streams;
        for (int64_t c = 0; c < 4; ++c) streams.push_back(h.at(t, c * dim + k));
        return stored(exact_dot(streams, {pre.begin() + t * 4, pre.begin() + t * 4 + 4}, 4), dtype);
      });
      for (int threads : kThreadCounts) expect_same_rows("threads", collapse(h, pre, nullptr, dtype, threads), x);
      const std::vector<int32_t> rows = {5, 0, 2};
      const Rows some = collapse(h, pre, &rows, dtype);
      for (int64_t r = 0; r < 3; ++r) expect_same_row("chosen rows", some, r, x, rows[static_cast<size_t>(r)]);
    }
  }
  EXPECT_EQ(collapse(Rows(0, 16, DType::kBF16), {}, nullptr, DType::kBF16).rows(), 0);
}

class HcExpandSuite : public OpSuite {
 protected:
  [[nodiscard]] Rows expand(Rows h, const Rows& y, const std::vector<float>& post, const std::vector<float>& combine,
                            int threads = 1) const {
    run_op(table().hc_expand, HcExpandArgs{y.view(), post.data(), combine.data(), h.view()},
           {.tokens = h.rows(), .columns = h.columns()}, threads);
    EXPECT_TRUE(h.gaps_intact());
    return h;
  }
};

TEST_P(HcExpandSuite, FollowsTheContract) {
  uint64_t seed = 200;
  for (int64_t dim : {1, 7, 64, 133}) {
    for (DType dtype : {DType::kBF16, DType::kF32}) {
      Pcg64 random(++seed);
      const Rows h = random_rows(random, 5, 4 * dim, dtype, Data::kWide);
      const Rows y = random_rows(random, 5, dim, dtype, Data::kWide);
      const std::vector<float> post = random_floats(random, 20);
      const std::vector<float> combine = random_floats(random, 80);
      const auto m = [&](int64_t t, int64_t i, int64_t j) { return combine[static_cast<size_t>(t * 16 + i * 4 + j)]; };
      const Rows mixed = expand(h, y, post, combine);
      Rows bits(5, 4 * dim, dtype);
      for (int64_t t = 0; t < 5; ++t) {
        for (int64_t at = 0; at < 4 * dim; ++at) {
          const int64_t j = at / dim;
          const int64_t k = at % dim;
          float value = post[static_cast<size_t>(t * 4 + j)] * y.at(t, k);
          for (int64_t i = 0; i < 4; ++i) value = std::fma(m(t, i, j), h.at(t, i * dim + k), value);
          bits.set(t, at, value);
        }
      }
      if (is_bitwise()) expect_same_rows("bits", mixed, bits);
      expect_within("bound", mixed, [&](int64_t t, int64_t at) {
        std::vector<float> a = {y.at(t, at % dim)};
        std::vector<float> b = {post[static_cast<size_t>(t * 4 + at / dim)]};
        for (int64_t i = 0; i < 4; ++i) {
          a.push_back(h.at(t, i * dim + at % dim));
          b.push_back(m(t, i, at / dim));
        }
        return stored(exact_dot(a, b, 5), dtype);
      });
      for (int threads : kThreadCounts) expect_same_rows("threads", expand(h, y, post, combine, threads), mixed);
      const Rows alone = expand(h.only(2), y.only(2), {post.begin() + 8, post.begin() + 12},
                                {combine.begin() + 32, combine.begin() + 48});
      expect_same_row("a row alone", alone, 0, mixed, 2);
    }
  }
  EXPECT_EQ(expand(Rows(0, 16, DType::kBF16), Rows(0, 4, DType::kBF16), {}, {}).rows(), 0);
}

INSTANTIATE_TEST_SUITE_P(Tables, HcMixSuite, testing::ValuesIn(tables_under_test()), table_name);
INSTANTIATE_TEST_SUITE_P(Tables, HcCollapseSuite, testing::ValuesIn(tables_under_test()), table_name);
INSTANTIATE_TEST_SUITE_P(Tables, HcExpandSuite, testing::ValuesIn(tables_under_test()), table_name);

}  // namespace ps::ops::test
