#include "ops/testing/attention_suite.h"
#include "ops/testing/cache_write_suite.h"
#include "ops/testing/mini_layer_suite.h"

namespace ps::ops::test {
namespace {

// Every table against the reference, over numbers of heads that fill tiles and groups of them in every way, and numbers
// of threads that cut heads differently.
class CpuAttentionEquality : public AttentionSuite {};

TEST_P(CpuAttentionEquality, HeadsAndThreads) {
  for (const int32_t heads : {1, 8, 16, 17, 33, 48, 64}) {
    for (const DType compute : {DType::kBF16, DType::kF32}) {
      AttentionScene scene;
      scene.compute = compute;
      scene.heads = heads;
      scene.shape.dim = heads > 16 ? 64 : 160;
      scene.shape.ring_slots = 60;
      scene.window = 60;
      scene.top_k = 90;
      scene.shape.ratio = 1;
      scene.shape.page_tokens = 32;
      scene.shape.window_format = heads % 2 == 0 ? RowFormat::kMxfp8 : RowFormat::kBF16;
      scene.shape.main_format = heads % 2 == 0 ? RowFormat::kCompressed : RowFormat::kBF16;
      scene.seed = static_cast<uint64_t>(heads);
      TestBatch batch(
          {{70, 2, 1, scattered_pages(1, 5)}, {31, 3, 2, scattered_pages(2, 5)}, {0, 2, 0, scattered_pages(3, 5)}});
      AttentionRun expected(scene, batch);
      ThreadPool pool(1);
      ScratchBounds bounds = expected.bounds();
      Arena& arena = fresh_scratch(reference_table().scratch_bytes(bounds));
      Exec exec{pool, arena};
      reference_table().sparse_attention(expected.args(), exec);
      for (int threads = 1; threads <= 8; ++threads) {
        AttentionRun actual(scene, batch);
        attend(actual, threads);
        expect_same_rows(std::to_string(heads) + " heads, " + std::to_string(threads) + " threads", actual.output(),
                         expected.output());
        EXPECT_TRUE(actual.output().gaps_intact());
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, CpuAttentionEquality, testing::ValuesIn(tables_under_test()), table_name);

}  // namespace
}  // namespace ps::ops::test
