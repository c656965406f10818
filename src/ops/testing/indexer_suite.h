// The indexer on every table under test: quantized queries, and selections against a sort of all scores.
//
// Scenes of small integers have exact scores in any order of summation and many ties; they hold for every table. Scenes
// of random values hold for tables that compute in the canonical order.
#pragma once

#include <set>

#include "ops/testing/cache_kit.h"

namespace ps::ops::test {

struct IndexScene {
  CacheShape shape;
  DType compute = DType::kBF16;
  int32_t heads = 2;
  int32_t top_k = 5;
  int32_t candidate_blocks = 0;
  bool has_small_integers = true;
  uint64_t seed = 1;

  [[nodiscard]] Row values(uint64_t at) const {
    if (!has_small_integers) return rounded(compute, random_row(seed + at, shape.index_dim, 3.0f));
    Pcg64 random(seed + at);
    Row row(static_cast<size_t>(shape.index_dim));
    for (float& value : row) {
      value = random.uniform() < 0.7 ? 0.0f : static_cast<float>(random.integer(0, 4)) - 1.0f;
    }
    return row;
  }
  [[nodiscard]] Row key(size_t request, int32_t index) const {
    return on_index_grid(shape.index_format, values(100000 * (request + 1) + static_cast<uint64_t>(index)));
  }
  [[nodiscard]] Row query(int32_t row, int32_t head) const {
    return on_index_grid(shape.index_format, values(9000000 + static_cast<uint64_t>(row * heads + head)));
  }
  [[nodiscard]] float weight(int32_t row, int32_t head) const {
    Pcg64 random(seed + 8000000 + static_cast<uint64_t>(row * heads + head));
    if (has_small_integers) return static_cast<float>(random.integer(0, 4)) - 1.0f;
    return round_to(compute, static_cast<float>(random.uniform() - 0.3));
  }
};

// One index_select call over a plane that holds the visible keys and is poison elsewhere.
class IndexRun {
 public:
  IndexRun(const IndexScene& scene, const TestBatch& batch)
      : scene_(scene),
        batch_(batch),
        cache_(scene.shape),
        q_(batch->tokens, scene.heads * scene.shape.index_dim, scene.compute),
        weights_(batch->tokens, scene.heads, scene.compute),
        selected_(static_cast<size_t>(batch->tokens * scene.top_k), kUntouched),
        candidates_(static_cast<size_t>(batch->tokens * scene.candidate_blocks), kUntouched) {
    for (size_t s = 0; s < batch.requests().size(); ++s) {
      const RequestRows& rows = batch.requests()[s];
      for (int32_t j = 0; j < visible_rows(rows.start + rows.count - 1, scene.shape.ratio) && rows.count > 0; ++j) {
        set_key(s, j, scene.key(s, j));
      }
    }
    for (int32_t row = 0; row < batch->tokens; ++row) {
      for (int32_t h = 0; h < scene.heads; ++h) {
        set_query(row, h, scene.query(row, h));
        weights_.set(row, h, scene.weight(row, h));
      }
    }
  }

  void set_key(size_t request, int32_t index, const Row& key) {
    const int32_t* pages = batch_.requests()[request].pages.data();
    encode_index_key(cache_.index, cache_.index.flat_row(pages, index), key.data());
    keys_.resize(std::max(keys_.size(), request + 1));
    keys_[request].resize(std::max(keys_[request].size(), static_cast<size_t>(index) + 1));
    keys_[request][static_cast<size_t>(index)] = key;
  }
  void set_query(int32_t row, int32_t head, const Row& query) {
    set_row(q_, row, query, head * scene_.shape.index_dim);
  }
  Rows& weights() { return weights_; }

  [[nodiscard]] IndexSelectArgs args() {
    IndexSelectArgs args;
    args.q = q_.view();
    args.weights = weights_.view();
    args.batch = batch_.get();
    args.plane = cache_.index;
    args.heads = scene_.heads;
    args.top_k = scene_.top_k;
    args.selected = selected_.data();
    args.candidate_blocks = scene_.candidate_blocks;
    if (scene_.candidate_blocks > 0) args.candidates_out = candidates_.data();
    return args;
  }
  // Nothing here is as long as the context.
  [[nodiscard]] ScratchBounds bounds() const {
    ScratchBounds bounds;
    bounds.tokens = std::max(batch_->tokens, 1);
    bounds.top_k = scene_.top_k;
    bounds.candidate_blocks = scene_.candidate_blocks;
    return bounds;
  }

