// The cache ops of one layer driven together, as a model drives them, on every table under test: pool, stores, rings,
// two index selections (one publishes candidates, one reads them), attention, window write. How a prompt is cut into
// forwards, what shares a forward with it, and drafts that were written and rejected must not change one bit of what it
// computes.
#pragma once

#include <limits>
#include <map>

#include "ops/testing/cache_kit.h"

namespace ps::ops::test {

struct MiniLayer {
  CacheShape shape;
  DType compute = DType::kBF16;
  int32_t heads = 2;
  int32_t index_heads = 2;
  int32_t window = 13;
  int32_t top_k = 6;
  int32_t candidate_blocks = 3;
  int32_t drafts = 0;  // speculated rows per forward

  enum Input : uint64_t { kKv, kQuery, kPending, kScore, kIndexQuery, kReindexQuery, kIndexWeight };
  // The input row of a position; a draft that will be rejected has others.
  [[nodiscard]] Row input(Input kind, size_t request, int32_t position, int64_t size, bool is_wrong) const {
    const uint64_t seed = ((static_cast<uint64_t>(position) * 16 + kind) * 8 + request) * 2 + (is_wrong ? 1 : 0);
    return rounded(kind == kPending || kind == kScore ? DType::kF32 : compute, random_row(seed, size, 2.0f));
  }
};

// What a request computes at a position.
struct MiniOutput {
  Row o;
  std::vector<int32_t> selected;
  std::vector<int32_t> reindexed;
  bool operator==(const MiniOutput& other) const {
    return selected == other.selected && reindexed == other.reindexed && o.size() == other.o.size() &&
           std::equal(o.begin(), o.end(), other.o.begin(), [](float a, float b) { return same_bits(a, b); });
  }
};

struct MiniState {
  explicit MiniState(const MiniLayer& layer_in) : layer(layer_in), cache(layer_in.shape) {}
  MiniLayer layer;
  TestCache cache;
  std::map<std::pair<size_t, int32_t>, MiniOutput> outputs;
};

class MiniLayerSuite : public OpSuite {
 protected:
  struct Step {
    MiniState& state;
    const TestBatch& batch;
    std::vector<int32_t> wrong_from;  // per request; rows at or above it are drafts that will be rejected
    std::vector<CompressedGroup> groups;

    [[nodiscard]] bool is_wrong(int32_t row) const {
      const auto s = static_cast<size_t>(batch->request_of_row[row]);
      return s < wrong_from.size() && batch->positions[row] >= wrong_from[s];
    }
    [[nodiscard]] Rows inputs(MiniLayer::Input kind, int64_t columns, DType dtype) const {
      Rows rows(batch->tokens, columns, dtype);
      for (int32_t row = 0; row < batch->tokens; ++row) {
        if (batch->request_of_row[row] < 0) continue;
        const auto s = static_cast<size_t>(batch->request_of_row[row]);
        set_row(rows, row, state.layer.input(kind, s, batch->positions[row], columns, is_wrong(row)));
      }
      return rows;
    }
    [[nodiscard]] ScratchBounds bounds() const {
      ScratchBounds bounds;
      bounds.tokens = batch->tokens;
      bounds.head_dim = state.layer.shape.dim;
      bounds.heads = state.layer.heads;
      bounds.top_k = state.layer.top_k;
      bounds.candidate_blocks = state.layer.candidate_blocks;
      bounds.window = state.layer.window;
      return bounds;
    }
  };

  // One forward; outputs of rows that are not drafts to be rejected are recorded.
  void forward(MiniState& state, const TestBatch& batch, const std::vector<int32_t>& wrong_from = {}) const {
    const MiniLayer& layer = state.layer;
    Step step{state, batch, wrong_from, batch.groups(layer.shape.ratio)};
    compress(step);
    const auto size = static_cast<size_t>(batch->tokens);
    std::vector<int32_t> selected(size * static_cast<size_t>(layer.top_k), -1);
    std::vector<int32_t> reindexed(selected.size(), -1);
    std::vector<int32_t> candidates(size * static_cast<size_t>(layer.candidate_blocks), -1);
    select(step, MiniLayer::kIndexQuery, selected.data(), nullptr, candidates.data());
    select(step, MiniLayer::kReindexQuery, reindexed.data(), candidates.data(), nullptr);
    const Rows o = attend(step, reindexed.data());
    for (int32_t row = 0; row < batch->tokens; ++row) {
      if (batch->request_of_row[row] < 0 || step.is_wrong(row)) continue;
      const auto first = static_cast<size_t>(row * layer.top_k);
      const auto last = first + static_cast<size_t>(layer.top_k);
      const auto s = static_cast<size_t>(batch->request_of_row[row]);
      state.outputs[{s, batch->positions[row]}] = {
          o.row(row),
          {selected.begin() + static_cast<int64_t>(first), selected.begin() + static_cast<int64_t>(last)},
          {reindexed.begin() + static_cast<int64_t>(first), reindexed.begin() + static_cast<int64_t>(last)}};
    }
  }

