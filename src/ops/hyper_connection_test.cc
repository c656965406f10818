#include "ops/testing/hyper_connection_suite.h"

#include <gmock/gmock.h>

#include "base/testing.h"

namespace ps::ops::test {
namespace {

using testing::HasSubstr;

std::vector<float> reals(const JsonValue& array) {
  std::vector<float> values;
  for (const JsonValue& item : array.items()) values.push_back(static_cast<float>(item.real().value()));
  return values;
}

// Rows of ones have rho = 1, and fn with one value per row gives exactly the recorded mixes.
TEST(HcMix, GivesTheRecordedCoefficients) {
  const JsonValue vectors = ps::test::load_json("test_vectors.json");
  const JsonValue& mhc = *vectors.find("mhc");
  const std::vector<float> z = reals(*mhc.find("mixes"));
  HcParameters p{WeightData(WeightFormat::kF32, kMixes, 16), VectorData(reals(*mhc.find("base")), DType::kF32),
                 VectorData(reals(*mhc.find("scale")), DType::kF32)};
  Rows h(1, 16, DType::kBF16);
  for (int64_t k = 0; k < 16; ++k) h.set(0, k, 1.0f);
  for (int64_t n = 0; n < kMixes; ++n) p.fn.set(n, 0, z[static_cast<size_t>(n)]);
  std::vector<float> pre(4);
  std::vector<float> post(4);
  std::vector<float> combine(16);
  ThreadPool pool(1);
  Arena arena(HostBuffer::allocate(1 << 16).value());
  Exec exec{pool, arena};
  ref::hc_mix({h.view(), p.fn.view(), p.base.view(), p.scale.view(), kNormEps, kHcEps, 20, pre.data(), post.data(),
               combine.data()},
              exec);
  for (size_t c = 0; c < 4; ++c) {
    EXPECT_NEAR(static_cast<double>(pre[c]), mhc.find("pre")->items()[c].real().value(), 2e-7);
    EXPECT_NEAR(static_cast<double>(post[c]), mhc.find("post")->items()[c].real().value(), 4e-7);
    for (size_t j = 0; j < 4; ++j) {
      const double expected = mhc.find("comb_row_major_from_to")->items()[c].items()[j].real().value();
      EXPECT_NEAR(static_cast<double>(combine[c * 4 + j]), expected, 2e-6);
    }
  }
}

struct MixCall {
  Rows h{2, 64, DType::kBF16};
  WeightData fn{WeightFormat::kF32, kMixes, 64};
  VectorData base{std::vector<float>(kMixes), DType::kF32};
  VectorData scale{std::vector<float>(3), DType::kF32};
  std::vector<float> out = std::vector<float>(64);
  HcMixArgs args{h.view(), fn.view(), base.view(), scale.view(),   kNormEps,
                 kHcEps,   20,        out.data(),  out.data() + 8, out.data() + 16};
};

template <typename Spoil>
std::string refused(const Spoil& spoil) {
  MixCall call;
  spoil(call.args);
  return std::string(check(call.args).message());
}

TEST(CheckHcMix, NamesWhatIsWrong) {
  EXPECT_EQ(refused([](HcMixArgs&) {}), "");
  EXPECT_THAT(refused([](HcMixArgs& a) { a.fn.rows = 23; }), HasSubstr("hc_mix: fn is [23, 64], expected [24, 64]"));
  EXPECT_THAT(refused([](HcMixArgs& a) { a.h.columns = 62; }), HasSubstr("columns of h is 62, not a multiple of 4"));
  EXPECT_THAT(refused([](HcMixArgs& a) { a.scale.size = 4; }), HasSubstr("scale has 4 values, expected 3"));
  EXPECT_THAT(refused([](HcMixArgs& a) { a.base.data = nullptr; }), HasSubstr("base is null"));
  EXPECT_THAT(refused([](HcMixArgs& a) { a.iterations = 0; }), HasSubstr("iterations is 0"));
  EXPECT_THAT(refused([](HcMixArgs& a) { a.post = nullptr; }), HasSubstr("post is null"));
}

// Mixing in any narrower format breaks the model: fn must be F32.
TEST(CheckHcMix, RefusesNarrowWeights) {
  for (WeightFormat format : {WeightFormat::kBF16, WeightFormat::kFp8Block32, WeightFormat::kFp4Block32}) {
    EXPECT_THAT(refused([&](HcMixArgs& a) { a.fn.format = format; }), HasSubstr("fn is not F32"));
  }
}

TEST(CheckHcCollapseAndExpand, NameWhatIsWrong) {
  Rows h(2, 64, DType::kBF16);
  Rows x(2, 16, DType::kBF16);
  const std::vector<float> mixes(64);
  HcCollapseArgs collapse{h.view(), mixes.data(), nullptr, x.view()};
  EXPECT_EQ(check(collapse).to_string(), "ok");
  collapse.x.columns = 15;
  EXPECT_THAT(std::string(check(collapse).message()), HasSubstr("hc_collapse: h is [2, 64], expected [2, 60]"));
  collapse = {h.view(), mixes.data(), nullptr, x.view()};
  collapse.x.rows = 1;
  EXPECT_THAT(std::string(check(collapse).message()), HasSubstr("rows of x is 1, but rows of h is 2"));
  const std::vector<int32_t> rows = {1};
  collapse.rows = rows.data();
  EXPECT_EQ(check(collapse).to_string(), "ok");
  collapse.pre = nullptr;
  EXPECT_THAT(std::string(check(collapse).message()), HasSubstr("pre is null"));

  HcExpandArgs expand{x.view(), mixes.data(), mixes.data(), h.view()};
  EXPECT_EQ(check(expand).to_string(), "ok");
  expand.y.rows = 1;
  EXPECT_THAT(std::string(check(expand).message()), HasSubstr("hc_expand: h is [2, 64], expected [1, 64]"));
  expand = {x.view(), mixes.data(), nullptr, h.view()};
  EXPECT_THAT(std::string(check(expand).message()), HasSubstr("combine is null"));
  expand = {h.view(), mixes.data(), mixes.data(), h.view()};
  expand.y.columns = 16;
  EXPECT_THAT(std::string(check(expand).message()), HasSubstr("y and h overlap"));
}

}  // namespace
}  // namespace ps::ops::test
