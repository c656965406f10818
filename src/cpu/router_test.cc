#include "cpu/kernels.h"
#include "cpu/table.h"
#include "ops/expert_scores.h"
#include "ops/testing/router_suite.h"

namespace ps::ops::test {
namespace {

// Every table against the reference, over numbers of rows and threads: normal logits, ties, and any bits of logits and
// biases.
class CpuRouterEquality : public RouterSuite {
 protected:
  static Routes reference(const RouterData& data, int32_t top_k) {
    const auto count = static_cast<size_t>(data.logits.rows() * top_k);
    Routes routes{std::vector<int32_t>(count), std::vector<float>(count)};
    ThreadPool pool(1);
    Arena arena(HostBuffer::allocate(1 << 20).value());
    Exec exec{pool, arena};
    reference_table().router({data.logits.view(), data.bias.view(), data.bias_image.view(), data.is_image.data(), top_k,
                              1.5f, routes.ids.data(), routes.weights.data()},
                             exec);
    return routes;
  }
};

TEST_P(CpuRouterEquality, RowsAndThreads) {
  enum class Kind { kNormal, kTies, kBits, kTiny };
  Pcg64 random(1);
  for (const Kind kind : {Kind::kNormal, Kind::kTies, Kind::kBits, Kind::kTiny}) {
    for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 255}) {
      const int64_t experts = rows % 2 == 0 ? 384 : 29;
      RouterData data = router_data(random, rows, experts, kind == Kind::kTies);
      if (kind == Kind::kBits) {
        data.logits = random_bits(random, rows, experts, DType::kF32);
        data.bias = VectorData(random_bits(random, 1, experts, DType::kF32).row(0), DType::kF32);
      }
      if (kind == Kind::kTiny) {  // scores that only the relative bound tells apart
        data.bias = data.bias_image = VectorData(std::vector<float>(static_cast<size_t>(experts)), DType::kF32);
        for (int64_t t = 0; t < rows; ++t) {
          for (int64_t e = 0; e < experts; ++e) data.logits.set(t, e, -60.0f - 0.5f * static_cast<float>(e * 7 % 60));
        }
      }
      for (const int32_t top_k : {1, 6, 29}) {
        const Routes expected = reference(data, top_k);
        for (int threads = 1; threads <= 8; ++threads) {
          const std::string what = std::to_string(rows) + " rows, " + std::to_string(threads) + " threads";
          expect_same_routes(what, route(data, top_k, 1.5f, threads), expected);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, CpuRouterEquality, testing::ValuesIn(tables_under_test()), table_name);

}  // namespace
}  // namespace ps::ops::test

namespace ps::cpu {
namespace {

const Kernels& kernels_of(Isa isa) {
  switch (isa) {
    case Isa::kAvx2: return avx2_kernels();
    case Isa::kAvx512: return avx512_kernels();
    case Isa::kAmx: return amx_kernels();
  }
  return avx2_kernels();
}

// Logits from where the score is nothing to beyond where softplus is the identity.
TEST(CpuRouterBounds, HoldTheExactRankClosely) {
  const ps::FlushSubnormals flush;
  std::vector<float> logits;
  for (float z = -90.0f; z < 90.0f; z += 0.00937f) logits.push_back(z);
  for (const float z : {-0.0f, 20.0f, std::nextafter(20.0f, 21.0f), -87.33654f, 1e30f, -1e30f, 3e38f}) {
    logits.push_back(z);
  }
  std::vector<float> lower(logits.size());
  std::vector<float> upper(logits.size());
  for (const Isa isa : kIsas) {
    if (!supported(isa).ok()) continue;
    for (const float bias : {0.0f, 1.5f, -3.0f}) {
      const std::vector<float> biases(logits.size(), bias);
      kernels_of(isa).rows.bound_experts({{logits.data(), true},
                                          {biases.data(), true},
                                          static_cast<int64_t>(logits.size()),
                                          lower.data(),
                                          upper.data()});
      for (size_t i = 0; i < logits.size(); ++i) {
        const float score = ops::expert_score(logits[i]);
        const float rank = ops::expert_rank(score, bias);
        EXPECT_LE(lower[i], rank) << logits[i];
        EXPECT_GE(upper[i], rank) << logits[i];
        EXPECT_LE(upper[i] - lower[i], 0x1p-12f * score + 0x1p-21f * std::fabs(bias) + 0x1p-58f) << logits[i];
        // The approximation itself stays far inside.
        if (bias != 0.0f || score < 0x1p-40f) continue;
        EXPECT_NEAR((upper[i] + lower[i]) / (2 * score), 1.0f, 0x1p-17f) << logits[i];
      }
    }
  }
}

}  // namespace
}  // namespace ps::cpu