  // Runs prompts of these lengths, `chunk` rows of each per forward.
  void run_in_chunks(MiniState& state, const std::vector<int32_t>& lengths, int32_t chunk, int32_t first = 0) const {
    const int32_t longest = *std::max_element(lengths.begin(), lengths.end());
    for (int32_t start = first; start < longest; start += chunk) {
      std::vector<RequestRows> requests;
      for (size_t s = 0; s < lengths.size(); ++s) {
        requests.push_back(rows_of(s, start, std::clamp(lengths[s] - start, 0, chunk)));
      }
      forward(state, TestBatch(requests, 2, 1));
    }
  }
  static RequestRows rows_of(size_t request, int32_t start, int32_t count) {
    const auto salt = static_cast<int32_t>(request);
    return {start, count, 3 - salt, scattered_pages(salt + 1, 5)};
  }
  static void expect_same_outputs(const MiniState& got, const MiniState& want) {
    ASSERT_EQ(got.outputs.size(), want.outputs.size());
    for (const auto& [where, output] : want.outputs) {
      ASSERT_TRUE(got.outputs.at(where) == output) << "request " << where.first << " position " << where.second;
    }
  }

 private:
  void compress(const Step& step) const {
    const MiniLayer& layer = step.state.layer;
    const auto count = static_cast<int32_t>(step.groups.size());
    Rows latent(count, layer.shape.dim, layer.compute);
    const Rows kv = step.inputs(MiniLayer::kPending, layer.shape.dim, DType::kF32);
    const Rows score = step.inputs(MiniLayer::kScore, layer.shape.dim, DType::kF32);
    TestCache& cache = step.state.cache;
    if (layer.shape.ratio == 1) {
      for (int32_t g = 1; g < count; ++g) set_row(latent, g, kv.row(step.groups[static_cast<size_t>(g)].row));
    } else {
      run_op(table().compressor_pool,
             CompressorPoolArgs{kv.view(), score.view(), step.batch.get(), step.groups.data(), count, cache.compressor,
                                latent.view()},
             step.bounds());
      const auto rows = step.batch.ring_rows(std::max(layer.shape.ratio, 1 + layer.drafts));
      run_op(table().compressor_ring_write,
             CompressorRingWriteArgs{kv.view(), score.view(), step.batch.get(), rows.data(),
                                     static_cast<int32_t>(rows.size()), cache.compressor},
             step.bounds());
    }
    run_op(table().compressed_store,
           CompressedStoreArgs{latent.view(), step.batch.get(), step.groups.data(), count, cache.main}, step.bounds());
    Rows key(count, layer.shape.index_dim, layer.compute);
    for (int32_t g = 1; g < count; ++g) set_row(key, g, part(latent, g, 0, layer.shape.index_dim));
    run_op(table().index_key_store,
           IndexKeyStoreArgs{key.view(), step.batch.get(), step.groups.data(), count, cache.index}, step.bounds());
  }

  void select(const Step& step, MiniLayer::Input kind, int32_t* selected, const int32_t* in, int32_t* out) const {
    const MiniLayer& layer = step.state.layer;
    Rows q = step.inputs(kind, int64_t{layer.index_heads} * layer.shape.index_dim, layer.compute);
    const Rows weights = step.inputs(MiniLayer::kIndexWeight, layer.index_heads, layer.compute);
    run_op(table().index_query_quantize, IndexQueryQuantizeArgs{q.view(), layer.index_heads, layer.shape.index_format},
           step.bounds());
    run_op(table().index_select,
           IndexSelectArgs{q.view(), weights.view(), step.batch.get(), step.state.cache.index, layer.index_heads,
                           layer.top_k, selected, in, out, layer.candidate_blocks},
           step.bounds());
  }