  // The score of every visible row, in the contract's words.
  [[nodiscard]] Row scores(int32_t row) const {
    const FlushSubnormals flush;
    Row result;
    const auto s = static_cast<size_t>(batch_->request_of_row[row]);
    const int32_t visible = visible_rows(batch_->positions[row], scene_.shape.ratio);
    for (int32_t j = 0; j < visible; ++j) {
      float total = 0;
      for (int32_t h = 0; h < scene_.heads; ++h) {
        const Row q = part(q_, row, h * scene_.shape.index_dim, scene_.shape.index_dim);
        float dot = round_to(scene_.compute, contract_dot(q, keys_[s][static_cast<size_t>(j)]));
        if (dot < 0) dot = 0;
        total = total + round_to(scene_.compute, dot * weights_.at(row, h));
      }
      total = round_to(scene_.compute, total);
      result.push_back(std::isnan(total) ? -std::numeric_limits<float>::infinity() : total);
    }
    return result;
  }
  // The best `count` of the pairs (score, id), ids ascending, filled up with -1.
  static std::vector<int32_t> best(std::vector<std::pair<float, int32_t>> entries, int32_t count) {
    std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first > b.first : a.second < b.second;
    });
    std::vector<int32_t> ids;
    for (const auto& entry : entries) ids.push_back(entry.second);
    ids.resize(std::min(ids.size(), static_cast<size_t>(count)));
    std::sort(ids.begin(), ids.end());
    ids.resize(static_cast<size_t>(count), -1);
    return ids;
  }
  // `candidates`: blocks that take part; nullptr: all.
  [[nodiscard]] std::vector<int32_t> want_selected(int32_t row,
                                                   const std::vector<int32_t>* candidates = nullptr) const {
    if (batch_->request_of_row[row] < 0) return std::vector<int32_t>(static_cast<size_t>(scene_.top_k), kUntouched);
    const Row all = scores(row);
    std::vector<std::pair<float, int32_t>> entries;
    for (int32_t j = 0; j < static_cast<int32_t>(all.size()); ++j) {
      const bool takes_part = candidates == nullptr || std::count(candidates->begin(), candidates->end(), j / 8) > 0;
      if (takes_part) entries.emplace_back(all[static_cast<size_t>(j)], j);
    }
    return best(entries, scene_.top_k);
  }
  [[nodiscard]] std::vector<int32_t> want_candidates(int32_t row) const {
    const auto size = static_cast<size_t>(scene_.candidate_blocks);
    if (batch_->request_of_row[row] < 0) return std::vector<int32_t>(size, kUntouched);
    const Row all = scores(row);
    std::vector<int32_t> kept;
    if (all.empty()) return std::vector<int32_t>(size, -1);
    const auto newest = static_cast<int32_t>((all.size() - 1) / 8);
    std::vector<std::pair<float, int32_t>> entries;
    for (int32_t block = 0; block < newest; ++block) {
      const auto first = all.begin() + block * 8;
      entries.emplace_back(*std::max_element(first, first + 8), block);
    }
    for (const int32_t id : best(entries, scene_.candidate_blocks - 1)) {
      if (id >= 0) kept.push_back(id);
    }
    kept.push_back(newest);
    kept.resize(size, -1);
    return kept;
  }

  [[nodiscard]] std::vector<int32_t> selected(int32_t row) const { return slice(selected_, row, scene_.top_k); }
  [[nodiscard]] std::vector<int32_t> candidates(int32_t row) const {
    return slice(candidates_, row, scene_.candidate_blocks);
  }
  void expect_rows() const {
    for (int32_t row = 0; row < batch_->tokens; ++row) {
      ASSERT_EQ(selected(row), want_selected(row)) << "row " << row;
      if (scene_.candidate_blocks == 0) continue;
      ASSERT_EQ(candidates(row), want_candidates(row)) << "row " << row;
    }
  }
  static constexpr int32_t kUntouched = -77;

 private:
  static std::vector<int32_t> slice(const std::vector<int32_t>& ids, int32_t row, int32_t count) {
    return {ids.begin() + row * count, ids.begin() + (row + 1) * count};
  }

  IndexScene scene_;
  const TestBatch& batch_;
  TestCache cache_;
  Rows q_;
  Rows weights_;
  std::vector<std::vector<Row>> keys_;
  std::vector<int32_t> selected_;
  std::vector<int32_t> candidates_;
};

