#include "cpu/kernels.h"
#include "cpu/table.h"
#include "ops/numerics.h"
#include "ops/testing/indexer_suite.h"

namespace ps::ops::test {
namespace {

// Every table against the reference, over contexts that are cut into several parts, for one row and for more rows than
// parts, on many threads.
class CpuIndexerEquality : public OpSuite {
 protected:
  static constexpr int32_t kUntouched = -7;

  static void leave(IndexRun&) {}

  template <typename Spoil = void (*)(IndexRun&)>
  void expect_equal(const IndexScene& scene, const TestBatch& batch, bool uses_candidates,
                    const Spoil& spoil = leave) const {
    IndexRun run(scene, batch);
    spoil(run);
    IndexSelectArgs args = run.args();
    const auto rows = static_cast<size_t>(batch->tokens);
    std::vector<int32_t> candidates(rows * static_cast<size_t>(std::max(scene.candidate_blocks, 1)), kUntouched);
    args.candidates_out = scene.candidate_blocks > 0 ? candidates.data() : nullptr;
    std::vector<int32_t> expected(rows * static_cast<size_t>(scene.top_k), kUntouched);
    args.selected = expected.data();
    run_reference(args, run.bounds());
    const std::vector<int32_t> expected_candidates = candidates;
    if (uses_candidates) {
      args.candidates_in = expected_candidates.data();
      args.candidates_out = nullptr;
      run_reference(args, run.bounds());
    }
    for (int threads = 1; threads <= 8; ++threads) {
      std::vector<int32_t> actual(expected.size(), kUntouched);
      std::fill(candidates.begin(), candidates.end(), kUntouched);
      args.selected = actual.data();
      if (!uses_candidates && scene.candidate_blocks > 0) args.candidates_out = candidates.data();
      run_op(table().index_select, args, run.bounds(), threads);
      EXPECT_EQ(actual, expected) << threads << " threads";
      if (args.candidates_out == nullptr) continue;
      EXPECT_EQ(candidates, expected_candidates) << threads << " threads";
    }
  }

