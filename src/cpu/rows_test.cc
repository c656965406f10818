#include "ops/testing/elementwise_suite.h"
#include "ops/testing/engram_suite.h"
#include "ops/testing/hyper_connection_suite.h"

namespace ps::ops::test {
namespace {

// Every table against the reference over numbers of rows that hc_mix cuts over K or over rows, and widths that end
// inside a vector.
class CpuRowsEquality : public OpSuite {};

struct MixOutput {
  std::vector<float> pre, post, combine;
};

TEST_P(CpuRowsEquality, HcMix) {
  Pcg64 random(5);
  const VectorData base(random_floats(random, kMixes), DType::kF32);
  const VectorData scale({0.5f, 0.75f, 1.25f}, DType::kF32);
  for (const int64_t columns : {int64_t{4 * 37}, int64_t{4 * 320}}) {
    const WeightData fn = random_weight(random, WeightFormat::kF32, kMixes, columns);
    for (const int64_t tokens : {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 255}) {
      for (const DType dtype : {DType::kBF16, DType::kF32}) {
        const Rows h = random_rows(random, tokens, columns, dtype);
        const auto mix = [&](const OpTable& on, int threads) {
          const auto rows = static_cast<size_t>(tokens);
          MixOutput out{std::vector<float>(rows * 4), std::vector<float>(rows * 4), std::vector<float>(rows * 16)};
          ScratchBounds bounds{.threads = threads, .tokens = tokens, .columns = columns};
          ThreadPool pool(threads);
          Arena arena(HostBuffer::allocate(on.scratch_bytes(bounds)).value());
          Exec exec{pool, arena};
          on.hc_mix({h.view(), fn.view(), base.view(), scale.view(), 1e-20f, 1e-6f, 20, out.pre.data(), out.post.data(),
                     out.combine.data()},
                    exec);
          return out;
        };
        const MixOutput expected = mix(reference_table(), 1);
        for (const int threads : {1, 2, 8}) {
          const MixOutput actual = mix(table(), threads);
          const std::string what = std::to_string(tokens) + " rows, " + std::to_string(threads) + " threads";
          expect_same_floats(what, actual.pre, expected.pre);
          expect_same_floats(what, actual.post, expected.post);
          expect_same_floats(what, actual.combine, expected.combine);
        }
      }
    }
  }
}

TEST_P(CpuRowsEquality, IndexQueriesOfAnyBits) {
  Pcg64 random(6);
  for (const IndexFormat format : {IndexFormat::kFp4, IndexFormat::kFp8}) {
    for (const DType dtype : {DType::kBF16, DType::kF32}) {
      const Rows x = random_bits(random, 300, 3 * 64, dtype);
      Rows expected = x;
      ThreadPool one(1);
      Arena arena(HostBuffer::allocate(4096).value());
      Exec exec{one, arena};
      reference_table().index_query_quantize({expected.view(), 3, format}, exec);
      for (int threads = 1; threads <= 8; ++threads) {
        Rows actual = x;
        run_op(table().index_query_quantize, IndexQueryQuantizeArgs{actual.view(), 3, format}, {}, threads);
        expect_same_rows(std::to_string(threads) + " threads", actual, expected);
        EXPECT_TRUE(actual.gaps_intact());
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, CpuRowsEquality, testing::ValuesIn(tables_under_test()), table_name);

}  // namespace
}  // namespace ps::ops::test
