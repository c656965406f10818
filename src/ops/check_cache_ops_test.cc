// check(args) of the attention, compressor and indexer ops: a valid call passes, and each spoilt field is named.
#include <gmock/gmock.h>

#include "ops/testing/cache_kit.h"

namespace ps::ops::test {
namespace {

using testing::HasSubstr;

// A valid call of each op, to be spoilt one field at a time.
struct Calls {
  Calls()
      : cache(shape()),
        batch({{0, 2, 0, {1}}}),
        groups(batch.groups(2)),
        kv(2, 32, DType::kBF16),
        q(2, 64, DType::kBF16),
        o(2, 64, DType::kBF16),
        weights(2, 2, DType::kBF16),
        pending(2, 32, DType::kF32),
        latent(2, 32, DType::kBF16),
        selected(10),
        candidates(6),
        sink(2, 0.0f) {
    attention.q = q.view();
    attention.kv = kv.view(Grid::kMxfp8);
    attention.batch = batch.get();
    attention.ring = cache.window;
    attention.plane = cache.main;
    attention.selected = selected.data();
    attention.top_k = 5;
    attention.sink = {reinterpret_cast<const std::byte*>(sink.data()), DType::kF32, 2};
    attention.scale = 1;
    attention.heads = 2;
    attention.window = 13;
    attention.o = o.view();
    window = {attention.kv, batch.get(), cache.window};
    pool = {pending.view(), pending.view(), batch.get(), groups.data(), 2, cache.compressor, latent.view()};
    ring_write = {pending.view(), pending.view(), batch.get(), &ring_row, 1, cache.compressor};
    store = {latent.view(), batch.get(), groups.data(), 2, cache.main};
    key_store = {latent.view(), batch.get(), groups.data(), 2, cache.index};
    quantize = {q.view(), 2, IndexFormat::kFp4};
    select = {q.view(), weights.view(), batch.get(), cache.index, 2, 5, selected.data(), nullptr, candidates.data(), 3};
  }
  static CacheShape shape() {
    CacheShape shape;
    shape.main_format = RowFormat::kCompressed;
    return shape;
  }
  TestCache cache;
  TestBatch batch;
  std::vector<CompressedGroup> groups;
  CompressorRingRow ring_row{0, 0, 0};
  Rows kv, q, o, weights, pending, latent;
  std::vector<int32_t> selected, candidates;
  std::vector<float> sink;