 private:
  static void run_reference(const IndexSelectArgs& args, const ScratchBounds& bounds) {
    ThreadPool pool(1);
    Arena& arena = fresh_scratch(reference_table().scratch_bytes(bounds));
    Exec exec{pool, arena};
    reference_table().index_select(args, exec);
  }
};

TEST_P(CpuIndexerEquality, PartsOfLongContexts) {
  for (const IndexFormat format : {IndexFormat::kFp4, IndexFormat::kFp8}) {
    for (const bool ties : {false, true}) {
      IndexScene scene;
      scene.shape.index_format = format;
      scene.shape.ratio = 1;
      scene.shape.page_tokens = 4096;
      scene.shape.index_dim = 64;
      scene.heads = 3;
      scene.top_k = 100;
      scene.candidate_blocks = 40;
      scene.has_small_integers = ties;
      // 12,345 rows are more than two of the least parts; the last one ends inside a block.
      TestBatch one({{12344, 1, 1, scattered_pages(1, 4)}});
      expect_equal(scene, one, false);
      expect_equal(scene, one, true);
      TestBatch two({{9000, 1, 1, scattered_pages(2, 4)}, {5, 2, 2, scattered_pages(3, 1)}});
      expect_equal(scene, two, false);
    }
  }
}

// More heads than are packed at a time, and numbers of heads around the tiles.
TEST_P(CpuIndexerEquality, NumbersOfHeads) {
  for (const int32_t heads : {1, 15, 16, 17, 32, 64, 65, 130}) {
    for (const DType compute : {DType::kBF16, DType::kF32}) {
      IndexScene scene;
      scene.compute = compute;
      scene.shape.ratio = 1;
      scene.shape.page_tokens = 128;
      scene.heads = heads;
      scene.top_k = 50;
      scene.has_small_integers = false;
      TestBatch batch({{400, 3, 1, scattered_pages(1, 4)}}, 1, 1);
      expect_equal(scene, batch, false);
    }
  }
}

// Whole groups of 32 heads, for which AMX has a kernel of its own, over dims and numbers of rows; keys, queries and
// weights that are no numbers.
TEST_P(CpuIndexerEquality, GroupsOfHeads) {
  for (const IndexFormat format : {IndexFormat::kFp4, IndexFormat::kFp8}) {
    for (const int32_t dim : {32, 96, 128, 256, 288}) {
      IndexScene scene;
      scene.shape.index_format = format;
      scene.shape.index_dim = dim;
      scene.shape.ratio = 1;
      scene.shape.page_tokens = 128;
      scene.heads = dim == 96 ? 64 : 32;
      scene.top_k = 40;
      scene.candidate_blocks = dim == 32 ? 0 : 7;
      scene.has_small_integers = dim == 128;
      const auto spoil = [&](IndexRun& run) {
        const auto wrong = static_cast<size_t>(dim);
        run.set_key(0, 3, Row(wrong, std::nanf("")));
        run.set_key(0, 100, Row(wrong, std::numeric_limits<float>::infinity()));
        run.set_query(1, scene.heads - 1, Row(wrong, std::nanf("")));
        run.weights().set(2, 5, -std::numeric_limits<float>::infinity());
        run.weights().set(2, 6, std::numeric_limits<float>::infinity());
      };
      for (const int32_t rows : {3, 9, 33}) {
        const TestBatch batch({{290, rows, 1, scattered_pages(1, 5)}, {6, 2, 2, scattered_pages(2, 1)}}, 1, 1);
        expect_equal(scene, batch, scene.candidate_blocks > 0 && rows == 9);
        if (rows == 3) expect_equal(scene, batch, false, spoil);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, CpuIndexerEquality, testing::ValuesIn(tables_under_test()), table_name);

}  // namespace
}  // namespace ps::ops::test

namespace ps::cpu {
namespace {

using ops::test::Row;

// 64 heads and `blocks` blocks of keys of a plane in random order, as the kernel takes them.
struct KeyScores {
  KeyScores(ops::IndexFormat format, int32_t dim, int64_t blocks) : cache(shape(format, dim)) {
    for (int64_t i = 0; i < blocks; ++i) order.push_back((i * 7 + 3) % 40);
    for (int64_t flat = 0; flat < 40 * 8; ++flat) {
      Row key = ops::test::random_row(static_cast<uint64_t>(flat), dim, 3.0f);
      ops::encode_index_key(cache.index, flat, key.data());
    }
    for (uint64_t h = 0; h < 64; ++h) {
      const Row query = ops::test::on_index_grid(format, ops::test::random_row(1000 + h, dim, 2.0f));
      for (const float value : query) queries.push_back(to_bf16(value));
      weights.push_back(round_bf16(ops::test::random_row(2000 + h, 1)[0]));
    }
  }
  static ops::test::CacheShape shape(ops::IndexFormat format, int32_t dim) {
    ops::test::CacheShape shape;
    shape.index_format = format;
    shape.index_dim = dim;
    shape.ratio = 1;
    shape.page_tokens = 8;
    return shape;
  }
  // The contract of indexer.h, up to the last rounding.
  [[nodiscard]] float expected(int64_t key, int64_t first_head, int64_t heads) const {
    const int64_t dim = cache.index.dim;
    Row values(static_cast<size_t>(dim));
    ops::decode_index_key(cache.index, order[static_cast<size_t>(key / 8)] * 8 + key % 8, values.data());
    float sum = 0;
    for (int64_t h = first_head; h < first_head + heads; ++h) {
      Row query;
      for (int64_t d = 0; d < dim; ++d) query.push_back(to_float(queries[static_cast<size_t>(h * dim + d)]));
      const float dot = std::max(0.0f, round_bf16(ops::canonical_dot(query.data(), values.data(), dim)));
      sum += round_bf16(dot * weights[static_cast<size_t>(h)]);
    }
    return sum;
  }

  ops::test::TestCache cache;
  std::vector<int64_t> order;
  std::vector<bf16> queries;
  std::vector<float> weights;
};

// Of the 64 heads as queries of `heads` each.
std::vector<float> scores_of(const Kernels& kernels, const KeyScores& data, int64_t heads) {
  const int64_t dim = data.cache.index.dim;
  Arena arena(HostBuffer::allocate(1 << 20).value());
  ScoreKeysArgs args;
  args.plane = data.cache.index;
  args.blocks = data.order.data();
  args.count = static_cast<int64_t>(data.order.size());
  args.weights = data.weights.data();
  args.weight_stride = heads;
  args.heads = heads;
  args.query_count = 64 / heads;
  args.score_stride = kPanelGroup * kPanel;
  args.scores = arena.take<float>(args.query_count * args.score_stride);
  args.work = arena.take_bytes(2 * kPanel * dim * 2);
  args.query_stride = kernels.matrix.packed_bytes(heads, dim);
  std::byte* packed = arena.take_bytes(args.query_count * args.query_stride);
  args.queries = packed;
  for (int64_t query = 0; query < args.query_count; ++query) {
    PackArgs pack{
        .x = data.queries.data() + query * heads * dim, .stride = dim, .columns = dim, .count = heads, .end = heads};
    pack.packed = packed + query * args.query_stride;
    kernels.matrix.pack(pack);
  }
  kernels.score_keys(args);
  std::vector<float> scores;
  for (int64_t query = 0; query < args.query_count; ++query) {
    const float* of_query = args.scores + query * args.score_stride;
    scores.insert(scores.end(), of_query, of_query + args.count * ops::kIndexBlockRows);
  }
  return scores;
}

TEST(CpuIndexerKernels, ScoresAreTheContractsBitForBit) {
  if (!supported(Isa::kAmx).ok()) GTEST_SKIP() << supported(Isa::kAmx).message();
  const FlushSubnormals flush;
  for (const ops::IndexFormat format : {ops::IndexFormat::kFp4, ops::IndexFormat::kFp8}) {
    for (const int32_t dim : {32, 96, 128}) {
      for (const int64_t blocks : {1, 3, 4, 5, 8, 31, 32}) {
        const KeyScores data(format, dim, blocks);
        for (const int64_t heads : {32, 64}) {
          const std::vector<float> scores = scores_of(amx_kernels(), data, heads);
          std::vector<float> expected;
          for (int64_t first = 0; first < 64; first += heads) {
            for (int64_t key = 0; key < 8 * blocks; ++key) expected.push_back(data.expected(key, first, heads));
          }
          const std::string what = std::to_string(blocks) + " blocks, dim " + std::to_string(dim);
          ops::test::expect_same_floats(what, scores, expected);
        }
      }
    }
  }
}

}  // namespace
}  // namespace ps::cpu
