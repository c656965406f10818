// Scalar references of the indexer. Parallel over query rows. Scores stream through bounded heaps, one block of 8 keys
// at a time: nothing grows with the context.
#include <algorithm>
#include <array>
#include <limits>

#include "ops/cache_rows.h"
#include "ops/index_ranking.h"
#include "ops/indexer.h"
#include "ops/numerics.h"
#include "ops/ref_rows.h"
#include "ops/ref_scratch.h"

namespace ps::ops::ref {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

// The best `capacity` entries seen, in memory of that size; the worst of them is on top of the heap.
class BestEntries {
 public:
  BestEntries(Ranked* entries, int64_t capacity) noexcept : entries_(entries), capacity_(capacity) {}

  void offer(Ranked entry) noexcept {
    if (size_ == capacity_) {
      if (capacity_ == 0 || !ranks_before(entry, entries_[0])) return;
      std::pop_heap(entries_, entries_ + size_, ranks_before);
      --size_;
    }
    entries_[size_++] = entry;
    std::push_heap(entries_, entries_ + size_, ranks_before);
  }

  // Writes the ids ascending and returns how many.
  int64_t ids(int32_t* out) const noexcept {
    for (int64_t i = 0; i < size_; ++i) out[i] = entries_[i].id;
    std::sort(out, out + size_);
    return size_;
  }

 private:
  Ranked* entries_;
  int64_t capacity_;
  int64_t size_ = 0;
};

float relu(float x) noexcept { return x < 0.0f ? 0.0f : x; }  // NaN stays

// Scores of rows 8 * block .. + count of one request against query row `row`.
void score_block(const IndexSelectArgs& args, int64_t row, const int32_t* table, int32_t block, int32_t count,
                 float* scores) noexcept {
  const int64_t dim = args.plane.dim;
  const DType compute = args.q.dtype;
  std::array<float, kIndexBlockRows * kMaxIndexDim> keys;
  std::array<float, kMaxIndexDim> query;
  for (int64_t n = 0; n < count; ++n) {
    const int64_t flat_row = args.plane.flat_row(table, static_cast<int64_t>(block) * kIndexBlockRows + n);
    decode_index_key(args.plane, flat_row, keys.data() + n * dim);
    scores[n] = 0.0f;
  }
  for (int64_t h = 0; h < args.heads; ++h) {
    load_values(args.q, row, h * dim, dim, query.data());
    const float weight = load(args.weights, row, h);
    for (int64_t n = 0; n < count; ++n) {
      const float dot = round_to(compute, canonical_dot(query.data(), keys.data() + n * dim, dim));
      scores[n] += round_to(compute, relu(dot) * weight);
    }
  }
  for (int64_t n = 0; n < count; ++n) {
    const float score = round_to(compute, scores[n]);
    scores[n] = score != score ? kLowest : score;
  }
}

void select_row(const IndexSelectArgs& args, int64_t row, Ranked* row_entries, Ranked* block_entries) noexcept {
  const Batch& batch = *args.batch;
  const int32_t request = batch.request_of_row[row];
  if (request < 0) return;
  const int32_t* table = batch.block_tables + request * batch.block_table_stride;
  const int32_t visible = visible_rows(batch.positions[row], args.plane.ratio);
  const int32_t blocks = (visible + kIndexBlockRows - 1) / kIndexBlockRows;
  BestEntries rows(row_entries, args.top_k);
  // The newest block, which has the largest id, is kept whatever its score: it stays out of the heap.
  BestEntries older_blocks(block_entries, args.candidates_out == nullptr ? 0 : args.candidate_blocks - 1);
  const auto visit = [&](int32_t block) {
    std::array<float, kIndexBlockRows> scores;
    const int32_t first = block * kIndexBlockRows;
    const int32_t count = std::min(kIndexBlockRows, visible - first);
    score_block(args, row, table, block, count, scores.data());
    for (int32_t n = 0; n < count; ++n) rows.offer({scores[static_cast<size_t>(n)], first + n});
    if (block + 1 < blocks) older_blocks.offer({*std::max_element(scores.begin(), scores.begin() + count), block});
  };
  if (args.candidates_in == nullptr) {
    for (int32_t block = 0; block < blocks; ++block) visit(block);
  } else {
    const int32_t* candidates = args.candidates_in + row * args.candidate_blocks;
    for (int32_t i = 0; i < args.candidate_blocks && candidates[i] >= 0 && candidates[i] < blocks; ++i) {
      visit(candidates[i]);
    }
  }
  int32_t* selected = args.selected + row * args.top_k;
  std::fill(selected + rows.ids(selected), selected + args.top_k, -1);
  if (args.candidates_out == nullptr) return;
  int32_t* candidates = args.candidates_out + row * args.candidate_blocks;
  int64_t kept = older_blocks.ids(candidates);
  if (blocks > 0) candidates[kept++] = blocks - 1;
  std::fill(candidates + kept, candidates + args.candidate_blocks, -1);
}

}  // namespace

int64_t indexer_scratch_bytes(const ScratchBounds& bounds) noexcept {
  return taken_bytes<Ranked>(bounds.threads * bounds.top_k) +
         taken_bytes<Ranked>(bounds.threads * bounds.candidate_blocks);
}

void index_query_quantize(const IndexQueryQuantizeArgs& args, Exec& exec) {
  const int64_t dim = args.q.columns / args.heads;
  exec.pool.parallel_for(args.q.rows, 1, [&](int64_t begin, int64_t end, int) {
    std::array<float, kMaxIndexDim> query;
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t h = 0; h < args.heads; ++h) {
        load_values(args.q, row, h * dim, dim, query.data());
        fake_quantize_index(args.format, query.data(), dim);
        store_values(args.q, row, h * dim, dim, query.data());
      }
    }
  });
}

void index_select(const IndexSelectArgs& args, Exec& exec) {
  const ScratchScope scope(exec.scratch);
  const int64_t threads = exec.pool.threads();
  const int64_t kept_blocks = args.candidates_out == nullptr ? 0 : args.candidate_blocks;
  auto* row_entries = exec.scratch.take<Ranked>(threads * args.top_k);
  auto* block_entries = exec.scratch.take<Ranked>(threads * kept_blocks);
  exec.pool.parallel_for(args.q.rows, 1, [&](int64_t begin, int64_t end, int worker) {
    for (int64_t row = begin; row < end; ++row) {
      select_row(args, row, row_entries + worker * args.top_k, block_entries + worker * kept_blocks);
    }
  });
}

}  // namespace ps::ops::ref
