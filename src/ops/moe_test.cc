#include "ops/testing/moe_suite.h"
#include "ops/testing/router_suite.h"

#include <gmock/gmock.h>

#include "base/testing.h"

namespace ps::ops::test {
namespace {

using testing::HasSubstr;

std::vector<float> reals(const JsonValue& object, std::string_view key) {
  std::vector<float> values;
  for (const JsonValue& item : object.find(key)->items()) values.push_back(static_cast<float>(item.real().value()));
  return values;
}

TEST(Router, GivesTheRecordedRoutes) {
  const JsonValue vectors = ps::test::load_json("test_vectors.json");
  const JsonValue& recorded = *vectors.find("router_top3");
  const std::vector<float> logits = reals(recorded, "logits");
  const VectorData bias(reals(recorded, "bias"), DType::kF32);
  Rows z(1, 8, DType::kF32);
  for (int64_t e = 0; e < 8; ++e) z.set(0, e, logits[static_cast<size_t>(e)]);
  std::vector<int32_t> ids(3);
  std::vector<float> weights(3);
  ThreadPool pool(1);
  Arena arena(HostBuffer::allocate(4096).value());
  Exec exec{pool, arena};
  ref::router({z.view(), bias.view(), {}, nullptr, 3, 1.5f, ids.data(), weights.data()}, exec);
  // The record lists them by falling score; ids 1, 6, 7 happen to ascend.
  EXPECT_EQ(ids, ps::test::integers<int32_t>(recorded, "indices_desc_lowest_id_on_ties"));
  const std::vector<float> expected = reals(recorded, "weights");
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(weights[i], expected[i], 2e-7f);
  const std::vector<float> scores = reals(recorded, "scores");
  for (size_t e = 0; e < 8; ++e) EXPECT_NEAR(contract_score(logits[e]), scores[e], scores[e] * 2e-7f);
}

// For the thread sanitizer: every fork/join of the experts, on more threads than pieces and on fewer.
TEST(MoeThreads, ShareNothingButTheirInputs) {
  const MoeData data = moe_data({WeightFormat::kFp4Block32, WeightFormat::kFp4Block32, WeightFormat::kFp8Block32,
                                 WeightFormat::kFp8Block32, 33, 96, 64, 5, 3},
                                7);
  std::vector<Expert> experts;
  for (const ExpertData& expert : data.experts) experts.push_back(expert.view());
  Rows y(33, 96, DType::kBF16);
  ThreadPool pool(4);
  Arena arena(HostBuffer::allocate(1 << 20).value());
  Exec exec{pool, arena};
  ref::moe({data.input_view(data.experts[0]), data.input_view(data.shared), experts.data(), 5, data.shared.view(),
            data.ids.data(), data.weights.data(), 3, data.limit, y.view()},
           exec);
  expect_same_rows("contract", y, contract_moe(data, DType::kBF16));
}

struct RouterCall {
  Rows logits{2, 8, DType::kF32};
  VectorData bias{std::vector<float>(8), DType::kF32};
  std::vector<uint8_t> is_image = {0, 1};
  std::vector<int32_t> ids = std::vector<int32_t>(6);
  std::vector<float> weights = std::vector<float>(6);
  RouterArgs args{logits.view(), bias.view(), bias.view(), is_image.data(), 3, 1.5f, ids.data(), weights.data()};
};

template <typename Spoil>
std::string refused_router(const Spoil& spoil) {
  RouterCall call;
  spoil(call.args);
  return std::string(check(call.args).message());
}

TEST(CheckRouter, NamesWhatIsWrong) {
  EXPECT_EQ(refused_router([](RouterArgs&) {}), "");
  EXPECT_EQ(refused_router([](RouterArgs& a) {
              a.is_image = nullptr;
              a.bias_image = {};
            }),
            "");
  EXPECT_THAT(refused_router([](RouterArgs& a) { a.bias_image = {}; }),
              HasSubstr("router: is_image is given without bias_image"));
  EXPECT_THAT(refused_router([](RouterArgs& a) { a.top_k = 9; }), HasSubstr("top_k is 9 of 8 experts"));
  EXPECT_THAT(refused_router([](RouterArgs& a) { a.top_k = 0; }), HasSubstr("top_k is 0"));
  EXPECT_THAT(refused_router([](RouterArgs& a) { a.logits.dtype = DType::kBF16; }),
              HasSubstr("logits is BF16, expected F32"));
  EXPECT_THAT(refused_router([](RouterArgs& a) { a.bias.size = 7; }), HasSubstr("bias has 7 values, expected 8"));
  EXPECT_THAT(refused_router([](RouterArgs& a) { a.ids = nullptr; }), HasSubstr("ids is null"));
  EXPECT_THAT(refused_router([](RouterArgs& a) { a.weights = nullptr; }), HasSubstr("weights is null"));
}

struct MoeCall {
  MoeCall() {
    for (const ExpertData& expert : data.experts) experts.push_back(expert.view());
    args = {data.input_view(data.experts[0]),
            data.input_view(data.shared),
            experts.data(),
            5,
            data.shared.view(),
            data.ids.data(),
            data.weights.data(),
            3,
            10.0f,
            y.view()};
  }
  MoeData data =
      moe_data({WeightFormat::kFp4Block32, WeightFormat::kFp4Block32, WeightFormat::kBF16, WeightFormat::kBF16, 2}, 1);
  std::vector<Expert> experts;
  Rows y{2, 64, DType::kBF16};
  MoeArgs args;
};

template <typename Spoil>
std::string refused_moe(const Spoil& spoil) {
  MoeCall call;
  spoil(call);
  return std::string(check(call.args).message());
}

TEST(CheckMoe, NamesWhatIsWrong) {
  EXPECT_EQ(refused_moe([](MoeCall&) {}), "");
  EXPECT_THAT(refused_moe([](MoeCall& c) { c.args.x.grid = Grid::kNone; }),
              HasSubstr("moe: expert 0: w1 is FP4, but x is not on the MXFP8 grid"));
  EXPECT_THAT(refused_moe([](MoeCall& c) { c.args.x_shared.grid = Grid::kMxfp8; }),
              HasSubstr("shared expert: w1 is BF16, but x_shared is on the MXFP8 grid"));
  EXPECT_THAT(refused_moe([](MoeCall& c) { c.experts[4].w2.columns = 64; }),
              HasSubstr("expert 4: w2 is [64, 64], expected [64, 32]"));
  EXPECT_THAT(refused_moe([](MoeCall& c) { c.experts[2].w3.scale = nullptr; }),
              HasSubstr("expert 2: w3 is FP4 without scales"));
  EXPECT_THAT(refused_moe([](MoeCall& c) { c.args.x.columns = 32; }), HasSubstr("x is [2, 32], expected [2, 64]"));
  EXPECT_THAT(refused_moe([](MoeCall& c) { c.args.x_shared.rows = 1; }),
              HasSubstr("x_shared is [1, 64], expected [2, 64]"));
  EXPECT_THAT(refused_moe([](MoeCall& c) { c.args.y.dtype = DType::kF32; }), HasSubstr("x is BF16, expected F32"));
  EXPECT_THAT(refused_moe([](MoeCall& c) { c.args.top_k = 6; }), HasSubstr("top_k is 6 of 5 experts"));
  EXPECT_THAT(refused_moe([](MoeCall& c) { c.args.limit = 0; }), HasSubstr("the limit is not positive"));
  EXPECT_THAT(refused_moe([](MoeCall& c) { c.args.ids = nullptr; }), HasSubstr("ids is null"));
  EXPECT_THAT(refused_moe([](MoeCall& c) { c.args.experts = nullptr; }), HasSubstr("experts is null"));
  EXPECT_THAT(refused_moe([](MoeCall& c) { c.args.y.data = const_cast<void*>(c.args.x.data); }),
              HasSubstr("x and y overlap"));
}

}  // namespace
}  // namespace ps::ops::test
