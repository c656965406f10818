// The building blocks of numerics.h against their definitions.
#include "ops/numerics.h"

#include "ops/testing/op_fixture.h"

namespace ps::ops::test {
namespace {

TEST(Numerics, ExpIsWithinTwoUnitsInTheLastPlace) {
  const FlushSubnormals flush;
  Pcg64 random(1);
  for (int i = 0; i < 200000; ++i) {
    const auto x = static_cast<float>(-87.3 + random.uniform() * 176.0);
    const double exact = std::exp(static_cast<double>(x));
    const double unit = std::ldexp(1.0, std::ilogb(exact) - 23);
    ASSERT_LE(std::fabs(static_cast<double>(ops::exp_f32(x)) - exact), 2 * unit) << x;
  }
}

TEST(Numerics, ExpAtItsEnds) {
  const FlushSubnormals flush;
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(ops::exp_f32(0.0f), 1.0f);
  EXPECT_EQ(ops::exp_f32(-0.0f), 1.0f);
  EXPECT_EQ(ops::exp_f32(-infinity), 0.0f);
  EXPECT_EQ(ops::exp_f32(infinity), infinity);
  EXPECT_EQ(ops::exp_f32(88.8f), infinity);
  EXPECT_EQ(ops::exp_f32(-87.4f), 0.0f);
  EXPECT_TRUE(std::isfinite(ops::exp_f32(88.72283f)));
  EXPECT_GE(ops::exp_f32(-87.33654f), 0x1p-126f);
  EXPECT_TRUE(std::isnan(ops::exp_f32(std::nanf(""))));
}

TEST(Numerics, SigmoidAndSiluAtTheirEnds) {
  const FlushSubnormals flush;
  EXPECT_EQ(sigmoid(0.0f), 0.5f);
  EXPECT_EQ(sigmoid(100.0f), 1.0f);
  EXPECT_EQ(sigmoid(-100.0f), 0.0f);  // 1 / infinity
  EXPECT_EQ(silu(100.0f), 100.0f);
  EXPECT_TRUE(same_bits(silu(-100.0f), -0.0f));
  EXPECT_TRUE(std::isnan(silu(std::nanf(""))));
}

TEST(Numerics, SumsFollowTheirOrders) {
  const FlushSubnormals flush;
  uint64_t seed = 2;
  for (size_t size : {0, 1, 2, 15, 16, 17, 31, 32, 33, 64, 65, 100, 1280}) {
    Pcg64 random(++seed);
    const auto count = static_cast<int64_t>(size);
    const std::vector<float> a = random_floats(random, count, Data::kWide);
    const std::vector<float> b = random_floats(random, count, Data::kWide);
    const std::vector<float> ones(size, 1.0f);
    EXPECT_TRUE(same_bits(canonical_dot(a.data(), b.data(), count), contract_dot(a, b))) << size;
    EXPECT_TRUE(same_bits(lane_dot(a.data(), b.data(), count), contract_lane_dot(a, b))) << size;
    EXPECT_TRUE(same_bits(lane_sum(a.data(), count), contract_lane_dot(a, ones))) << size;
  }
}

TEST(Numerics, PowersOfTwo) {
  for (int32_t exponent = -126; exponent <= 127; ++exponent) {
    EXPECT_EQ(power_of_two(exponent), std::ldexp(1.0f, exponent));
  }
}

}  // namespace
}  // namespace ps::ops::test
