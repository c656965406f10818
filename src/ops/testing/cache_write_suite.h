// The ops that write the cache, on every table under test: the window ring, the compressor ring, compressed rows and
// index keys, and the pooling that reads the compressor ring. Each test also looks at every byte that must stay as it
// is.
#pragma once

#include <map>

#include "ops/numerics.h"
#include "ops/testing/cache_kit.h"

namespace ps::ops::test {

class CacheWriteSuite : public OpSuite {
 protected:
  [[nodiscard]] static ScratchBounds bounds(const TestBatch& batch, int64_t dim) {
    ScratchBounds bounds;
    bounds.tokens = std::max(batch->tokens, 1);
    bounds.head_dim = dim;
    bounds.heads = 1;
    return bounds;
  }
};

// The window row of a request's position.
inline Row window_row(size_t request, int32_t position, int64_t dim) {
  return on_mxfp8_grid(
      random_row(1000 * request + static_cast<uint64_t>(position), dim, position % 3 == 0 ? 900.0f : 1.0f));
}

// Runs window_write on poisoned rings and expects, in every slot, exactly the rows named in `written` (request,
// position).
struct WindowExpectation {
  RowFormat format = RowFormat::kBF16;
  int32_t ring_slots = 13;
  DType compute = DType::kBF16;
};

class WindowWriteSuite : public CacheWriteSuite {
 protected:
  void expect_window(const WindowExpectation& what, const TestBatch& batch,
                     const std::vector<std::pair<size_t, int32_t>>& written, int threads = 2) const {
    CacheShape shape;
    shape.window_format = what.format;
    shape.ring_slots = what.ring_slots;
    shape.dim = 64;
    TestCache cache(shape);
    TestCache expected(shape);
    Rows kv(batch->tokens, shape.dim, what.compute);
    for (int32_t row = 0; row < batch->tokens; ++row) {
      const int32_t s = batch->request_of_row[row];
      if (s >= 0) set_row(kv, row, window_row(static_cast<size_t>(s), batch->positions[row], shape.dim));
    }
    for (const auto& [request, position] : written) {
      const Row values = window_row(request, position, shape.dim);
      encode_row(what.format, values.data(), shape.dim, expected.window.row(batch.requests()[request].slot, position));
    }
    const Rows& rows = kv;
    run_op(table().window_write, WindowWriteArgs{rows.view(Grid::kMxfp8), batch.get(), cache.window},
           bounds(batch, shape.dim), threads);
    EXPECT_EQ(cache.bytes(), expected.bytes());
    for (const auto& [request, position] : written) {
      Row got(static_cast<size_t>(shape.dim));
      decode_row(what.format, cache.window.row(batch.requests()[request].slot, position), shape.dim, got.data());
      expect_same_floats("position " + std::to_string(position), got, window_row(request, position, shape.dim));
    }
  }
};

inline std::vector<std::pair<size_t, int32_t>> positions_of(size_t request, int32_t first, int32_t end) {
  std::vector<std::pair<size_t, int32_t>> list;
  for (int32_t p = first; p < end; ++p) list.emplace_back(request, p);
  return list;
}

TEST_P(WindowWriteSuite, KeepsTheLastRowsInEveryFormat) {
  for (const RowFormat format : {RowFormat::kBF16, RowFormat::kMxfp8}) {
    for (const DType compute : {DType::kBF16, DType::kF32}) {
      for (const int threads : kThreadCounts) {
        const TestBatch batch({{5, 6, 3, {}}, {0, 1, 0, {}}, {0, 0, 0, {}}, {90, 30, 1, {}}}, 4, 2);
        auto written = positions_of(0, 5, 11);
        for (const auto& more : {positions_of(1, 0, 1), positions_of(3, 107, 120)}) {
          written.insert(written.end(), more.begin(), more.end());
        }
        expect_window({format, 13, compute}, batch, written, threads);
      }
    }
  }
}

// One row more and one fewer than the ring, at every phase of the ring.
TEST_P(WindowWriteSuite, RingWraps) {
  for (const int32_t count : {1, 127, 128, 129, 300}) {
    for (const int32_t start : {0, 1, 127, 128, 129, 1048320}) {
      const TestBatch batch({{start, count, 4, {}}});
      expect_window({RowFormat::kBF16, 128}, batch, positions_of(0, start + std::max(0, count - 128), start + count));
    }
  }
}

TEST_P(WindowWriteSuite, PaddingWritesNothing) {
  expect_window({}, TestBatch({}, 16, 0), {});
  expect_window({}, TestBatch({}, 16, 3), {});
  expect_window({}, TestBatch({}, 0, 3), {});
}

// Rows below cached_until stay as they are (runtime.md 3.3), also when the forward is longer than the ring.
TEST_P(WindowWriteSuite, CachedRowsStay) {
  expect_window({}, TestBatch({{4, 6, 1, {}, 0, 8}}), positions_of(0, 8, 10));
  expect_window({}, TestBatch({{4, 6, 1, {}, 0, 9}}), positions_of(0, 9, 10));
  expect_window({}, TestBatch({{4, 6, 1, {}, 0, 10}}), {});
  expect_window({}, TestBatch({{4, 6, 1, {}, 0, 3}}), positions_of(0, 4, 10));
  expect_window({RowFormat::kBF16, 13}, TestBatch({{100, 40, 1, {}, 0, 120}}), positions_of(0, 127, 140));
  expect_window({RowFormat::kBF16, 13}, TestBatch({{100, 40, 1, {}, 0, 130}}), positions_of(0, 130, 140));
}

INSTANTIATE_TEST_SUITE_P(Tables, WindowWriteSuite, testing::ValuesIn(tables_under_test()), table_name);

// Pending (kv, score) of a request's position.
inline Row pending(size_t request, int32_t position, int64_t dim, bool is_score) {
  return random_row(1000 * request + static_cast<uint64_t>(position) + (is_score ? 7000000 : 0), dim,
                    is_score ? 6.0f : 2.0f);
}

// The contract of compressor_pool, channel by channel.
inline Row literal_pool(const Row& v0, const Row& s0, const Row& v1, const Row& s1, DType latent) {
  const FlushSubnormals flush;
  Row pooled(v0.size());
  for (size_t d = 0; d < v0.size(); ++d) {
    const float m = s0[d] > s1[d] ? s0[d] : s1[d];
    const float e0 = ops::exp_f32(s0[d] - m);
    const float e1 = ops::exp_f32(s1[d] - m);
    const float z = e0 + e1;
    const float first = (e0 / z) * v0[d];
    pooled[d] = round_to(latent, std::fma(e1 / z, v1[d], first));
  }
  return pooled;
}

class CompressorSuite : public CacheWriteSuite {
 protected:
  // kv and score of the batch's rows. A row in front of them is what an op would read that took the -1 of padding for a
  // row.
  class Inputs {
   public:
    Inputs(const TestBatch& batch, int64_t dim)
        : kv_(batch->tokens + 1, dim, DType::kF32), score_(batch->tokens + 1, dim, DType::kF32) {
      for (int32_t row = 0; row < batch->tokens; ++row) {
        const int32_t s = batch->request_of_row[row];
        if (s < 0) continue;
        set_row(kv_, row + 1, pending(static_cast<size_t>(s), batch->positions[row], dim, false));
        set_row(score_, row + 1, pending(static_cast<size_t>(s), batch->positions[row], dim, true));
      }
      set_row(kv_, 0, Row(static_cast<size_t>(dim), 123.0f));
      set_row(score_, 0, Row(static_cast<size_t>(dim), 123.0f));
    }
    [[nodiscard]] ConstActivations kv() const { return without_first(kv_.view()); }
    [[nodiscard]] ConstActivations score() const { return without_first(score_.view()); }

