// Sparse attention on every table under test. The cache holds exactly what a query may read and is poison elsewhere, so
// a wrong address or a wrong bound shows as NaN.
#pragma once

#include <map>
#include <memory>
#include <set>

#include "ops/testing/literal_attention.h"

namespace ps::ops::test {

// One attention call: the cache holds exactly what the queries may read and is poison elsewhere.
struct AttentionScene {
  CacheShape shape;
  DType compute = DType::kBF16;
  int32_t heads = 2;
  int32_t window = 13;
  int32_t top_k = 0;  // 0: a WINDOW layer
  float magnitude = 1.0f;
  uint64_t seed = 1;

  // The exact row of a position, as the ring holds it, and the row that this forward computes for it. They differ below
  // cached_until only, where a recomputed row is approximate.
  [[nodiscard]] Row exact_row(size_t request, int32_t position) const {
    return on_mxfp8_grid(
        random_row(seed + 1000 * request + static_cast<uint64_t>(position) + 17, shape.dim, magnitude));
  }
  [[nodiscard]] Row forward_row(size_t request, const RequestRows& rows, int32_t position) const {
    if (position >= rows.cached_until) return exact_row(request, position);
    return on_mxfp8_grid(random_row(seed + 1000 * request + static_cast<uint64_t>(position) + 500017, shape.dim));
  }
  [[nodiscard]] Row main_row(size_t request, int32_t index) const {
    return on_compressed_grid(
        random_row(seed + 1000 * request + static_cast<uint64_t>(index) + 900017, shape.dim, magnitude));
  }
  [[nodiscard]] Row query(int64_t r, int32_t head) const {
    return rounded(compute, random_row(seed + 31 * static_cast<uint64_t>(r * heads + head) + 77, shape.dim, 3.0f));
  }
  // Up to top_k visible rows, pseudo-random, ascending.
  [[nodiscard]] std::vector<int32_t> selection(int32_t row, int32_t position) const {
    const int32_t visible = visible_rows(position, shape.ratio);
    Pcg64 random(seed + static_cast<uint64_t>(row) * 7 + 5);
    std::set<int32_t> chosen;
    while (static_cast<int32_t>(chosen.size()) < std::min(visible, top_k)) {
      chosen.insert(static_cast<int32_t>(random.integer(0, visible)));
    }
    return {chosen.begin(), chosen.end()};
  }
};

// The oldest window position that the query at `position` sees, and the first that comes from this forward (runtime.md
// 3.3).
struct WindowSpan {
  int32_t first = 0;
  int32_t ring_end = 0;
};
inline WindowSpan window_span(const RequestRows& rows, int32_t position, int32_t window) {
  int32_t first = std::max({0, position - window + 1, rows.window_start});
  if (position < rows.cached_until) return {std::max(first, rows.start), rows.start};
  return {first, std::max(rows.start, rows.cached_until)};
}

class AttentionRun {
 public:
  AttentionRun(const AttentionScene& scene, TestBatch& batch)
      : scene_(scene),
        batch_(batch),
        cache_(scene.shape),
        kv_(batch->tokens, scene.shape.dim, scene.compute),
        q_(batch->tokens, scene.heads * scene.shape.dim, scene.compute),
        o_(batch->tokens, scene.heads * scene.shape.dim, scene.compute),
        selected_(static_cast<size_t>(batch->tokens) * static_cast<size_t>(std::max(scene.top_k, 1)), -1) {
    for (int32_t h = 0; h < scene.heads; ++h) sink_.push_back(0.5f - static_cast<float>(h));
    for (size_t s = 0; s < batch.requests().size(); ++s) fill_ring(s);
    for (int32_t row = 0; row < batch->tokens; ++row) fill_row(row);
  }

  [[nodiscard]] SparseAttentionArgs args() {
    SparseAttentionArgs args;
    args.q = q_.view();
    args.kv = kv_.view(Grid::kMxfp8);
    args.batch = batch_.get();
    args.ring = cache_.window;
    if (scene_.top_k > 0) {
      args.plane = cache_.main;
      args.selected = selected_.data();
      args.top_k = scene_.top_k;
    }
    args.sink = {reinterpret_cast<const std::byte*>(sink_.data()), DType::kF32, scene_.heads};
    args.scale = 1.0f / std::sqrt(static_cast<float>(scene_.shape.dim));
    args.heads = scene_.heads;
    args.window = scene_.window;
    args.o = o_.view();
    return args;
  }
  [[nodiscard]] ScratchBounds bounds() const {
    ScratchBounds bounds;
    bounds.tokens = batch_->tokens;
    bounds.head_dim = scene_.shape.dim;
    bounds.heads = scene_.heads;
    bounds.top_k = scene_.top_k;
    bounds.window = scene_.window;
    return bounds;
  }

