// Expectations of the router of ops/moe.h, for every table.
#pragma once

#include <numeric>

#include "ops/moe.h"
#include "ops/numerics.h"
#include "ops/testing/op_fixture.h"

namespace ps::ops::test {

struct Routes {
  std::vector<int32_t> ids;
  std::vector<float> weights;
};

struct RouterData {
  Rows logits;
  VectorData bias;
  VectorData bias_image;
  std::vector<uint8_t> is_image;
};

// Ties are common: logits come from a small set of values.
inline RouterData router_data(Pcg64& random, int64_t tokens, int64_t experts, bool has_ties) {
  RouterData data{random_rows(random, tokens, experts, DType::kF32),
                  VectorData(random_floats(random, experts), DType::kF32),
                  VectorData(random_floats(random, experts), DType::kBF16),
                  {}};
  for (int64_t t = 0; t < tokens; ++t) {
    data.is_image.push_back(static_cast<uint8_t>(random.integer(0, 2)));
    for (int64_t e = 0; has_ties && e < experts; ++e) data.logits.set(t, e, static_cast<float>(random.integer(-2, 3)));
  }
  if (has_ties) data.bias = VectorData(std::vector<float>(static_cast<size_t>(experts), 0.5f), DType::kF32);
  return data;
}

inline float contract_score(float z) {
  const FlushSubnormals flush;
  const float softplus = z > 20.0f ? z : static_cast<float>(std::log1p(static_cast<double>(ops::exp_f32(z))));
  return std::sqrt(softplus);
}

inline Routes contract_routes(const RouterData& data, int32_t top_k, float scaling) {
  Routes routes;
  const int64_t experts = data.logits.columns();
  for (int64_t t = 0; t < data.logits.rows(); ++t) {
    const VectorData& bias = data.is_image[static_cast<size_t>(t)] != 0 ? data.bias_image : data.bias;
    std::vector<float> scores;
    std::vector<float> ranks;
    for (int64_t e = 0; e < experts; ++e) {
      scores.push_back(contract_score(data.logits.at(t, e)));
      const float rank = scores.back() + bias.at(e);
      ranks.push_back(std::isnan(rank) ? -std::numeric_limits<float>::infinity() : rank);
    }
    std::vector<int32_t> order(static_cast<size_t>(experts));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return ranks[static_cast<size_t>(a)] > ranks[static_cast<size_t>(b)];
    });
    order.resize(static_cast<size_t>(top_k));
    std::sort(order.begin(), order.end());
    float sum = 0.0f;
    for (int32_t id : order) sum = sum + scores[static_cast<size_t>(id)];
    for (int32_t id : order) {
      routes.ids.push_back(id);
      routes.weights.push_back(scores[static_cast<size_t>(id)] / (sum + 1e-20f) * scaling);
    }
  }
  return routes;
}

class RouterSuite : public OpSuite {
 protected:
  [[nodiscard]] Routes route(const RouterData& data, int32_t top_k, float scaling = 1.5f, int threads = 1) const {
    const auto count = static_cast<size_t>(data.logits.rows() * top_k);
    Routes routes{std::vector<int32_t>(count, -7), std::vector<float>(count, -7.0f)};
    run_op(table().router,
           RouterArgs{data.logits.view(), data.bias.view(), data.bias_image.view(), data.is_image.data(), top_k,
                      scaling, routes.ids.data(), routes.weights.data()},
           {.tokens = data.logits.rows(), .experts = data.logits.columns(), .experts_per_token = top_k}, threads);
    return routes;
  }
};

inline void expect_same_routes(const std::string& what, const Routes& actual, const Routes& expected,
                               bool is_bitwise = true) {
  EXPECT_EQ(actual.ids, expected.ids) << what;
  if (is_bitwise) {
    expect_same_floats(what, actual.weights, expected.weights);
    return;
  }
  for (size_t i = 0; i < expected.weights.size(); ++i)
    EXPECT_NEAR(actual.weights[i], expected.weights[i], 1e-6) << what;
}

