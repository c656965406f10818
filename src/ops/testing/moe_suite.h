// Expectations of the experts of ops/moe.h, for every table.
#pragma once

#include "base/quantize.h"
#include "ops/moe.h"
#include "ops/numerics.h"
#include "ops/testing/op_fixture.h"
#include "ops/testing/weight_data.h"

namespace ps::ops::test {

struct ExpertData {
  WeightData w1;
  WeightData w3;
  WeightData w2;
  [[nodiscard]] Expert view() const { return {w1.view(), w3.view(), w2.view()}; }
};

struct MoeCase {
  WeightFormat in;         // w1, w3 of the routed experts
  WeightFormat out;        // w2
  WeightFormat shared_in;  // the shared expert's
  WeightFormat shared_out;
  int64_t tokens;
  int64_t dim = 64;
  int64_t inner = 32;
  int32_t experts = 5;
  int32_t top_k = 3;
  DType dtype = DType::kBF16;
};

inline std::string case_text(const MoeCase& c) {
  return format_text(c.in) + "/" + format_text(c.out) + " shared " + format_text(c.shared_in) + "/" +
         format_text(c.shared_out) + " T=" + std::to_string(c.tokens) + " E=" + std::to_string(c.experts) + " top " +
         std::to_string(c.top_k) + " " + std::string(dtype_name(c.dtype));
}

// One call with its storage.
struct MoeData {
  Rows x;     // as is
  Rows x_mx;  // on the MXFP8 grid
  std::vector<ExpertData> experts;
  ExpertData shared;
  std::vector<int32_t> ids;
  std::vector<float> weights;
  int32_t top_k = 0;
  float limit = 10.0f;

