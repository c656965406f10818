#include "ops/testing/cache_kit.h"

namespace ps::ops::test {
namespace {

// Every table against the bytes that the reference leaves, over numbers of rows and threads, on rows of any bits.
class CpuCacheWritesEquality : public OpSuite {
 protected:
  static constexpr int32_t kRowCounts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 255};

  // A prompt, a continuing sequence and one token more, as far as the rows go.
  static std::vector<RequestRows> requests(int32_t rows) {
    std::vector<RequestRows> list = {{5, std::max(1, rows - 3), 3, scattered_pages(1, 5), 0, 0, rows > 8 ? 8 : 0}};
    if (rows > 1) list.push_back({200, std::min(2, rows - 1), 0, scattered_pages(2, 5), 0, 201, 0});
    if (rows > 3) list.push_back({61, 1, 4, scattered_pages(3, 5), 0, 0, 0});
    return list;
  }
  static CacheShape shape() {
    CacheShape shape;
    shape.dim = 96;
    shape.index_dim = 64;
    shape.page_tokens = 64;
    return shape;
  }

  // Runs `op` of both tables on rows, the one on 1 thread and the other on each number of them; `args_of(cache)` gives
  // the arguments on a cache.
  template <typename Args, typename ArgsOf>
  void expect_same_bytes(Op<Args> OpTable::* op, const CacheShape& shape, int32_t rows, const ArgsOf& args_of) const {
    TestCache expected(shape);
    ThreadPool pool(1);
    Arena arena(HostBuffer::allocate(1 << 16).value());
    Exec exec{pool, arena};
    (reference_table().*op)(args_of(expected), exec);
    EXPECT_NE(expected.bytes(), TestCache(shape).bytes());
    for (int threads = 1; threads <= 8; ++threads) {
      TestCache actual(shape);
      run_op(table().*op, args_of(actual), {.tokens = rows, .head_dim = shape.dim}, threads);
      EXPECT_EQ(actual.bytes(), expected.bytes()) << rows << " rows, " << threads << " threads";
    }
  }
};

TEST_P(CpuCacheWritesEquality, WindowRows) {
  Pcg64 random(1);
  for (const int32_t rows : kRowCounts) {
    const TestBatch batch(requests(rows), 1, 1);
    for (const RowFormat format : {RowFormat::kBF16, RowFormat::kMxfp8}) {
      for (const DType dtype : {DType::kBF16, DType::kF32}) {
        CacheShape cache_shape = shape();
        cache_shape.window_format = format;
        const Rows kv = random_bits(random, batch->tokens, cache_shape.dim, dtype);
        expect_same_bytes(&OpTable::window_write, cache_shape, rows, [&](const TestCache& cache) {
          return WindowWriteArgs{kv.view(Grid::kMxfp8), batch.get(), cache.window};
        });
      }
    }
  }
}

TEST_P(CpuCacheWritesEquality, CompressedRowsAndIndexKeys) {
  Pcg64 random(2);
  for (const int32_t rows : kRowCounts) {
    const TestBatch batch(requests(rows), 1, 1);
    const std::vector<CompressedGroup> groups = batch.groups(1);
    const auto count = static_cast<int32_t>(groups.size());
    for (const bool is_packed : {false, true}) {
      for (const DType dtype : {DType::kBF16, DType::kF32}) {
        CacheShape cache_shape = shape();
        cache_shape.ratio = 1;
        cache_shape.main_format = is_packed ? RowFormat::kCompressed : RowFormat::kBF16;
        cache_shape.index_format = is_packed ? IndexFormat::kFp8 : IndexFormat::kFp4;
        const Rows latent = random_bits(random, count, cache_shape.dim, dtype);
        expect_same_bytes(&OpTable::compressed_store, cache_shape, rows, [&](const TestCache& cache) {
          return CompressedStoreArgs{latent.view(), batch.get(), groups.data(), count, cache.main};
        });
        const Rows key = random_bits(random, count, cache_shape.index_dim, dtype);
        expect_same_bytes(&OpTable::index_key_store, cache_shape, rows, [&](const TestCache& cache) {
          return IndexKeyStoreArgs{key.view(), batch.get(), groups.data(), count, cache.index};
        });
      }
    }
  }
}

TEST_P(CpuCacheWritesEquality, CompressorRing) {
  Pcg64 random(3);
  for (const int32_t rows : kRowCounts) {
    const TestBatch batch(requests(rows), 1, 1);
    const std::vector<CompressorRingRow> kept = batch.ring_rows(6);
    const CacheShape cache_shape = shape();
    const Rows kv = random_bits(random, batch->tokens, cache_shape.dim, DType::kF32);
    const Rows score = random_bits(random, batch->tokens, cache_shape.dim, DType::kF32);
    expect_same_bytes(&OpTable::compressor_ring_write, cache_shape, rows, [&](const TestCache& cache) {
      return CompressorRingWriteArgs{
          kv.view(), score.view(), batch.get(), kept.data(), static_cast<int32_t>(kept.size()), cache.compressor};
    });
  }
}

// Scores that differ by little and by much, and any bits; a first row of a group waits in the ring or precedes it.
TEST_P(CpuCacheWritesEquality, PooledRows) {
  Pcg64 random(4);
  CacheShape cache_shape = shape();
  cache_shape.dim = 64;
  TestCache cache(cache_shape);
  for (const int32_t slot : {0, 3, 4}) {
    for (int32_t position = 0; position < cache_shape.compressor_slots; ++position) {
      for (int64_t d = 0; d < cache_shape.dim; ++d) {
        cache.compressor.kv_row(slot, position)[d] = random_value(random, Data::kWide);
        cache.compressor.score_row(slot, position)[d] = random_value(random, Data::kNormal);
      }
    }
  }
  for (const int32_t rows : kRowCounts) {
    const TestBatch batch(requests(rows), 1, 1);
    const std::vector<CompressedGroup> groups = batch.groups(2);
    const auto count = static_cast<int32_t>(groups.size());
    for (const bool any_bits : {false, true}) {
      const auto make = [&](Data data) {
        return any_bits ? random_bits(random, batch->tokens, cache_shape.dim, DType::kF32)
                        : random_rows(random, batch->tokens, cache_shape.dim, DType::kF32, data);
      };
      const Rows kv = make(Data::kWide);
      const Rows score = make(Data::kWide);
      for (const DType dtype : {DType::kBF16, DType::kF32}) {
        Rows expected(count, cache_shape.dim, dtype);
        Rows actual = expected;
        const auto args = [&](Rows& latent) {
          return CompressorPoolArgs{kv.view(), score.view(),     batch.get(),  groups.data(),
                                    count,     cache.compressor, latent.view()};
        };
        ThreadPool pool(1);
        Arena arena(HostBuffer::allocate(4096).value());
        Exec exec{pool, arena};
        reference_table().compressor_pool(args(expected), exec);
        for (int threads = 1; threads <= 8; ++threads) {
          actual = Rows(count, cache_shape.dim, dtype);
          run_op(table().compressor_pool, args(actual), {.tokens = rows, .head_dim = cache_shape.dim}, threads);
          expect_same_rows(std::to_string(rows) + " rows, " + std::to_string(threads) + " threads", actual, expected);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, CpuCacheWritesEquality, testing::ValuesIn(tables_under_test()), table_name);

}  // namespace
}  // namespace ps::ops::test