TEST_P(RouterSuite, FollowsTheContract) {
  struct Shape {
    int64_t experts;
    int32_t top_k;
  };
  uint64_t seed = 1;
  // 384 experts, top 6 is the model; 128, top 3 its draft.
  for (const Shape& shape : {Shape{1, 1}, Shape{8, 8}, Shape{17, 3}, Shape{128, 3}, Shape{256, 6}, Shape{384, 6}}) {
    for (bool has_ties : {false, true}) {
      Pcg64 random(++seed);
      SCOPED_TRACE("E=" + std::to_string(shape.experts) + " ties " + std::to_string(has_ties));
      const RouterData data = router_data(random, 19, shape.experts, has_ties);
      const Routes routes = route(data, shape.top_k);
      expect_same_routes("contract", routes, contract_routes(data, shape.top_k, 1.5f), is_bitwise());
      for (int threads : kThreadCounts) expect_same_routes("threads", route(data, shape.top_k, 1.5f, threads), routes);
      const RouterData alone{data.logits.only(11), data.bias, data.bias_image, {data.is_image[11]}};
      const auto first = static_cast<ptrdiff_t>(11 * shape.top_k);
      expect_same_routes("a row alone", route(alone, shape.top_k),
                         {{routes.ids.begin() + first, routes.ids.begin() + first + shape.top_k},
                          {routes.weights.begin() + first, routes.weights.begin() + first + shape.top_k}});
    }
  }
}

TEST_P(RouterSuite, EqualScoresPickTheLowestIds) {
  for (int64_t experts : {8, 384}) {
    RouterData data{Rows(1, experts, DType::kF32),
                    VectorData(std::vector<float>(static_cast<size_t>(experts)), DType::kF32),
                    VectorData(std::vector<float>(static_cast<size_t>(experts)), DType::kF32),
                    {0}};
    for (int64_t e = 0; e < experts; ++e) data.logits.set(0, e, 1.0f);
    EXPECT_EQ(route(data, 6).ids, (std::vector<int32_t>{0, 1, 2, 3, 4, 5}));
    data.logits.set(0, experts - 1, 2.0f);
    EXPECT_EQ(route(data, 6).ids, (std::vector<int32_t>{0, 1, 2, 3, 4, static_cast<int32_t>(experts) - 1}));
  }
}

// softplus must not lose very negative logits: log1p(exp(-30)) is 9.4e-14, and its root still carries weight.
TEST_P(RouterSuite, TinyAndHugeLogitsKeepTheirScores) {
  RouterData data{Rows(1, 6, DType::kF32),
                  VectorData(std::vector<float>(6), DType::kF32),
                  VectorData(std::vector<float>(6), DType::kF32),
                  {0}};
  const std::vector<float> logits = {-30.0f, -31.0f, -60.0f, -86.0f, -100.0f, -3.0e38f};
  for (int64_t e = 0; e < 6; ++e) data.logits.set(0, e, logits[static_cast<size_t>(e)]);
  const Routes few = route(data, 6, 1.0f);
  double sum = 0;
  for (float z : logits) sum += std::sqrt(std::log1p(std::exp(static_cast<double>(z))));
  for (size_t e = 0; e < 4; ++e) {
    const double expected = std::sqrt(std::log1p(std::exp(static_cast<double>(logits[e])))) / sum;
    EXPECT_NEAR(static_cast<double>(few.weights[e]), expected, expected * 1e-6) << e;
  }
  EXPECT_EQ(few.weights[5], 0.0f);
  data.logits.set(0, 2, 1.0e30f);  // sqrt, no overflow
  EXPECT_EQ(route(data, 1, 1.5f).ids, (std::vector<int32_t>{2}));
  EXPECT_EQ(route(data, 1, 1.5f).weights, (std::vector<float>{1.5f}));
}

TEST_P(RouterSuite, NanRanksBelowEveryNumber) {
  RouterData data{Rows(1, 5, DType::kF32),
                  VectorData(std::vector<float>(5), DType::kF32),
                  VectorData(std::vector<float>(5), DType::kF32),
                  {0}};
  for (int64_t e = 0; e < 5; ++e) data.logits.set(0, e, e < 3 ? std::nanf("") : -5.0f);
  EXPECT_EQ(route(data, 2).ids, (std::vector<int32_t>{3, 4}));
  EXPECT_EQ(route(data, 3).ids, (std::vector<int32_t>{0, 3, 4}));
}

TEST_P(RouterSuite, NoRowsIsNoWork) {
  Pcg64 random(9);
  EXPECT_TRUE(route(router_data(random, 0, 16, false), 4).ids.empty());
}

INSTANTIATE_TEST_SUITE_P(Tables, RouterSuite, testing::ValuesIn(tables_under_test()), table_name);

}  // namespace ps::ops::test