  // The keys of a row in contract order; none for a padding row.
  [[nodiscard]] std::vector<Row> keys(int32_t row) const {
    std::vector<Row> keys;
    if (batch_->request_of_row[row] < 0) return keys;
    const auto s = static_cast<size_t>(batch_->request_of_row[row]);
    const RequestRows& rows = batch_.requests()[s];
    const int32_t position = batch_->positions[row];
    const WindowSpan span = window_span(rows, position, scene_.window);
    for (int32_t p = span.first; p <= position; ++p) {
      keys.push_back(p < span.ring_end ? scene_.exact_row(s, p) : scene_.forward_row(s, rows, p));
    }
    if (scene_.top_k == 0) return keys;
    for (const int32_t index : scene_.selection(row, position)) keys.push_back(scene_.main_row(s, index));
    return keys;
  }

  // Output row r must be what the contract says for batch row `row`.
  void expect_row(int64_t r, int32_t row, bool is_bitwise) {
    const std::vector<Row> list = keys(row);
    const SparseAttentionArgs call = args();
    for (int32_t h = 0; h < scene_.heads; ++h) {
      const float sink = sink_[static_cast<size_t>(h)];
      const Row q = part(q_, r, h * scene_.shape.dim, scene_.shape.dim);
      const Row got = part(o_, r, h * scene_.shape.dim, scene_.shape.dim);
      const std::string where = "row " + std::to_string(row) + " head " + std::to_string(h);
      if (is_bitwise) expect_same_floats(where, got, literal_attention(q, list, sink, call.scale, scene_.compute));
      const DenseAttention dense = dense_attention(q, list, sink, call.scale, scene_.compute);
      for (size_t d = 0; d < got.size(); ++d) {
        ASSERT_LE(std::fabs(got[d] - dense.value[d]), dense.bound[d]) << where << ", channel " << d;
      }
    }
  }
  void expect_rows(bool is_bitwise) {
    for (int32_t row = 0; row < batch_->tokens; ++row) expect_row(row, row, is_bitwise);
    EXPECT_TRUE(o_.gaps_intact());
  }

  [[nodiscard]] Rows& output() { return o_; }
  [[nodiscard]] Rows& queries() { return q_; }
  [[nodiscard]] const Rows& keys_of_forward() const { return kv_; }

 private:
  // The ring after all positions below the first one not yet cached.
  void fill_ring(size_t s) {
    const RequestRows& rows = batch_.requests()[s];
    const int32_t end = std::max(rows.start, rows.cached_until);
    for (int32_t p = std::max({0, end - scene_.shape.ring_slots, rows.window_start}); p < end; ++p) {
      encode_row(scene_.shape.window_format, scene_.exact_row(s, p).data(), scene_.shape.dim,
                 cache_.window.row(rows.slot, p));
    }
  }
  void fill_row(int32_t row) {
    for (int32_t h = 0; h < scene_.heads; ++h) set_row(q_, row, scene_.query(row, h), h * scene_.shape.dim);
    if (batch_->request_of_row[row] < 0) return;
    const auto s = static_cast<size_t>(batch_->request_of_row[row]);
    const RequestRows& rows = batch_.requests()[s];
    const int32_t position = batch_->positions[row];
    set_row(kv_, row, scene_.forward_row(s, rows, position));
    if (scene_.top_k == 0) return;
    int32_t* selected = selected_.data() + static_cast<int64_t>(row) * scene_.top_k;
    for (const int32_t index : scene_.selection(row, position)) {
      encode_row(scene_.shape.main_format, scene_.main_row(s, index).data(), scene_.shape.dim,
                 cache_.main.row(rows.pages.data(), index));
      *selected++ = index;
    }
  }