   private:
    static ConstActivations without_first(ConstActivations view) {
      view.data = static_cast<const float*>(view.data) + view.stride;
      --view.rows;
      return view;
    }
    Rows kv_;
    Rows score_;
  };
  static void keep(TestCache& cache, const TestBatch& batch, size_t request, int32_t position) {
    const int32_t slot = batch.requests()[request].slot;
    const Row kv = pending(request, position, cache.compressor.dim, false);
    const Row score = pending(request, position, cache.compressor.dim, true);
    std::copy(kv.begin(), kv.end(), cache.compressor.kv_row(slot, position));
    std::copy(score.begin(), score.end(), cache.compressor.score_row(slot, position));
  }
};

// The requests of runtime.md 4.1 with a ratio of 2: groups that close inside the chunk, and groups whose first half
// waits in the ring. Everything else in the rings is poison.
TEST_P(CompressorSuite, PoolsGroupsFromTheChunkAndFromTheRing) {
  for (const DType latent_dtype : {DType::kF32, DType::kBF16}) {
    for (const int threads : kThreadCounts) {
      const TestBatch batch({{5, 6, 3, {}}, {0, 3, 0, {}}, {9, 1, 4, {}}, {2, 1, 1, {}}}, 2, 1);
      CacheShape shape;
      shape.dim = 64;
      TestCache cache(shape);
      keep(cache, batch, 0, 4);
      keep(cache, batch, 2, 8);
      const auto before = cache.bytes();
      Inputs inputs(batch, shape.dim);
      const std::vector<CompressedGroup> groups = batch.groups(2);
      ASSERT_EQ(groups.size(), 6U);
      Rows latent(6, shape.dim, latent_dtype);
      set_row(latent, 0, Row(64, 3.0f));  // a padding group's row stays
      run_op(table().compressor_pool,
             CompressorPoolArgs{inputs.kv(), inputs.score(), batch.get(), groups.data(), 6, cache.compressor,
                                latent.view()},
             bounds(batch, shape.dim), threads);
      EXPECT_EQ(cache.bytes(), before);
      expect_same_floats("padding", latent.row(0), Row(64, 3.0f));
      for (size_t g = 1; g < groups.size(); ++g) {
        const auto s = static_cast<size_t>(groups[g].request);
        const int32_t p = groups[g].position;
        const Row want = literal_pool(pending(s, p - 1, 64, false), pending(s, p - 1, 64, true),
                                      pending(s, p, 64, false), pending(s, p, 64, true), latent_dtype);
        const Row got = latent.row(static_cast<int64_t>(g));
        if (is_bitwise()) expect_same_floats("group " + std::to_string(g), got, want);
        // The weights and the products carry a few roundings of values below 2.
        const float step = latent_dtype == DType::kBF16 ? 0x1p-8f : 0x1p-24f;
        for (size_t d = 0; d < 64; ++d) EXPECT_NEAR(got[d], want[d], 2 * step * std::fabs(want[d]) + 0x1p-20f);
      }
      EXPECT_TRUE(latent.gaps_intact());
    }
  }
}

TEST_P(CompressorSuite, PoolOfExtremeScores) {
  const TestBatch batch({{0, 2, 0, {}}});
  CacheShape shape;
  TestCache cache(shape);
  Rows kv(2, 32, DType::kF32);
  Rows score(2, 32, DType::kF32);
  const std::vector<std::array<float, 5>> cases = {// s0, s1, v0, v1, pooled
                                                   {0, 0, 1, 3, 2},
                                                   {5e30f, 5e30f, -4, 8, 2},
                                                   {-1e30f, 1e30f, 7, 3, 3},
                                                   {1e30f, -1e30f, 7, 3, 7},
                                                   {-3e38f, -3e38f, 6, 2, 4}};
  set_row(kv, 0, Row(32, 0.0f)), set_row(kv, 1, Row(32, 0.0f));
  set_row(score, 0, Row(32, 0.0f)), set_row(score, 1, Row(32, 0.0f));
  for (size_t d = 0; d < cases.size(); ++d) {
    const auto column = static_cast<int64_t>(d);
    score.set(0, column, cases[d][0]), score.set(1, column, cases[d][1]);
    kv.set(0, column, cases[d][2]), kv.set(1, column, cases[d][3]);
  }
  const CompressedGroup group{1, 0, 1, 0};
  Rows latent(1, 32, DType::kF32);
  run_op(table().compressor_pool,
         CompressorPoolArgs{kv.view(), score.view(), batch.get(), &group, 1, cache.compressor, latent.view()},
         bounds(batch, 32));
  for (size_t d = 0; d < cases.size(); ++d) EXPECT_EQ(latent.at(0, static_cast<int64_t>(d)), cases[d][4]) << d;
}

// The plan keeps the last rows of each request; a chunk longer than the ring has one writer per slot.
TEST_P(CompressorSuite, RingKeepsPlannedRows) {
  for (const int32_t ring_slots : {2, 7}) {
    for (const int threads : kThreadCounts) {
      const TestBatch batch({{5, 6, 3, {}}, {0, 3, 0, {}}, {9, 1, 4, {}}, {100, 31, 1, {}}}, 3, 1);
      CacheShape shape;
      shape.compressor_slots = ring_slots;
      TestCache cache(shape);
      TestCache expected(shape);
      Inputs inputs(batch, shape.dim);
      const std::vector<CompressorRingRow> rows = batch.ring_rows(ring_slots - (ring_slots == 7 ? 1 : 0));
      for (const CompressorRingRow& row : rows) {
        if (row.row >= 0) keep(expected, batch, static_cast<size_t>(row.request), row.position);
      }
      run_op(table().compressor_ring_write,
             CompressorRingWriteArgs{inputs.kv(), inputs.score(), batch.get(), rows.data(),
                                     static_cast<int32_t>(rows.size()), cache.compressor},
             bounds(batch, shape.dim), threads);
      EXPECT_EQ(cache.bytes(), expected.bytes());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, CompressorSuite, testing::ValuesIn(tables_under_test()), table_name);

struct StoreCase {
  int32_t ratio = 2;
  DType compute = DType::kBF16;
  RowFormat main = RowFormat::kBF16;
  IndexFormat index = IndexFormat::kFp4;
  bool holds_cached_rows = false;  // write_from drops groups
};

inline std::vector<StoreCase> store_cases() {
  std::vector<StoreCase> cases;
  for (const int32_t ratio : {1, 2}) {
    for (const DType compute : {DType::kBF16, DType::kF32}) {
      for (const bool packed : {false, true}) {
        for (const bool cached : {false, true}) {
          cases.push_back({ratio, compute, packed ? RowFormat::kCompressed : RowFormat::kBF16,
                           packed ? IndexFormat::kFp8 : IndexFormat::kFp4, cached});
        }
      }
    }
  }
  return cases;
}

class CompressedStoreSuite : public CacheWriteSuite {
 protected:
  static std::vector<RequestRows> requests(bool holds_cached_rows) {
    std::vector<RequestRows> list = {{5, 30, 3, scattered_pages(1, 5)},
                                     {0, 3, 0, scattered_pages(2, 3)},
                                     {61, 1, 4, scattered_pages(3, 5)},
                                     {16, 16, 1, scattered_pages(4, 4)}};
    if (holds_cached_rows) list[0].write_from = 12, list[3].write_from = 32;
    return list;
  }
  static Row latent_of(const CompressedGroup& group, int64_t dim, DType compute) {
    const uint64_t seed = 1000 * static_cast<uint64_t>(group.request) + static_cast<uint64_t>(group.position) + 31;
    Row row = rounded(compute, random_row(seed, dim, group.position % 4 == 1 ? 2000.0f : 0.7f));
    if (group.position % 5 == 0) std::fill(row.begin(), row.begin() + 16, 0.0f);
    return row;
  }
  static Rows latents(const std::vector<CompressedGroup>& groups, int64_t dim, DType compute) {
    Rows rows(static_cast<int64_t>(groups.size()), dim, compute);
    for (size_t g = 0; g < groups.size(); ++g) {
      if (groups[g].row >= 0) set_row(rows, static_cast<int64_t>(g), latent_of(groups[g], dim, compute));
    }
    return rows;
  }
  static bool is_kept(const TestBatch& batch, const CompressedGroup& group) {
    return group.row >= 0 && group.position >= batch.requests()[static_cast<size_t>(group.request)].write_from;
  }
};

TEST_P(CompressedStoreSuite, StoresRoundedRowsWhereTheBlockTableSays) {
  for (const StoreCase& c : store_cases()) {
    for (const int threads : kThreadCounts) {
      const TestBatch batch(requests(c.holds_cached_rows), 3, 1);
      CacheShape shape;
      shape.ratio = c.ratio;
      shape.main_format = c.main;
      shape.dim = 96;
      TestCache cache(shape);
      TestCache expected(shape);
      const std::vector<CompressedGroup> groups = batch.groups(c.ratio);
      for (const CompressedGroup& group : groups) {
        if (!is_kept(batch, group)) continue;
        const int32_t* pages = batch.requests()[static_cast<size_t>(group.request)].pages.data();
        const Row row = on_compressed_grid(latent_of(group, shape.dim, c.compute));
        encode_row(c.main, row.data(), shape.dim, expected.main.row(pages, group.position / c.ratio));
      }
      const Rows latent = latents(groups, shape.dim, c.compute);
      run_op(table().compressed_store,
             CompressedStoreArgs{latent.view(), batch.get(), groups.data(), static_cast<int32_t>(groups.size()),
                                 cache.main},
             bounds(batch, shape.dim), threads);
      EXPECT_EQ(cache.bytes(), expected.bytes());
      for (const CompressedGroup& group : groups) {
        if (!is_kept(batch, group)) continue;
        Row got(96);
        const int32_t* pages = batch.requests()[static_cast<size_t>(group.request)].pages.data();
        decode_row(c.main, cache.main.row(pages, group.position / c.ratio), shape.dim, got.data());
        expect_same_floats("stored row", got, on_compressed_grid(latent_of(group, shape.dim, c.compute)));
      }
    }
  }
}

TEST_P(CompressedStoreSuite, StoresIndexKeysOfBothFormats) {
  for (const StoreCase& c : store_cases()) {
    for (const int threads : kThreadCounts) {
      const TestBatch batch(requests(c.holds_cached_rows), 3, 1);
      CacheShape shape;
      shape.ratio = c.ratio;
      shape.index_format = c.index;
      shape.index_dim = 128;
      TestCache cache(shape);
      TestCache expected(shape);
      const std::vector<CompressedGroup> groups = batch.groups(c.ratio);
      for (const CompressedGroup& group : groups) {
        if (!is_kept(batch, group)) continue;
        const int32_t* pages = batch.requests()[static_cast<size_t>(group.request)].pages.data();
        const Row key = latent_of(group, shape.index_dim, c.compute);
        encode_index_key(expected.index, expected.index.flat_row(pages, group.position / c.ratio), key.data());
      }
      const Rows key = latents(groups, shape.index_dim, c.compute);
      run_op(
          table().index_key_store,
          IndexKeyStoreArgs{key.view(), batch.get(), groups.data(), static_cast<int32_t>(groups.size()), cache.index},
          bounds(batch, shape.dim), threads);
      EXPECT_EQ(cache.bytes(), expected.bytes());
      for (const CompressedGroup& group : groups) {
        if (!is_kept(batch, group)) continue;
        Row got(128);
        const int32_t* pages = batch.requests()[static_cast<size_t>(group.request)].pages.data();
        decode_index_key(cache.index, cache.index.flat_row(pages, group.position / c.ratio), got.data());
        expect_same_floats("stored key", got, on_index_grid(c.index, latent_of(group, shape.index_dim, c.compute)));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, CompressedStoreSuite, testing::ValuesIn(tables_under_test()), table_name);

}  // namespace ps::ops::test