class IndexSelectSuite : public OpSuite {
 protected:
  void select(IndexRun& run, int threads = 2) const { select(run, run.args(), threads); }
  void select(IndexRun& run, const IndexSelectArgs& args, int threads = 2) const {
    run_op(table().index_select, args, run.bounds(), threads);
  }
};

TEST_P(IndexSelectSuite, EqualsASortOfAllScores) {
  for (const bool has_small_integers : {true, false}) {
    if (!has_small_integers && !is_bitwise()) continue;
    for (const IndexFormat format : {IndexFormat::kFp4, IndexFormat::kFp8}) {
      for (const int32_t ratio : {1, 2}) {
        for (const int32_t top_k : {1, 5, 16, 64}) {
          for (const int32_t candidate_blocks : {0, 1, 3, 8}) {
            for (const DType compute : {DType::kBF16, DType::kF32}) {
              IndexScene scene;
              scene.shape.index_format = format;
              scene.shape.ratio = ratio;
              scene.compute = compute;
              scene.top_k = top_k;
              scene.candidate_blocks = candidate_blocks;
              scene.has_small_integers = has_small_integers;
              SCOPED_TRACE(testing::Message()
                           << "fp8 " << (format == IndexFormat::kFp8) << " ratio " << ratio << " top_k " << top_k
                           << " blocks " << candidate_blocks << " exact " << has_small_integers);
              const TestBatch batch({{0, 10, 0, scattered_pages(1, 1)},
                                     {77, 3, 3, scattered_pages(2, 5)},
                                     {0, 0, 0, {}},
                                     {33, 9, 1, scattered_pages(3, 4)}},
                                    3, 1);
              IndexRun run(scene, batch);
              select(run);
              run.expect_rows();
            }
          }
        }
      }
    }
  }
}

// The scratch that a table asks for knows no context length, and a run over many rows stays within it. With many scores
// close to each other, every rounding of the contract decides some selection.
TEST_P(IndexSelectSuite, LongContextInBoundedScratch) {
  for (const bool has_small_integers : {true, false}) {
    if (!has_small_integers && !is_bitwise()) continue;
    IndexScene scene;
    scene.shape.page_tokens = 128;
    scene.shape.ratio = 1;
    scene.shape.index_dim = 64;
    scene.heads = 8;
    scene.top_k = 100;
    scene.candidate_blocks = 7;
    scene.has_small_integers = has_small_integers;
    const TestBatch batch({{630, 6, 3, scattered_pages(2, 5)}});
    IndexRun run(scene, batch);
    select(run);
    run.expect_rows();
  }
}

TEST_P(IndexSelectSuite, OnlyCandidateBlocksTakePart) {
  for (const IndexFormat format : {IndexFormat::kFp4, IndexFormat::kFp8}) {
    IndexScene scene;
    scene.shape.index_format = format;
    scene.shape.ratio = 1;
    scene.candidate_blocks = 4;
    for (const int32_t top_k : {3, 20, 64}) {
      scene.top_k = top_k;
      const TestBatch batch({{52, 5, 3, scattered_pages(2, 5)}, {2, 1, 1, scattered_pages(4, 1)}}, 1);
      const std::vector<std::vector<int32_t>> lists = {{0, 3, 6, -1}, {6, -1, -1, -1}, {-1, -1, -1, -1}, {1, 2, 3, 6},
                                                       {0, 4, 5, 6},  {0, -1, -1, -1}, {3, 4, 5, 6}};
      std::vector<int32_t> flat;
      for (const auto& list : lists) flat.insert(flat.end(), list.begin(), list.end());
      IndexRun run(scene, batch);
      IndexSelectArgs args = run.args();
      args.candidates_out = nullptr;
      args.candidates_in = flat.data();
      select(run, args);
      for (int32_t row = 0; row < batch->tokens; ++row) {
        EXPECT_EQ(run.selected(row), run.want_selected(row, &lists[static_cast<size_t>(row)])) << "row " << row;
      }
    }
  }
}