  AttentionScene scene_;
  TestBatch& batch_;
  TestCache cache_;
  Rows kv_;
  Rows q_;
  Rows o_;
  std::vector<int32_t> selected_;
  std::vector<float> sink_;
};

class AttentionSuite : public OpSuite {
 protected:
  void attend(AttentionRun& run, int threads = 2) const { attend(run, run.args(), threads); }
  void attend(AttentionRun& run, const SparseAttentionArgs& args, int threads = 2) const {
    run_op(table().sparse_attention, args, run.bounds(), threads);
  }
  void attend_and_expect(AttentionRun& run) const {
    attend(run);
    run.expect_rows(is_bitwise());
  }
  void attend_and_expect(const AttentionScene& scene, TestBatch& batch) const {
    AttentionRun run(scene, batch);
    attend_and_expect(run);
  }
};

inline std::vector<RequestRows> mixed_requests() {
  return {{5, 6, 3, scattered_pages(1, 5)},
          {0, 3, 0, scattered_pages(2, 5)},
          {61, 1, 4, scattered_pages(3, 5)},
          {0, 0, 0, {}},
          {40, 31, 1, scattered_pages(4, 5)}};
}

TEST_P(AttentionSuite, EqualsTheContractInEveryFormat) {
  for (const DType compute : {DType::kBF16, DType::kF32}) {
    for (const bool packed : {false, true}) {
      for (const int32_t top_k : {0, 5, 30}) {
        for (const int32_t ratio : {1, 2}) {
          SCOPED_TRACE(testing::Message() << "f32 " << (compute == DType::kF32) << " packed " << packed << " top_k "
                                          << top_k << " ratio " << ratio);
          AttentionScene scene;
          scene.compute = compute;
          scene.shape.window_format = packed ? RowFormat::kMxfp8 : RowFormat::kBF16;
          scene.shape.main_format = packed ? RowFormat::kCompressed : RowFormat::kBF16;
          scene.shape.dim = 96;
          scene.shape.ratio = ratio;
          scene.top_k = top_k;
          TestBatch batch(mixed_requests(), 3, 2);
          attend_and_expect(scene, batch);
        }
      }
    }
  }
}

// Lengths around the window and around blocks of 64 keys, with a full-size window and a selection of several blocks;
// the last row alone, and in chunks that cross the ring (pitfalls C1).
TEST_P(AttentionSuite, LengthsAroundTheWindow) {
  for (const int32_t ring_slots : {128, 133}) {
    std::vector<RequestRows> requests;
    int32_t salt = 0;
    for (const int32_t length : {0, 1, 63, 64, 127, 128, 129}) {
      if (length > 0) requests.push_back({length - 1, 1, salt % 5, scattered_pages(salt, 5)});
      if (length == 0) requests.push_back({});
      ++salt;
    }
    AttentionScene scene;
    scene.shape.ring_slots = ring_slots;
    scene.shape.page_tokens = 32;
    scene.shape.ratio = 1;
    scene.window = 128;
    scene.top_k = 100;
    // Slots are shared by two of the requests: one batch each.
    for (const RequestRows& rows : requests) {
      TestBatch batch({rows}, 1, 1);
      attend_and_expect(scene, batch);
    }
    TestBatch chunk({{100, 59, 2, scattered_pages(1, 5)}});
    attend_and_expect(scene, chunk);
  }
}

TEST_P(AttentionSuite, PaddingGivesZero) {
  AttentionScene scene;
  scene.top_k = 3;
  for (const int32_t requests : {0, 1, 4}) {
    TestBatch batch({}, 64, requests);
    AttentionRun run(scene, batch);
    attend_and_expect(run);
    for (int64_t row = 0; row < 64; ++row) {
      for (const float value : run.output().row(row)) ASSERT_TRUE(same_bits(value, 0.0f));
    }
  }
  TestBatch nothing({}, 0, 2);
  attend_and_expect(scene, nothing);
}

// No key at all: an empty window and nothing selected, whatever the sink.
TEST_P(AttentionSuite, NoKeyGivesZero) {
  AttentionScene scene;
  scene.top_k = 4;
  scene.window = 0;
  TestBatch batch({{0, 1, 2, scattered_pages(0, 1)}, {0, 4, 3, scattered_pages(1, 1)}});
  AttentionRun run(scene, batch);
  attend_and_expect(run);
  for (const float value : run.output().row(0)) EXPECT_TRUE(same_bits(value, 0.0f));
  const std::vector<float> no_sink(2, -std::numeric_limits<float>::infinity());
  SparseAttentionArgs args = run.args();
  args.sink.data = reinterpret_cast<const std::byte*>(no_sink.data());
  attend(run, args);
  for (const float value : run.output().row(0)) EXPECT_TRUE(same_bits(value, 0.0f));
  // A window that starts above the query.
  scene.window = 13;
  scene.top_k = 0;
  TestBatch late({{3, 2, 2, scattered_pages(0, 1), 9}});
  attend_and_expect(scene, late);
}

TEST_P(AttentionSuite, RingWrapsAtAnyPosition) {
  AttentionScene scene;
  for (const int32_t start : {12, 13, 14, 25, 26, 27, 1000, 1048570}) {
    SCOPED_TRACE(start);
    TestBatch batch({{start, 5, 4, {}}});
    attend_and_expect(scene, batch);
  }
}

// The windows of runtime.md 3.5 as [first, last, rows from the ring] of every row, W = H = 4.
TEST_P(AttentionSuite, ReplayWindows) {
  struct Example {
    const char* name;
    RequestRows rows;
    std::vector<std::array<int32_t, 2>> windows;  // oldest position, first position that this forward gives
  };
  const std::vector<Example> examples = {
      {"A, encoder", {0, 10, 1, {}}, {{0, 0}, {0, 0}, {0, 0}, {0, 0}, {1, 0}, {2, 0}, {3, 0}, {4, 0}, {5, 0}, {6, 0}}},
      {"A, decoder", {6, 4, 1, {}, 6}, {{6, 6}, {6, 6}, {6, 6}, {6, 6}}},
      {"B, encoder", {4, 6, 1, {}, 0, 8}, {{4, 4}, {4, 4}, {4, 4}, {4, 4}, {5, 8}, {6, 8}}},
      {"C, encoder", {4, 5, 1, {}, 4}, {{4, 4}, {4, 4}, {4, 4}, {4, 4}, {5, 4}}},
      {"D, decoder", {10, 4, 1, {}, 10}, {{10, 10}, {10, 10}, {10, 10}, {10, 10}}},
      {"F, encoder", {5, 5, 1, {}}, {{2, 5}, {3, 5}, {4, 5}, {5, 5}, {6, 5}}},
      {"H, encoder", {4, 6, 1, {}, 0, 9}, {{4, 4}, {4, 4}, {4, 4}, {4, 4}, {5, 4}, {6, 9}}},
      // A PAGE shorter than the window: the first row past cached_until still reads rows below the forward.
      {"short PAGE", {6, 4, 1, {}, 0, 8}, {{6, 6}, {6, 6}, {5, 8}, {6, 8}}},
  };
  for (const Example& example : examples) {
    SCOPED_TRACE(example.name);
    AttentionScene scene;
    scene.window = 4;
    scene.shape.ring_slots = 4;
    TestBatch batch({example.rows});
    for (size_t i = 0; i < example.windows.size(); ++i) {
      const WindowSpan span = window_span(example.rows, example.rows.start + static_cast<int32_t>(i), scene.window);
      EXPECT_EQ(span.first, example.windows[i][0]) << i;
      EXPECT_EQ(std::max(span.ring_end, span.first), std::max(example.windows[i][1], example.windows[i][0])) << i;
    }
    attend_and_expect(scene, batch);
  }
}

TEST_P(AttentionSuite, QueryRowsPickRows) {
  AttentionScene scene;
  scene.top_k = 5;
  TestBatch batch(mixed_requests(), 2, 1);
  AttentionRun whole(scene, batch);
  attend_and_expect(whole);
  AttentionRun picked(scene, batch);
  const std::vector<int32_t> rows = {40, -1, 0, 8, 42, 40};
  SparseAttentionArgs args = picked.args();
  args.query_rows = rows.data();
  args.q.rows = args.o.rows = static_cast<int64_t>(rows.size());
  for (size_t r = 0; r < rows.size(); ++r) {
    if (rows[r] >= 0) set_row(picked.queries(), static_cast<int64_t>(r), whole.queries().row(rows[r]));
  }
  attend(picked, args);
  const Row zeros(static_cast<size_t>(args.o.columns), 0.0f);
  for (size_t r = 0; r < rows.size(); ++r) {
    const Row want = rows[r] < 0 ? zeros : whole.output().row(rows[r]);
    expect_same_floats("query " + std::to_string(r), picked.output().row(static_cast<int64_t>(r)), want);
  }
}

// A row alone, in the middle of a batch, and under any number of threads.
TEST_P(AttentionSuite, RowsAndThreadsAreInvariant) {
  AttentionScene scene;
  scene.top_k = 20;
  scene.shape.dim = 64;
  TestBatch batch(mixed_requests(), 1, 1);
  AttentionRun whole(scene, batch);
  attend_and_expect(whole);
  for (const int threads : {1, 3, 5}) {
    AttentionRun again(scene, batch);
    attend(again, threads);
    expect_same_rows(std::to_string(threads) + " threads", again.output(), whole.output());
  }
  for (int32_t row = 0; row < batch->tokens; row += 3) {
    AttentionRun alone(scene, batch);
    SparseAttentionArgs args = alone.args();
    args.query_rows = &row;
    args.q.rows = args.o.rows = 1;
    set_row(alone.queries(), 0, whole.queries().row(row));
    attend(alone, args, 1);
    expect_same_row("row " + std::to_string(row), alone.output(), 0, whole.output(), row);
  }
}

TEST_P(AttentionSuite, PackedPoolGivesTheBitsOfTheBf16Pool) {
  AttentionScene scene;
  scene.shape.dim = 96;
  scene.top_k = 30;
  TestBatch batch(mixed_requests());
  AttentionRun plain(scene, batch);
  attend_and_expect(plain);
  scene.shape.window_format = RowFormat::kMxfp8;
  scene.shape.main_format = RowFormat::kCompressed;
  AttentionRun packed(scene, batch);
  attend_and_expect(packed);
  expect_same_rows("packed", packed.output(), plain.output());
}

// Scores far apart make old blocks vanish; large sinks take all the weight; a sink of -inf is none.
TEST_P(AttentionSuite, ExtremeScoresAndSinks) {
  for (const float magnitude : {1e-6f, 40.0f, 400.0f}) {
    AttentionScene scene;
    scene.top_k = 70;
    scene.shape.ratio = 1;
    scene.magnitude = magnitude;
    TestBatch batch({{75, 4, 1, scattered_pages(4, 5)}});
    AttentionRun run(scene, batch);
    std::vector<float> sinks = {-std::numeric_limits<float>::infinity(), 3000.0f};
    SparseAttentionArgs args = run.args();
    args.sink.data = reinterpret_cast<const std::byte*>(sinks.data());
    attend(run, args);
    for (int32_t row = 0; row < 4; ++row) {
      for (int32_t h = 0; h < 2; ++h) {
        const Row want = literal_attention(part(run.queries(), row, h * 32, 32), run.keys(row),
                                           sinks[static_cast<size_t>(h)], args.scale, scene.compute);
        const Row got = part(run.output(), row, h * 32, 32);
        if (is_bitwise()) expect_same_floats("magnitude " + std::to_string(magnitude), got, want);
        for (const float value : got) ASSERT_TRUE(std::isfinite(value));
      }
    }
  }
}

// What a row leaves in scratch does not reach the next one.
TEST_P(AttentionSuite, NanInAKeyStaysInItsRequest) {
  AttentionScene scene;
  scene.top_k = 5;
  TestBatch batch({{0, 12, 1, scattered_pages(1, 2)}, {0, 12, 2, scattered_pages(2, 2)}});
  AttentionRun clean(scene, batch);
  attend_and_expect(clean);
  AttentionRun run(scene, batch);
  SparseAttentionArgs args = run.args();
  Rows kv = run.keys_of_forward();
  set_row(kv, 5, Row(32, std::numeric_limits<float>::quiet_NaN()));
  args.kv = kv.view(Grid::kMxfp8);
  attend(run, args, 1);
  for (int32_t row = 0; row < 24; ++row) {
    const bool sees_it = row >= 5 && row < 12;
    EXPECT_EQ(std::isnan(run.output().at(row, 0)), sees_it) << row;
    if (!sees_it) expect_same_row("row " + std::to_string(row), run.output(), row, clean.output(), row);
  }
}

TEST_P(AttentionSuite, NanInAQueryStaysInItsHead) {
  AttentionScene scene;
  TestBatch batch({{3, 4, 1, {}}});
  AttentionRun run(scene, batch);
  AttentionRun clean(scene, batch);
  attend_and_expect(clean);
  Row query = run.queries().row(1);
  query[40] = std::numeric_limits<float>::quiet_NaN();
  set_row(run.queries(), 1, query);
  attend(run);
  for (int32_t row = 0; row < 4; ++row) {
    for (int32_t d = 0; d < 64; ++d) {
      const bool poisoned = row == 1 && d >= 32;
      EXPECT_EQ(std::isnan(run.output().at(row, d)), poisoned) << row << " " << d;
      EXPECT_TRUE(poisoned || same_bits(run.output().at(row, d), clean.output().at(row, d)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, AttentionSuite, testing::ValuesIn(tables_under_test()), table_name);

}  // namespace ps::ops::test