  [[nodiscard]] Rows attend(const Step& step, const int32_t* selected) const {
    const MiniLayer& layer = step.state.layer;
    const Rows q = step.inputs(MiniLayer::kQuery, int64_t{layer.heads} * layer.shape.dim, layer.compute);
    Rows kv = step.inputs(MiniLayer::kKv, layer.shape.dim, layer.compute);
    for (int32_t row = 0; row < step.batch->tokens; ++row) {
      if (step.batch->request_of_row[row] >= 0) set_row(kv, row, on_mxfp8_grid(kv.row(row)));
    }
    const std::vector<float> sinks(static_cast<size_t>(layer.heads), 0.25f);
    Rows o(step.batch->tokens, int64_t{layer.heads} * layer.shape.dim, layer.compute);
    SparseAttentionArgs args;
    args.q = q.view();
    args.kv = kv.view(Grid::kMxfp8);
    args.batch = step.batch.get();
    args.ring = step.state.cache.window;
    args.plane = step.state.cache.main;
    args.selected = selected;
    args.top_k = layer.top_k;
    args.sink = {reinterpret_cast<const std::byte*>(sinks.data()), DType::kF32, layer.heads};
    args.scale = 1.0f / std::sqrt(static_cast<float>(layer.shape.dim));
    args.heads = layer.heads;
    args.window = layer.window;
    args.o = o.view();
    run_op(table().sparse_attention, args, step.bounds());
    run_op(table().window_write, WindowWriteArgs{args.kv, step.batch.get(), step.state.cache.window}, step.bounds());
    return o;
  }
};

inline std::vector<MiniLayer> mini_layers() {
  std::vector<MiniLayer> layers;
  for (const int32_t ratio : {1, 2}) {
    for (const bool packed : {false, true}) {
      MiniLayer layer;
      layer.shape.ratio = ratio;
      layer.shape.window_format = packed ? RowFormat::kMxfp8 : RowFormat::kBF16;
      layer.shape.main_format = packed ? RowFormat::kCompressed : RowFormat::kBF16;
      layer.shape.index_format = packed ? IndexFormat::kFp8 : IndexFormat::kFp4;
      layer.shape.compressor_slots = 2;
      layer.compute = packed == (ratio == 1) ? DType::kF32 : DType::kBF16;
      layers.push_back(layer);
    }
  }
  return layers;
}

TEST_P(MiniLayerSuite, ChunksDoNotChangeABit) {
  const std::vector<int32_t> lengths = {70, 45, 1};
  for (const MiniLayer& layer : mini_layers()) {
    MiniState whole(layer);
    run_in_chunks(whole, lengths, 70);
    for (const auto& [where, output] : whole.outputs) {
      for (const float value : output.o) ASSERT_TRUE(std::isfinite(value)) << where.second;
    }
    for (const int32_t chunk : {1, 2, 3, 7, 13, 14, 16}) {
      SCOPED_TRACE(testing::Message() << "ratio " << layer.shape.ratio << " chunk " << chunk);
      MiniState cut(layer);
      run_in_chunks(cut, lengths, chunk);
      expect_same_outputs(cut, whole);
    }
  }
}

TEST_P(MiniLayerSuite, CompanionsDoNotChangeABit) {
  for (const MiniLayer& layer : mini_layers()) {
    MiniState together(layer);
    run_in_chunks(together, {40, 33}, 9);
    MiniState apart(layer);
    run_in_chunks(apart, {0, 33}, 33);
    run_in_chunks(apart, {40, 0}, 40);
    expect_same_outputs(apart, together);
  }
}

TEST_P(MiniLayerSuite, PoolFormatsGiveEqualBits) {
  MiniLayer layer;
  layer.shape.compressor_slots = 2;
  MiniState plain(layer);
  run_in_chunks(plain, {70, 45}, 7);
  layer.shape.window_format = RowFormat::kMxfp8;
  layer.shape.main_format = RowFormat::kCompressed;
  MiniState packed(layer);
  run_in_chunks(packed, {70, 45}, 7);
  expect_same_outputs(packed, plain);
}

// A verify block of one committed row and five drafts, of which `accepted` rows hold: the rest is computed again from
// there. Rings with a slack of five rows lose nothing; without it the rejected rows overwrite rows that are still read,
// and this test must see it (runtime.md 1.4).
TEST_P(MiniLayerSuite, RejectedDraftsLeaveNothingBehind) {
  for (const bool has_slack : {true, false}) {
    for (MiniLayer layer : mini_layers()) {
      layer.drafts = 5;
      layer.shape.ring_slots = layer.window + (has_slack ? 5 : 0);
      layer.shape.compressor_slots = 2 + 5;
      MiniLayer straight_layer = layer;
      straight_layer.shape.ring_slots = layer.window + 5;
      MiniState straight(straight_layer);
      run_in_chunks(straight, {50}, 50);
      for (int32_t accepted = 1; accepted <= 6; ++accepted) {
        MiniState state(layer);
        run_in_chunks(state, {31}, 31);
        for (int32_t at = 31; at < 50; at += accepted) {
          const int32_t count = std::min(6, 50 - at);
          forward(state, TestBatch({rows_of(0, at, count)}), {at + accepted});
        }
        if (has_slack) expect_same_outputs(state, straight);
        // The first rejected row overwrites a position that just left the window; the others hurt.
        if (!has_slack && accepted < 5) {
          bool differs = false;
          for (const auto& [where, output] : straight.outputs) differs |= !(state.outputs.at(where) == output);
          EXPECT_TRUE(differs) << "accepted " << accepted;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, MiniLayerSuite, testing::ValuesIn(tables_under_test()), table_name);

}  // namespace ps::ops::test