  [[nodiscard]] const Rows& input(const ExpertData& expert) const {
    return is_quantized(expert.w1.format()) ? x_mx : x;
  }
  [[nodiscard]] ConstActivations input_view(const ExpertData& expert) const {
    const bool quantized = is_quantized(expert.w1.format());
    return quantized ? x_mx.view(Grid::kMxfp8) : x.view();
  }
  // The call of one row.
  [[nodiscard]] MoeData only(int64_t row) const {
    MoeData alone{x.only(row), x_mx.only(row), experts, shared, {}, {}, top_k, limit};
    alone.ids.assign(ids.begin() + row * top_k, ids.begin() + (row + 1) * top_k);
    alone.weights.assign(weights.begin() + row * top_k, weights.begin() + (row + 1) * top_k);
    return alone;
  }
};

inline Rows on_grid(const Rows& x) {
  Rows y = x;
  for (int64_t t = 0; t < x.rows(); ++t) {
    std::vector<float> row = x.row(t);
    fake_quantize_mxfp8(row.data(), x.columns());
    for (int64_t k = 0; k < x.columns(); ++k) y.set(t, k, row[static_cast<size_t>(k)]);
  }
  return y;
}

inline ExpertData random_expert(Pcg64& random, WeightFormat in, WeightFormat out, int64_t dim, int64_t inner) {
  const double size = 1.0 / std::sqrt(static_cast<double>(dim));
  return {random_weight(random, in, inner, dim, size), random_weight(random, in, inner, dim, size),
          random_weight(random, out, dim, inner, size)};
}

inline MoeData moe_data(const MoeCase& c, uint64_t seed) {
  Pcg64 random(seed);
  MoeData data;
  data.x = random_rows(random, c.tokens, c.dim, c.dtype);
  data.x_mx = c.dim % 32 == 0 ? on_grid(data.x) : data.x;
  data.top_k = c.top_k;
  for (int32_t e = 0; e < c.experts; ++e) data.experts.push_back(random_expert(random, c.in, c.out, c.dim, c.inner));
  data.shared = random_expert(random, c.shared_in, c.shared_out, c.dim, c.inner);
  for (int64_t t = 0; t < c.tokens; ++t) {
    int32_t next = 0;
    for (int32_t pick = 0; pick < c.top_k; ++pick) {  // ascending, distinct, any
      next += static_cast<int32_t>(random.integer(0, c.experts - next - (c.top_k - pick) + 1));
      data.ids.push_back(next++);
      data.weights.push_back(static_cast<float>(random.uniform()));
    }
  }
  return data;
}

// y_e of one row, transcribed.
inline std::vector<float> contract_expert(const ExpertData& expert, const std::vector<float>& x, float g, float limit,
                                          DType compute) {
  const FlushSubnormals flush;
  const auto rd = [&](float value) { return compute == DType::kF32 ? value : to_float(to_bf16(value)); };
  std::vector<float> t;
  for (int64_t i = 0; i < expert.w1.rows(); ++i) {
    float a = rd(contract_dot(x, expert.w1.row(i)));
    float u = rd(contract_dot(x, expert.w3.row(i)));
    if (a > limit) a = limit;
    if (u > limit) u = limit;
    if (u < -limit) u = -limit;
    const float silu = a * (1.0f / (1.0f + ops::exp_f32(-a)));
    t.push_back(rd(g * (silu * u)));
  }
  if (is_quantized(expert.w2.format())) fake_quantize_mxfp8(t.data(), static_cast<int64_t>(t.size()));
  std::vector<float> y;
  for (int64_t n = 0; n < expert.w2.rows(); ++n) y.push_back(rd(contract_dot(t, expert.w2.row(n))));
  return y;
}

inline Rows contract_moe(const MoeData& data, DType compute) {
  Rows y(data.x.rows(), data.x.columns(), compute);
  for (int64_t t = 0; t < data.x.rows(); ++t) {
    std::vector<float> sum(static_cast<size_t>(data.x.columns()), 0.0f);
    const auto add = [&](const ExpertData& expert, float g) {
      const std::vector<float> part = contract_expert(expert, data.input(expert).row(t), g, data.limit, compute);
      const FlushSubnormals flush;
      for (size_t k = 0; k < sum.size(); ++k) sum[k] = sum[k] + part[k];
    };
    for (int64_t pick = t * data.top_k; pick < (t + 1) * data.top_k; ++pick) {
      const auto at = static_cast<size_t>(pick);
      add(data.experts[static_cast<size_t>(data.ids[at])], data.weights[at]);
    }
    add(data.shared, 1.0f);
    for (int64_t k = 0; k < y.columns(); ++k) y.set(t, k, sum[static_cast<size_t>(k)]);
  }
  return y;
}

class MoeSuite : public OpSuite {
 protected:
  [[nodiscard]] Rows moe(const MoeData& data, int threads = 1) const {
    Rows y(data.x.rows(), data.x.columns(), data.x.dtype());
    std::vector<Expert> experts;
    for (const ExpertData& expert : data.experts) experts.push_back(expert.view());
    run_op(table().moe,
           MoeArgs{data.input_view(data.experts[0]), data.input_view(data.shared), experts.data(),
                   static_cast<int32_t>(experts.size()), data.shared.view(), data.ids.data(), data.weights.data(),
                   data.top_k, data.limit, y.view()},
           {.tokens = data.x.rows(),
            .hidden = data.x.columns(),
            .intermediate = std::max(data.shared.w1.rows(), data.experts[0].w1.rows()),
            .experts = static_cast<int64_t>(experts.size()),
            .experts_per_token = data.top_k},
           threads);
    EXPECT_TRUE(y.gaps_intact());
    return y;
  }
  void expect_contract(const std::string& what, const Rows& y, const Rows& expected) const {
    if (is_bitwise()) expect_same_rows(what, y, expected);
    else expect_near_rows(what, y, expected, 2e-2);
  }
};

inline std::vector<MoeCase> moe_cases() {
  constexpr auto kF32 = WeightFormat::kF32;
  constexpr auto kBF16 = WeightFormat::kBF16;
  constexpr auto kFp8 = WeightFormat::kFp8Block32;
  constexpr auto kFp4 = WeightFormat::kFp4Block32;
  std::vector<MoeCase> cases;
  for (int64_t tokens : {1, 2, 3, 33}) {
    for (DType dtype : {DType::kBF16, DType::kF32}) {
      cases.push_back({kFp4, kFp4, kFp8, kFp8, tokens, 64, 32, 5, 3, dtype});  // the official checkpoint
      cases.push_back({kBF16, kBF16, kBF16, kBF16, tokens, 64, 32, 5, 3, dtype});
      cases.push_back({kF32, kF32, kF32, kF32, tokens, 24, 40, 5, 3, dtype});
      cases.push_back({kFp8, kBF16, kBF16, kFp4, tokens, 64, 96, 5, 2, dtype});  // each projection decides for itself
      cases.push_back({kBF16, kFp8, kFp4, kF32, tokens, 64, 96, 5, 5, dtype});
    }
  }
  cases.push_back({kFp4, kFp4, kFp8, kFp8, 5, 160, 96, 1, 1});
  cases.push_back({kFp4, kFp4, kFp8, kFp8, 9, 32, 32, 384, 6});
  cases.push_back({kBF16, kBF16, kBF16, kBF16, 600, 7, 5, 2, 1});  // many rows per expert
  return cases;
}

TEST_P(MoeSuite, FollowsTheContract) {
  uint64_t seed = 1;
  for (const MoeCase& c : moe_cases()) {
    SCOPED_TRACE(case_text(c));
    const MoeData data = moe_data(c, ++seed);
    expect_contract("contract", moe(data), contract_moe(data, c.dtype));
  }
}

TEST_P(MoeSuite, RowDependsOnNothingElse) {
  uint64_t seed = 100;
  for (MoeCase c : moe_cases()) {
    if (c.tokens < 3) continue;
    SCOPED_TRACE(case_text(c));
    const MoeData data = moe_data(c, ++seed);
    const Rows y = moe(data);
    for (int64_t row : {int64_t{0}, c.tokens / 2, c.tokens - 1})
      expect_same_row("alone", moe(data.only(row)), 0, y, row);
    for (int threads : kThreadCounts) expect_same_rows("threads", moe(data, threads), y);
  }
}

TEST_P(MoeSuite, QuantizedInputWeightsEqualTheirDecodedValues) {
  MoeData data = moe_data(
      {WeightFormat::kFp4Block32, WeightFormat::kBF16, WeightFormat::kFp8Block32, WeightFormat::kBF16, 7}, 200);
  const Rows quantized = moe(data);
  data.x = data.x_mx;  // the same inputs, as plain values
  for (ExpertData& expert : data.experts) expert = {expert.w1.decoded(), expert.w3.decoded(), expert.w2.decoded()};
  data.shared = {data.shared.w1.decoded(), data.shared.w3.decoded(), data.shared.w2.decoded()};
  expect_same_rows("decoded", moe(data), quantized);
}

// In F32 without quantizers the layer is a smooth function: compare with F64, errors carried through.
TEST_P(MoeSuite, IsCloseToExactArithmetic) {
  const auto format = WeightFormat::kF32;
  const MoeData data = moe_data({format, format, format, format, 9, 96, 64, 6, 3, DType::kF32}, 300);
  const Rows y = moe(data);
  expect_within("bound", y, [&](int64_t t, int64_t n) {
    Bounded sum;
    const auto add = [&](const ExpertData& expert, double g) {
      const std::vector<float> x = data.x.row(t);
      double magnitude = 0;
      for (int64_t i = 0; i < expert.w1.rows(); ++i) {
        const Bounded a = exact_dot(x, expert.w1.row(i), canonical_steps(x.size()));
        const Bounded u = exact_dot(x, expert.w3.row(i), canonical_steps(x.size()));
        const double gate = std::min(a.value, 10.0);
        const double up = std::clamp(u.value, -10.0, 10.0);
        const double silu = gate / (1 + std::exp(-gate));
        const double w = static_cast<double>(expert.w2.at(n, i));
        sum.value += g * silu * up * w;
        magnitude += std::fabs(g * silu * up * w);
        sum.bound += std::fabs(g * w) * (1.1 * a.bound * std::fabs(up) + std::fabs(silu) * u.bound);
      }
      sum.bound += magnitude * (canonical_steps(expert.w1.rows()) + 12) * 0x1p-24;
    };
    for (int64_t pick = t * 3; pick < t * 3 + 3; ++pick) {
      const auto at = static_cast<size_t>(pick);
      add(data.experts[static_cast<size_t>(data.ids[at])], static_cast<double>(data.weights[at]));
    }
    add(data.shared, 1.0);
    sum.bound += 4 * std::fabs(sum.value) * 0x1p-24;
    return sum;
  });
}

// Weights with one value per row, so that the pre-activations of x = (1, 0, ...) are those values.
inline WeightData first_column(WeightFormat format, const std::vector<float>& values, int64_t columns) {
  WeightData weight(format, static_cast<int64_t>(values.size()), columns);
  for (size_t n = 0; n < values.size(); ++n) {
    const auto row = static_cast<int64_t>(n);
    const float value = values[n];
    if (format == WeightFormat::kFp8Block32) weight.set_code(row, 0, float_to_e4m3(value));
    if (format == WeightFormat::kFp4Block32) {
      weight.scales()[weight.scale_index(row, 0)] = 127 + 3;
      weight.set_code(row, 0, float_to_e2m1(value / 8));
    }
    if (!is_quantized(format)) weight.set(row, 0, value);
  }
  return weight;
}

// The gate is clamped from above only, the up branch on both sides, on every path: one row, few, many.
TEST_P(MoeSuite, PreActivationsBeyondTheLimitAreClamped) {
  constexpr float kGate[] = {32, -32, 32, -32, 8, 8, -4, 48};
  constexpr float kUp[] = {32, 32, -32, -32, 4, -48, 32, 0};
  for (WeightFormat format : kAllFormats) {
    for (int64_t tokens : {1, 4, 70}) {
      SCOPED_TRACE(format_text(format) + " T=" + std::to_string(tokens));
      std::vector<float> gate(32, 0.0f);
      std::vector<float> up(32, 0.0f);
      std::copy(std::begin(kGate), std::end(kGate), gate.begin());
      std::copy(std::begin(kUp), std::end(kUp), up.begin());
      MoeData data;
      data.top_k = 1;
      data.x = Rows(tokens, 32, DType::kF32);
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t k = 0; k < 32; ++k) data.x.set(t, k, k == 0 ? 1.0f : 0.0f);
        data.ids.push_back(static_cast<int32_t>(t % 2));
        data.weights.push_back(0.5f);
      }
      data.x_mx = data.x;
      WeightData identity(WeightFormat::kF32, 32, 32);
      for (int64_t n = 0; n < 32; ++n) {
        for (int64_t k = 0; k < 32; ++k) identity.set(n, k, n == k ? 1.0f : 0.0f);
      }
      const ExpertData expert{first_column(format, gate, 32), first_column(format, up, 32), identity};
      const ExpertData zero{WeightData(format, 32, 32), WeightData(format, 32, 32), identity};
      data.experts = {expert, expert};
      data.shared = zero;
      const Rows y = moe(data);
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t n = 0; n < 8; ++n) {
          const double a = std::min(static_cast<double>(kGate[n]), 10.0);
          const double u = std::clamp(static_cast<double>(kUp[n]), -10.0, 10.0);
          const double expected = 0.5 * (a / (1 + std::exp(-a))) * u;
          EXPECT_NEAR(static_cast<double>(y.at(t, n)), expected, std::fabs(expected) * 1e-6) << "gate " << kGate[n];
        }
      }
    }
  }
}

