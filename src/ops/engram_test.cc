#include "ops/testing/engram_suite.h"

#include <gmock/gmock.h>

#include "base/testing.h"

namespace ps::ops::test {
namespace {

using testing::HasSubstr;

// Streams and keys of ones have rho = 1, so q = 8 * dot in one of 64 columns gives that dot; a value of 2^24 reads the
// gate out.
float gate_of(float dot) {
  MixData data{Rows(1, 320, DType::kF32),
               Rows(1, 256, DType::kF32),
               WeightData(WeightFormat::kF32, 4, 64),
               WeightData(WeightFormat::kF32, 4, 64),
               {}};
  for (int64_t k = 0; k < 320; ++k) data.u.set(0, k, k < 256 ? 1.0f : 0x1p24f);
  for (int64_t k = 0; k < 256; ++k) data.h.set(0, k, 1.0f);
  for (int64_t c = 0; c < 4; ++c) {
    data.q.set(c, 5, dot * 8);
    data.k.set(c, 5, 1.0f);
  }
  ThreadPool pool(1);
  Arena arena(HostBuffer::allocate(1 << 16).value());
  Exec exec{pool, arena};
  ref::engram_mix({data.u.view(), data.q.view(), data.k.view(), nullptr, 1e-20f, data.h.view()}, exec);
  EXPECT_EQ(data.h.at(0, 0), data.h.at(0, 255)) << "all streams alike";
  return (data.h.at(0, 0) - 1.0f) * 0x1p-24f;
}

TEST(EngramGate, GivesTheRecordedValues) {
  const JsonValue vectors = ps::test::load_json("test_vectors.json");
  for (const JsonValue& vector : vectors.find("engram_gate")->items()) {
    const double dot = vector.find("dot")->real().value();
    if (dot == 0 && std::signbit(dot)) continue;  // a sum is never -0; see below
    EXPECT_NEAR(static_cast<double>(gate_of(static_cast<float>(dot))), vector.find("gate")->real().value(), 2e-7)
        << dot;
  }
}

// A negative dot that underflows is -0, and its sign counts.
TEST(EngramGate, SignOfZeroCounts) { EXPECT_NEAR(static_cast<double>(gate_of(-0x1p-127f)), 0.49975, 1e-6); }

TEST(CheckEngramGather, NamesWhatIsWrong) {
  Pcg64 random(1);
  const TableData source(random, DType::kF8E4M3, 10, 64);
  Rows e(2, 192, DType::kBF16);
  const std::vector<int64_t> ids(6);
  const EngramGatherArgs valid{source.view(), ids.data(), 3, e.view()};
  EXPECT_EQ(check(valid).to_string(), "ok");
  EngramGatherArgs args = valid;
  args.e.grid = Grid::kMxfp8;
  EXPECT_EQ(check(args).to_string(), "ok") << "rows of an E4M3 table are on the grid";
  args.table.dtype = DType::kBF16;
  args.table.scale = nullptr;
  EXPECT_THAT(std::string(check(args).message()), HasSubstr("claims the MXFP8 grid"));
  args = valid;
  args.columns = 2;
  EXPECT_THAT(std::string(check(args).message()), HasSubstr("engram_gather: e is [2, 192], expected [2, 128]"));
  args = valid;
  args.row_ids = nullptr;
  EXPECT_THAT(std::string(check(args).message()), HasSubstr("row_ids is null"));
  args = valid;
  args.table.scale = nullptr;
  EXPECT_THAT(std::string(check(args).message()), HasSubstr("the table is F8_E4M3 without scales"));
  args = valid;
  args.table.dim = 48;
  EXPECT_THAT(std::string(check(args).message()), HasSubstr("dim of the table is 48, not a multiple of 32"));
  args = valid;
  args.table.dtype = DType::kI8;
  EXPECT_THAT(std::string(check(args).message()), HasSubstr("neither F8_E4M3 nor BF16 nor F32"));
}

TEST(CheckEngramMix, NamesWhatIsWrong) {
  MixData data = mix_data(1, 2, 32, DType::kBF16, WeightFormat::kBF16);
  const EngramMixArgs valid{data.u.view(), data.q.view(), data.k.view(), nullptr, 1e-20f, data.h.view()};
  EXPECT_EQ(check(valid).to_string(), "ok");
  EngramMixArgs args = valid;
  args.u.columns = 128;
  EXPECT_THAT(std::string(check(args).message()), HasSubstr("engram_mix: u is [2, 128], expected [2, 160]"));
  args = valid;
  args.h.rows = 1;
  EXPECT_THAT(std::string(check(args).message()), HasSubstr("u is [2, 160], expected [1, 160]"));
  args = valid;
  args.k_weight.rows = 1;
  EXPECT_THAT(std::string(check(args).message()), HasSubstr("k_weight is [1, 32], expected [4, 32]"));
  // Gate tensors are never quantized.
  args = valid;
  args.q_weight.format = WeightFormat::kFp4Block32;
  EXPECT_THAT(std::string(check(args).message()), HasSubstr("q_weight is FP4, expected BF16 or F32"));
}

}  // namespace
}  // namespace ps::ops::test
