#include "ops/testing/indexer_suite.h"

namespace ps::ops::test {
namespace {

// Every table against the reference, over contexts that are cut into several parts, for one row and for more rows than
// parts, on many threads.
class CpuIndexerEquality : public OpSuite {
 protected:
  static constexpr int32_t kUntouched = -7;

  void expect_equal(const IndexScene& scene, const TestBatch& batch, bool uses_candidates) const {
    IndexRun run(scene, batch);
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
    Arena arena(HostBuffer::allocate(reference_table().scratch_bytes(bounds)).value());
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

INSTANTIATE_TEST_SUITE_P(Tables, CpuIndexerEquality, testing::ValuesIn(tables_under_test()), table_name);

}  // namespace
}  // namespace ps::ops::test