// runtime.md 5: the number of rows that a candidate list names, the last block being partly filled.
TEST_P(IndexSelectSuite, CandidateRowCounts) {
  struct Vector {
    std::vector<int32_t> candidates;
    int32_t visible;
    int64_t rows;
  };
  for (const Vector& vector : {Vector{{1, 4, 6}, 53, 21}, Vector{{1, 4, 6}, 48, 16}, Vector{{0, -1, -1}, 3, 3}}) {
    IndexScene scene;
    scene.shape.ratio = 1;
    scene.top_k = 64;
    scene.candidate_blocks = 3;
    const TestBatch batch({{vector.visible - 1, 1, 3, scattered_pages(2, 5)}});
    IndexRun run(scene, batch);
    IndexSelectArgs args = run.args();
    args.candidates_out = nullptr;
    args.candidates_in = vector.candidates.data();
    select(run, args);
    const std::vector<int32_t> ids = run.selected(0);
    EXPECT_EQ(std::count_if(ids.begin(), ids.end(), [](int32_t id) { return id >= 0; }), vector.rows);
    for (const int32_t id : ids) EXPECT_LT(id, vector.visible);
  }
}

// pitfalls C7: equal scores give the smallest positions, and the newest block is among the candidates all the same.
TEST_P(IndexSelectSuite, EqualScoresGiveTheSmallestPositions) {
  for (const float equal : {0.0f, 1.0f}) {
    IndexScene scene;
    scene.shape.ratio = 1;
    scene.candidate_blocks = 3;
    const TestBatch batch({{32, 1, 3, scattered_pages(2, 3)}});
    IndexRun run(scene, batch);
    for (int32_t j = 0; j < 33; ++j) run.set_key(0, j, Row(32, equal));
    for (int32_t h = 0; h < 2; ++h) run.set_query(0, h, Row(32, equal));
    select(run);
    EXPECT_EQ(run.selected(0), (std::vector<int32_t>{0, 1, 2, 3, 4}));
    EXPECT_EQ(run.candidates(0), (std::vector<int32_t>{0, 1, 4}));
  }
}

// The newest block holds the worst score of all and stays.
TEST_P(IndexSelectSuite, NewestBlockIsAlwaysACandidate) {
  IndexScene scene;
  scene.shape.ratio = 1;
  scene.candidate_blocks = 2;
  const TestBatch batch({{25, 1, 3, scattered_pages(2, 3)}});
  IndexRun run(scene, batch);
  for (int32_t j = 0; j < 26; ++j) run.set_key(0, j, Row(32, j < 24 ? static_cast<float>(j / 8 + 1) : -4.0f));
  for (int32_t h = 0; h < 2; ++h) run.set_query(0, h, Row(32, 1.0f)), run.weights().set(0, h, 1.0f);
  select(run);
  EXPECT_EQ(run.candidates(0), (std::vector<int32_t>{2, 3}));
  for (int32_t h = 0; h < 2; ++h) run.weights().set(0, h, std::numeric_limits<float>::infinity());
  select(run);
  EXPECT_EQ(run.candidates(0), (std::vector<int32_t>{0, 3}));  // older blocks tie at infinity
}

TEST_P(IndexSelectSuite, NanScoresAreTheWorstAndStillFillTheSelection) {
  for (const IndexFormat format : {IndexFormat::kFp4, IndexFormat::kFp8}) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    IndexScene scene;
    scene.shape.index_format = format;
    scene.shape.ratio = 1;
    scene.candidate_blocks = 2;
    scene.top_k = 20;
    const TestBatch batch({{16, 2, 3, scattered_pages(2, 3)}, {16, 1, 1, scattered_pages(3, 3)}});
    IndexRun run(scene, batch);
    for (const int32_t j : {0, 3, 8, 9}) run.set_key(0, j, Row(32, nan));
    run.set_query(2, 1, Row(32, nan));
    run.weights().set(2, 1, 1.0f);
    select(run);
    run.expect_rows();
    EXPECT_EQ(run.selected(0), run.selected(2));  // all 17 rows, whatever they score
    EXPECT_EQ(run.candidates(2), (std::vector<int32_t>{0, 2}));
    IndexScene few = scene;
    few.top_k = 13;
    IndexRun fewer(few, batch);
    for (const int32_t j : {0, 3, 8, 9}) fewer.set_key(0, j, Row(32, nan));
    select(fewer);
    fewer.expect_rows();
    EXPECT_EQ(fewer.selected(0), (std::vector<int32_t>{1, 2, 4, 5, 6, 7, 10, 11, 12, 13, 14, 15, 16}));
  }
}