  SparseAttentionArgs attention;
  WindowWriteArgs window;
  CompressorPoolArgs pool;
  CompressorRingWriteArgs ring_write;
  CompressedStoreArgs store;
  IndexKeyStoreArgs key_store;
  IndexQueryQuantizeArgs quantize;
  IndexSelectArgs select;
};

// The message of the call after `spoil`; "" if it passes.
template <typename Args, typename Spoil>
std::string refused(Args Calls::* member, const Spoil& spoil) {
  Calls calls;
  EXPECT_EQ(check(calls.*member).to_string(), "ok");
  spoil(calls.*member);
  return std::string(check(calls.*member).message());
}

TEST(CheckAttention, NamesWhatIsWrong) {
  using Args = SparseAttentionArgs;
  const auto message = [](auto spoil) { return refused(&Calls::attention, spoil); };
  EXPECT_THAT(message([](Args& a) { a.batch = nullptr; }), HasSubstr("sparse_attention: no batch"));
  EXPECT_THAT(message([](Args& a) { a.heads = 0; }), HasSubstr("heads is 0"));
  EXPECT_THAT(message([](Args& a) { a.heads = 3; }), HasSubstr("q is [2, 64], expected [2, 96]"));
  EXPECT_THAT(message([](Args& a) { a.kv.grid = Grid::kNone; }), HasSubstr("kv must be on the MXFP8 grid"));
  EXPECT_THAT(message([](Args& a) { a.kv.rows = 1; }), HasSubstr("kv is [1, 32], expected [2, 32]"));
  EXPECT_THAT(message([](Args& a) { a.kv.dtype = DType::kF32; }), HasSubstr("kv is F32, expected BF16"));
  EXPECT_THAT(message([](Args& a) { a.o.dtype = DType::kF32; }), HasSubstr("o is F32, expected BF16"));
  EXPECT_THAT(message([](Args& a) { a.o.grid = Grid::kMxfp8; }), HasSubstr("o is written unquantized"));
  EXPECT_THAT(message([](Args& a) { a.o.data = const_cast<void*>(a.q.data); }), HasSubstr("q and o overlap"));
  EXPECT_THAT(message([](Args& a) { a.q.rows = a.o.rows = 1; }),
              HasSubstr("rows of q is 1, but rows of the batch is 2"));
  EXPECT_THAT(message([](Args& a) { a.ring.base = nullptr; }), HasSubstr("the window ring has no data"));
  EXPECT_THAT(message([](Args& a) { a.ring.format = RowFormat::kCompressed; }),
              HasSubstr("window rows are BF16 or MXFP8"));
  EXPECT_THAT(message([](Args& a) { a.ring.slot_stride_bytes = 13 * 64 - 1; }), HasSubstr("two STATE slots overlap"));
  EXPECT_THAT(message([](Args& a) { a.window = 14; }),
              HasSubstr("slots of the window ring is 13, but the window is 14"));
  EXPECT_THAT(message([](Args& a) { a.window = -1; }), HasSubstr("window is negative"));
  EXPECT_THAT(message([](Args& a) { a.plane.base = nullptr; }), HasSubstr("a WINDOW layer has a selection"));
  EXPECT_THAT(message([](Args& a) { a.plane.dim = 64; }), HasSubstr("dims of the main plane is 64"));
  EXPECT_THAT(message([](Args& a) { a.plane.format = RowFormat::kMxfp8; }), HasSubstr("main rows are BF16 or packed"));
  EXPECT_THAT(message([](Args& a) { a.plane.page_stride_bytes = 8; }), HasSubstr("two PAGEs overlap"));
  EXPECT_THAT(message([](Args& a) { a.selected = nullptr; }), HasSubstr("has no selection"));
  EXPECT_THAT(message([](Args& a) { a.sink.size = 1; }), HasSubstr("sink has 1 values, expected 2"));
  EXPECT_EQ(message([](Args& a) { a.plane.base = nullptr, a.selected = nullptr; }), "");  // a WINDOW layer
  const int32_t rows[] = {1};
  EXPECT_EQ(message([&](Args& a) { a.query_rows = rows, a.q.rows = a.o.rows = 1; }), "");
}

TEST(CheckAttention, BatchNeedsItsArrays) {
  const auto message = [](auto spoil) {
    Calls calls;
    spoil(*calls.batch.operator->());
    return std::string(check(calls.attention).message());
  };
  EXPECT_THAT(message([](Batch& b) { b.positions = nullptr; }), HasSubstr("without positions"));
  EXPECT_THAT(message([](Batch& b) { b.slots = nullptr; }), HasSubstr("without row starts or slots"));
  EXPECT_THAT(message([](Batch& b) { b.block_tables = nullptr; }), HasSubstr("without block tables"));
  EXPECT_THAT(message([](Batch& b) { b.requests = -1; }), HasSubstr("negative size"));
  EXPECT_EQ(message([](Batch& b) { b.window_start = b.cached_until = b.write_from = nullptr; }), "");
}

TEST(CheckWindowWrite, NamesWhatIsWrong) {
  using Args = WindowWriteArgs;
  const auto message = [](auto spoil) { return refused(&Calls::window, spoil); };
  EXPECT_THAT(message([](Args& a) { a.kv.grid = Grid::kNone; }),
              HasSubstr("window_write: kv must be on the MXFP8 grid"));
  EXPECT_THAT(message([](Args& a) { a.kv.columns = 31; }), HasSubstr("kv is [2, 31], expected [2, 32]"));
  EXPECT_THAT(message([](Args& a) { a.ring.ring_slots = 0; }), HasSubstr("the window ring has no slots"));
  EXPECT_THAT(message([](Args& a) { a.ring.dim = a.kv.columns = 30; }), HasSubstr("not a positive multiple of 32"));
}

TEST(CheckCompressor, NamesWhatIsWrong) {
  const auto pool = [](auto spoil) { return refused(&Calls::pool, spoil); };
  EXPECT_THAT(pool([](auto& a) { a.kv.dtype = DType::kBF16; }), HasSubstr("compressor_pool: kv is BF16, expected F32"));
  EXPECT_THAT(pool([](auto& a) { a.score.rows = 3; }), HasSubstr("score is [3, 32], expected [2, 32]"));
  EXPECT_THAT(pool([](auto& a) { a.latent.rows = 1; }), HasSubstr("latent is [1, 32], expected [2, 32]"));
  EXPECT_THAT(pool([](auto& a) { a.groups = nullptr; }), HasSubstr("groups is null"));
  EXPECT_THAT(pool([](auto& a) { a.ring.kv = nullptr; }), HasSubstr("compressor ring has no data"));
  EXPECT_THAT(pool([](auto& a) { a.ring.slot_stride_bytes = 4; }), HasSubstr("two STATE slots overlap"));
  EXPECT_EQ(pool([](auto& a) { a.groups = nullptr, a.group_count = 0, a.latent.rows = 0; }), "");
  const auto ring = [](auto spoil) { return refused(&Calls::ring_write, spoil); };
  EXPECT_THAT(ring([](auto& a) { a.rows = nullptr; }), HasSubstr("compressor_ring_write: rows is null"));
  EXPECT_THAT(ring([](auto& a) { a.row_count = -1; }), HasSubstr("row_count is negative"));
  const auto store = [](auto spoil) { return refused(&Calls::store, spoil); };
  EXPECT_THAT(store([](auto& a) { a.latent.columns = 64; }), HasSubstr("compressed_store: latent is [2, 64]"));
  EXPECT_THAT(store([](auto& a) { a.plane.rows_per_page = 0; }), HasSubstr("no rows"));
  EXPECT_THAT(store([](auto& a) { a.group_count = -1; }), HasSubstr("group_count is negative"));
}

TEST(CheckIndexer, NamesWhatIsWrong) {
  const auto store = [](auto spoil) { return refused(&Calls::key_store, spoil); };
  EXPECT_THAT(store([](auto& a) { a.plane.scales = nullptr; }), HasSubstr("index_key_store: an FP4 index plane has"));
  EXPECT_THAT(store([](auto& a) { a.plane.format = IndexFormat::kFp8; }), HasSubstr("an FP8 one has none"));
  EXPECT_THAT(store([](auto& a) { a.plane.rows_per_page = 12; }), HasSubstr("multiple of 8"));
  EXPECT_THAT(store([](auto& a) { a.plane.dim = a.key.columns = 1024, a.key.stride = 1024; }),
              HasSubstr("an index key has 1024 dims, more than 512"));
  const auto quantize = [](auto spoil) { return refused(&Calls::quantize, spoil); };
  EXPECT_THAT(quantize([](auto& a) { a.heads = 0; }), HasSubstr("index_query_quantize: heads is 0"));
  EXPECT_THAT(quantize([](auto& a) { a.heads = 3; }), HasSubstr("columns of q is 64, not a multiple of 3"));
  EXPECT_THAT(quantize([](auto& a) { a.heads = 4; }), HasSubstr("16 dims, not a positive multiple of 32"));
  const auto select = [](auto spoil) { return refused(&Calls::select, spoil); };
  EXPECT_THAT(select([](auto& a) { a.weights.columns = 1; }),
              HasSubstr("index_select: weights is [2, 1], expected [2, 2]"));
  EXPECT_THAT(select([](auto& a) { a.weights.dtype = DType::kF32; }), HasSubstr("weights is F32, expected BF16"));
  EXPECT_THAT(select([](auto& a) { a.top_k = 0; }), HasSubstr("top_k is 0"));
  EXPECT_THAT(select([](auto& a) { a.selected = nullptr; }), HasSubstr("selected is null"));
  EXPECT_THAT(select([](auto& a) { a.candidates_in = a.candidates_out; }), HasSubstr("read or published, not both"));
  EXPECT_THAT(select([](auto& a) { a.candidate_blocks = 0; }), HasSubstr("candidate_blocks is 0"));
  EXPECT_THAT(select([](auto& a) { a.heads = 1; }), HasSubstr("q is [2, 64], expected [2, 32]"));
  EXPECT_EQ(select([](auto& a) { a.candidates_out = nullptr, a.candidate_blocks = 0; }), "");
}

}  // namespace
}  // namespace ps::ops::test
