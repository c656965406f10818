// Faults that users met in other engines, as cases for every instruction set of this machine and the scalar reference:
// D1 (a fast path without the clamp), D6 (a router for 256 experts at most), G8 (no path without wide registers).
#include <algorithm>
#include <bit>
#include <vector>

#include "base/cpu_info.h"
#include "cpu/table.h"
#include "ops/testing/op_fixture.h"
#include "ops/testing/weight_data.h"

namespace ps::cpu {
namespace {

using ops::OpTable;
using ops::WeightFormat;
using ops::test::Rows;
using ops::test::WeightData;

std::vector<const OpTable*> all_tables() {
  std::vector<const OpTable*> tables = {&ops::reference_table()};
  for (const Isa isa : kIsas) {
    if (supported(isa).ok()) tables.push_back(table_for(isa).value());
  }
  return tables;
}

// The shapes of a mixture: 384 experts, 6 per token, as the model has them.
constexpr int64_t kDim = 64;
constexpr int64_t kInner = 32;
constexpr int64_t kExperts = 384;
constexpr int32_t kTopK = 6;

template <typename Args>
void run_on(const OpTable& table, ops::Op<Args> op, const Args& args, int64_t tokens, int threads) {
  ASSERT_TRUE(ops::check(args).ok()) << ops::check(args).to_string();
  ops::ScratchBounds bounds;
  bounds.threads = threads;
  bounds.tokens = tokens;
  bounds.columns = bounds.hidden = kDim;
  bounds.intermediate = kInner;
  bounds.experts = kExperts;
  bounds.experts_per_token = kTopK;
  ThreadPool pool(threads);
  Arena arena(HostBuffer::allocate(table.scratch_bytes(bounds)).value());
  ops::Exec exec{pool, arena};
  op(args, exec);
}

struct Mixture {
  std::vector<WeightData> w1, w3, w2;  // [experts + the shared one]
  std::vector<ops::Expert> experts;
  ops::Expert shared;

  Mixture(WeightFormat format, float size, uint64_t seed) {
    Pcg64 random(seed);
    const auto matrix = [&](int64_t rows, int64_t columns) {
      WeightData data(format, rows, columns);
      for (int64_t n = 0; n < rows; ++n) {
        for (int64_t k = 0; k < columns; ++k) {
          const bool is_large = random.integer(0, 4) == 0;
          const float value = (random.integer(0, 2) == 0 ? -1.0f : 1.0f) * (is_large ? 6.0f : 1.0f);
          if (format == WeightFormat::kFp4Block32) {
            data.scales()[data.scale_index(n, k)] = static_cast<uint8_t>(127 + std::ilogb(size));
            data.set_code(n, k, float_to_e2m1(value));
          } else {
            data.set(n, k, value * size);
          }
        }
      }
      return data;
    };
    for (int64_t e = 0; e <= kExperts; ++e) {
      w1.push_back(matrix(kInner, kDim));
      w3.push_back(matrix(kInner, kDim));
      w2.push_back(matrix(kDim, kInner));
    }
    for (size_t e = 0; e < static_cast<size_t>(kExperts); ++e)
      experts.push_back({w1[e].view(), w3[e].view(), w2[e].view()});
    shared = {w1.back().view(), w3.back().view(), w2.back().view()};
  }
};

// Rows in {-1, 0, 1} on the MXFP8 grid: exact in every format, and sums far beyond the limit of 10 in both branches.
Rows spiky_rows(int64_t tokens, uint64_t seed) {
  Pcg64 random(seed);
  Rows x(tokens, kDim, DType::kBF16);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t k = 0; k < kDim; ++k) x.set(t, k, static_cast<float>(random.integer(0, 3)) - 1.0f);
  }
  return x;
}

Rows run_moe(const OpTable& table, const Mixture& mixture, const Rows& x, const std::vector<int32_t>& ids, float limit,
             int threads) {
  const std::vector<float> weights(ids.size(), 0.25f);
  Rows y(x.rows(), kDim, DType::kBF16);
  ops::MoeArgs args;
  args.x = args.x_shared = x.view(ops::is_quantized(mixture.shared.w1.format) ? ops::Grid::kMxfp8 : ops::Grid::kNone);
  args.experts = mixture.experts.data();
  args.expert_count = static_cast<int32_t>(kExperts);
  args.shared = mixture.shared;
  args.ids = ids.data();
  args.weights = weights.data();
  args.top_k = kTopK;
  args.limit = limit;
  args.y = y.view();
  run_on(table, table.moe, args, x.rows(), threads);
  return y;
}

bool equal_bits(const Rows& a, const Rows& b) {
  for (int64_t t = 0; t < a.rows(); ++t) {
    for (int64_t k = 0; k < a.columns(); ++k) {
      if (std::bit_cast<uint32_t>(a.at(t, k)) != std::bit_cast<uint32_t>(b.at(t, k))) return false;
    }
  }
  return true;
}