TEST_P(MoeSuite, NanScaleOfOneExpertReachesOnlyItsRows) {
  MoeData data = moe_data({WeightFormat::kFp4Block32, WeightFormat::kFp4Block32, WeightFormat::kFp8Block32,
                           WeightFormat::kFp8Block32, 40, 64, 32, 8, 2},
                          400);
  data.experts[3].w1.scales()[5] = 255;
  const Rows y = moe(data);
  bool some_row_uses_it = false;
  for (int64_t t = 0; t < 40; ++t) {
    const bool uses = data.ids[static_cast<size_t>(2 * t)] == 3 || data.ids[static_cast<size_t>(2 * t + 1)] == 3;
    some_row_uses_it |= uses;
    for (int64_t k = 0; k < 64; ++k) EXPECT_EQ(std::isnan(y.at(t, k)), uses) << "row " << t;
  }
  EXPECT_TRUE(some_row_uses_it);
}

TEST_P(MoeSuite, NoRowsIsNoWork) {
  const auto format = WeightFormat::kBF16;
  EXPECT_EQ(moe(moe_data({format, format, format, format, 0}, 500)).rows(), 0);
}

INSTANTIATE_TEST_SUITE_P(Tables, MoeSuite, testing::ValuesIn(tables_under_test()), table_name);

}  // namespace ps::ops::test
