#include "ops/testing/elementwise_suite.h"
#include "ops/testing/engram_suite.h"
#include "ops/testing/hyper_connection_suite.h"

namespace ps::ops::test {
namespace {

// Every table against the reference over numbers of rows that hc_mix cuts over K or over rows, and widths that end
// inside a vector.
class CpuRowsEquality : public OpSuite {
 protected:
  static constexpr int64_t kRowCounts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 255};
  static constexpr DType kDTypes[] = {DType::kBF16, DType::kF32};

  // Runs `op` of the reference on 1 thread and of the table on 1 to 8; args_of(y) gives the arguments that write y,
  // which starts as `initial`.
  template <typename Args, typename ArgsOf>
  void expect_same(Op<Args> OpTable::* op, const Rows& initial, const ArgsOf& args_of) const {
    const ScratchBounds bounds{.tokens = initial.rows(), .columns = 512, .head_dim = 256, .heads = 4};
    Rows expected = initial;
    ThreadPool pool(1);
    Arena& arena = fresh_scratch(reference_table().scratch_bytes(bounds));
    Exec exec{pool, arena};
    (reference_table().*op)(args_of(expected), exec);
    for (int threads = 1; threads <= 8; ++threads) {
      Rows actual = initial;
      run_op(table().*op, args_of(actual), bounds, threads);
      expect_same_rows(std::to_string(initial.rows()) + " rows, " + std::to_string(threads) + " threads", actual,
                       expected);
      EXPECT_TRUE(actual.gaps_intact());
    }
  }
};

TEST_P(CpuRowsEquality, NormRopeAndScale) {
  Pcg64 random(7);
  const VectorData weight(random_floats(random, 83), DType::kBF16);
  const std::vector<float> frequencies = {1.0f, 0.3f, 0.01f, 1e-3f, 1e-5f, 0.0f, 0.7f};
  for (const int64_t rows : kRowCounts) {
    std::vector<int32_t> positions;
    for (int64_t t = 0; t < rows; ++t) positions.push_back(static_cast<int32_t>(random.integer(0, 1 << 20)));
    for (const DType dtype : kDTypes) {
      for (const bool any_bits : {false, true}) {
        const Rows x =
            any_bits ? random_bits(random, rows, 83, dtype) : random_rows(random, rows, 83, dtype, Data::kWide);
        expect_same(&OpTable::rms_norm, x,
                    [&](Rows& y) { return RmsNormArgs{x.view(), weight.view(), y.view(), 1e-20f}; });
        expect_same(&OpTable::scale, x, [&](Rows& y) { return ScaleArgs{x.view(), 0.37f, y.view()}; });
        const Rows heads = any_bits ? random_bits(random, rows, 3 * 20, dtype) : random_rows(random, rows, 60, dtype);
        for (const bool inverse : {false, true}) {
          expect_same(&OpTable::rope, heads,
                      [&](Rows& y) { return RopeArgs{y.view(), positions.data(), frequencies.data(), 3, 7, inverse}; });
        }
      }
    }
  }
}

TEST_P(CpuRowsEquality, CollapseAndExpand) {
  Pcg64 random(8);
  for (const int64_t rows : kRowCounts) {
    const std::vector<float> pre = random_floats(random, rows * kStreams);
    const std::vector<float> combine = random_floats(random, rows * kStreams * kStreams);
    for (const DType dtype : kDTypes) {
      for (const int64_t dim : {37, 96}) {
        const Rows h = random_rows(random, rows, 4 * dim, dtype, Data::kWide);
        const Rows y = random_rows(random, rows, dim, dtype, Data::kWide);
        expect_same(&OpTable::hc_collapse, y,
                    [&](Rows& x) { return HcCollapseArgs{h.view(), pre.data(), nullptr, x.view()}; });
        expect_same(&OpTable::hc_expand, h,
                    [&](Rows& out) { return HcExpandArgs{y.view(), pre.data(), combine.data(), out.view()}; });
      }
    }
  }
}

TEST_P(CpuRowsEquality, Engram) {
  Pcg64 random(9);
  const TableData table_data(random, DType::kF8E4M3, 50, 64);
  for (const int64_t rows : kRowCounts) {
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < 3 * rows; ++i) ids.push_back(random.integer(0, 50));
    for (const DType dtype : kDTypes) {
      expect_same(&OpTable::engram_gather, Rows(rows, 3 * 64, dtype),
                  [&](Rows& e) { return EngramGatherArgs{table_data.view(), ids.data(), 3, e.view()}; });
      const MixData data = mix_data(static_cast<uint64_t>(rows), rows, 83, dtype, WeightFormat::kBF16);
      expect_same(&OpTable::engram_mix, data.h, [&](Rows& h) {
        return EngramMixArgs{data.u.view(), data.q.view(), data.k.view(), nullptr, 1e-20f, h.view()};
      });
    }
  }
}

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
          Arena& arena = fresh_scratch(on.scratch_bytes(bounds));
          Exec exec{pool, arena};
          on.hc_mix({h.view(), fn.view(), base.view(), scale.view(), 1e-20f, 1e-6f, 20, out.pre.data(), out.post.data(),
                     out.combine.data()},
                    exec);
          return out;
        };
        const MixOutput expected = mix(reference_table(), 1);
        for (int threads = 1; threads <= 8; ++threads) {
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