// One row, a few, and enough that each expert of the shorter list has dozens: every path that a driver may choose.
TEST(PitfallD1, NoPathForgetsTheClampOfSwiGlu) {
  for (const WeightFormat format : {WeightFormat::kFp4Block32, WeightFormat::kBF16}) {
    const Mixture mixture(format, 1.0f, 5);
    for (const int64_t tokens : {1, 2, 5, 17, 300}) {
      const Rows x = spiky_rows(tokens, static_cast<uint64_t>(tokens));
      std::vector<int32_t> ids;
      for (int64_t i = 0; i < tokens * kTopK; ++i) {
        ids.push_back(static_cast<int32_t>(i / kTopK % 4 * 96 + i % kTopK));  // four groups of six experts
      }
      const Rows expected = run_moe(ops::reference_table(), mixture, x, ids, 10.0f, 1);
      // The case is one only if the clamp matters.
      ASSERT_FALSE(equal_bits(expected, run_moe(ops::reference_table(), mixture, x, ids, 1e30f, 1)));
      for (const OpTable* table : all_tables()) {
        for (const int threads : {1, 3}) {
          EXPECT_TRUE(equal_bits(run_moe(*table, mixture, x, ids, 10.0f, threads), expected))
              << table->name << ", " << tokens << " rows, " << threads << " threads";
        }
      }
    }
  }
}

// On every table the router picks them as it picks the others, and the mixture computes them.
TEST(PitfallD6, Experts257To384AreRoutedAndComputedLikeTheOthers) {
  const Mixture mixture(WeightFormat::kFp4Block32, 0.125f, 6);
  for (const int64_t tokens : {1, 7, 130}) {
    Pcg64 random(static_cast<uint64_t>(tokens));
    Rows logits(tokens, kExperts, DType::kF32);
    std::vector<std::vector<int32_t>> wanted(static_cast<size_t>(tokens));
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t e = 0; e < kExperts; ++e) logits.set(t, e, -static_cast<float>(random.uniform()));
      std::vector<int32_t>& mine = wanted[static_cast<size_t>(t)];
      while (mine.size() < static_cast<size_t>(kTopK)) {  // half of them beyond 256
        const auto e =
            static_cast<int32_t>(mine.size() % 2 == 0 ? random.integer(256, kExperts) : random.integer(0, 256));
        if (std::find(mine.begin(), mine.end(), e) == mine.end()) mine.push_back(e);
      }
      for (const int32_t e : mine) logits.set(t, e, 8.0f + static_cast<float>(e) / 1024);
      std::sort(mine.begin(), mine.end());
    }
    const std::vector<float> bias(static_cast<size_t>(kExperts), 0.0f);
    const Rows x = spiky_rows(tokens, 9);
    Rows expected;
    for (const OpTable* table : all_tables()) {
      std::vector<int32_t> ids(static_cast<size_t>(tokens * kTopK), -1);
      std::vector<float> weights(ids.size());
      ops::RouterArgs args;
      args.logits = logits.view();
      args.bias = {reinterpret_cast<const std::byte*>(bias.data()), DType::kF32, kExperts};
      args.bias_image = args.bias;
      args.top_k = kTopK;
      args.scaling = 1.5f;
      args.ids = ids.data();
      args.weights = weights.data();
      run_on(*table, table->router, args, tokens, 2);
      for (int64_t t = 0; t < tokens; ++t) {
        std::vector<int32_t> mine(ids.begin() + t * kTopK, ids.begin() + (t + 1) * kTopK);
        std::sort(mine.begin(), mine.end());
        EXPECT_EQ(mine, wanted[static_cast<size_t>(t)]) << table->name << " row " << t;
      }
      const Rows y = run_moe(*table, mixture, x, ids, 10.0f, 2);
      if (expected.rows() == 0) expected = y;
      EXPECT_TRUE(equal_bits(y, expected)) << table->name << ", " << tokens << " rows";
    }
  }
}

// Whatever the machine has beyond AVX2 changes no bit; AVX2 with FMA is enough.
TEST(PitfallG8, EveryInstructionSetDownToAvx2RunsFp4Experts) {
  ASSERT_TRUE(supported(Isa::kAvx2).ok()) << "the baseline of the program";
  const CpuInfo machine = cpu_info();
  EXPECT_EQ(supported(Isa::kAvx512).ok(), machine.has_avx512);
  EXPECT_TRUE(machine.has_amx_bf16 || !supported(Isa::kAmx).ok());
  const Mixture mixture(WeightFormat::kFp4Block32, 0.0625f, 7);
  const Rows x = spiky_rows(9, 3);
  std::vector<int32_t> ids;
  for (int32_t t = 0; t < 9; ++t) {
    for (int32_t i = 0; i < kTopK; ++i) ids.push_back(t * 37 + i * 11);
  }
  const Rows expected = run_moe(ops::reference_table(), mixture, x, ids, 10.0f, 1);
  for (const Isa isa : kIsas) {
    if (!supported(isa).ok()) continue;
    const OpTable* table = table_for(isa).value();
    EXPECT_NE(table->moe, ops::reference_table().moe) << table->name << " has no kernel of its own";
    EXPECT_TRUE(equal_bits(run_moe(*table, mixture, x, ids, 10.0f, 2), expected)) << table->name;
  }
}

}  // namespace
}  // namespace ps::cpu