TEST_P(IndexSelectSuite, MinusInfinityStillFillsTheSelection) {
  IndexScene scene;
  scene.shape.ratio = 1;
  scene.candidate_blocks = 2;
  const TestBatch batch({{20, 1, 3, scattered_pages(2, 3)}});
  IndexRun run(scene, batch);
  for (int32_t h = 0; h < 2; ++h) run.weights().set(0, h, -std::numeric_limits<float>::infinity());
  select(run);
  EXPECT_EQ(run.selected(0), (std::vector<int32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(run.candidates(0), (std::vector<int32_t>{0, 2}));
}

TEST_P(IndexSelectSuite, PaddingStaysUntouched) {
  for (const int32_t requests : {0, 3}) {
    IndexScene scene;
    scene.candidate_blocks = 2;
    const TestBatch batch({}, 8, requests);
    IndexRun run(scene, batch);
    select(run);
    run.expect_rows();
  }
}

TEST_P(IndexSelectSuite, RowsAndThreadsAreInvariant) {
  IndexScene scene;
  scene.shape.ratio = 1;
  scene.has_small_integers = false;
  scene.candidate_blocks = 3;
  scene.heads = 4;
  const TestBatch batch({{0, 20, 0, scattered_pages(1, 2)}, {60, 6, 3, scattered_pages(2, 5)}}, 1);
  IndexRun whole(scene, batch);
  select(whole);
  for (const int threads : kThreadCounts) {
    IndexRun again(scene, batch);
    select(again, threads);
    for (int32_t row = 0; row < 26; ++row) {
      EXPECT_EQ(again.selected(row), whole.selected(row));
      EXPECT_EQ(again.candidates(row), whole.candidates(row));
    }
  }
  for (int32_t row = 20; row < 26; ++row) {
    IndexScene same = scene;
    const TestBatch alone({{}, {40 + row, 1, 3, scattered_pages(2, 5)}});
    IndexRun run(same, alone);
    for (int32_t h = 0; h < scene.heads; ++h) {
      run.set_query(0, h, scene.query(row, h));
      run.weights().set(0, h, scene.weight(row, h));
    }
    select(run, 1);
    EXPECT_EQ(run.selected(0), whole.selected(row));
    EXPECT_EQ(run.candidates(0), whole.candidates(row));
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, IndexSelectSuite, testing::ValuesIn(tables_under_test()), table_name);

class IndexQuerySuite : public OpSuite {};

TEST_P(IndexQuerySuite, RoundsEachHeadToItsGrid) {
  for (const IndexFormat format : {IndexFormat::kFp4, IndexFormat::kFp8}) {
    for (const DType compute : {DType::kBF16, DType::kF32}) {
      for (const int threads : kThreadCounts) {
        Rows q(4, 3 * 128, compute);
        for (int64_t row = 0; row < 4; ++row) {
          for (int64_t h = 0; h < 3; ++h) {
            const float magnitude = std::ldexp(1.0f, static_cast<int>(7 * h - 5 * row));
            set_row(q, row, random_row(static_cast<uint64_t>(row * 3 + h), 128, magnitude), h * 128);
          }
        }
        set_row(q, 3, Row(128, 0.0f), 128);
        set_row(q, 3, Row(1, std::numeric_limits<float>::quiet_NaN()), 256 + 40);
        const Rows before = q;
        run_op(table().index_query_quantize, IndexQueryQuantizeArgs{q.view(), 3, format}, ScratchBounds{}, threads);
        for (int64_t row = 0; row < 4; ++row) {
          for (int64_t h = 0; h < 3; ++h) {
            expect_same_floats("head", part(q, row, h * 128, 128),
                               on_index_grid(format, part(before, row, h * 128, 128)));
          }
        }
        EXPECT_TRUE(q.gaps_intact());
        EXPECT_TRUE(std::isnan(q.at(3, 256 + 33)));
        EXPECT_FALSE(std::isnan(q.at(3, 255)));
        const Rows once = q;
        run_op(table().index_query_quantize, IndexQueryQuantizeArgs{q.view(), 3, format}, ScratchBounds{}, threads);
        expect_same_rows("a second time", q, once);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, IndexQuerySuite, testing::ValuesIn(tables_under_test()), table_name);

}  // namespace ps::ops::test
