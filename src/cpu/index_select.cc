// The indexer: keys are decoded 256 at a time and multiplied with all heads of a query, scores run through a bounded
// collection. Rows are cut over threads; where there are fewer rows than threads, so are the keys of a row, each part
// keeps its own best, and the caller merges the parts: the order of a selection is total, so the cut cannot show.
#include <algorithm>
#include <limits>

#include "base/macros.h"
#include "cpu/drivers.h"
#include "ops/cache_rows.h"
#include "ops/index_ranking.h"
#include "ops/ref_scratch.h"

namespace ps::cpu {
namespace {

using ops::kIndexBlockRows;
using ops::Ranked;
using ops::ref::taken_bytes;

constexpr int64_t kStepKeys = kPanelGroup * kPanel;           // scored at a time
constexpr int64_t kStepBlocks = kStepKeys / kIndexBlockRows;  // blocks of keys
constexpr int64_t kStepHeads = 64;                            // heads that are packed at a time
constexpr int64_t kPartBlocks = 512;                          // least part of a row's keys
constexpr float kLowest = -std::numeric_limits<float>::infinity();

// An object of its own type, which the algorithms inline.
constexpr auto kRanksBefore = [](const Ranked& a, const Ranked& b) { return ops::ranks_before(a, b); };

// The best `capacity` entries of those offered in ascending order of ids, in room for twice as many.
class Best {
 public:
  Best(Ranked* entries, int64_t capacity) noexcept : entries_(entries), capacity_(capacity) {}

  void offer(float score, int32_t id) noexcept {
    // Among equals the earlier id stays.
    if (!takes(score) || capacity_ == 0) return;
    entries_[size_++] = {score, id};
    if (size_ == 2 * capacity_) {
      shrink();
      worst_ = entries_[capacity_ - 1].score;
      is_full_ = true;
    }
  }
  // False if offering no more than `score` changes nothing.
  [[nodiscard]] bool takes(float score) const noexcept { return !is_full_ || score > worst_; }
  // Leaves the best at the front of the entries, in any order; how many.
  [[nodiscard]] int64_t finish() noexcept {
    if (size_ > capacity_) shrink();
    return size_;
  }

 private:
  void shrink() noexcept {
    std::nth_element(entries_, entries_ + capacity_ - 1, entries_ + size_, kRanksBefore);
    size_ = capacity_;
  }
  Ranked* entries_;
  int64_t capacity_;
  int64_t size_ = 0;
  float worst_ = kLowest;
  bool is_full_ = false;
};

// One thread's room.
struct Workspace {
  std::byte* query;  // packed heads
  uint16_t* keys;    // [kStepKeys, dim]
  float* tile;       // [kPanelGroup][kStepHeads][kPanel]
  std::byte* work;   // of the multiplier
  float* weights;    // [kStepHeads]
};

int64_t query_bytes() noexcept { return packed_bound(kStepHeads, ops::kMaxIndexDim); }

// What a part of a row's keys leaves.
struct Part {
  Ranked* rows;    // [2 * top_k]
  Ranked* blocks;  // [2 * older blocks]
  int64_t row_count;
  int64_t block_count;
};

struct Row {
  int64_t row = 0;
  const int32_t* table = nullptr;
  int32_t visible = 0;
  int64_t blocks = 0;                   // of visible rows
  const int32_t* candidates = nullptr;  // ascending, or nullptr: all blocks
  int64_t count = 0;                    // blocks to score
};

Row row_of(const ops::IndexSelectArgs& args, int64_t row) noexcept {
  const ops::Batch& batch = *args.batch;
  Row r;
  r.row = row;
  const int32_t request = batch.request_of_row[row];
  if (request < 0) return r;
  r.table = batch.block_tables + request * batch.block_table_stride;
  r.visible = ops::visible_rows(batch.positions[row], args.plane.ratio);
  r.blocks = (r.visible + kIndexBlockRows - 1) / kIndexBlockRows;
  r.count = r.blocks;
  if (args.candidates_in == nullptr) return r;
  r.candidates = args.candidates_in + row * args.candidate_blocks;
  r.count = 0;
  while (r.count < args.candidate_blocks && r.candidates[r.count] >= 0 && r.candidates[r.count] < r.blocks) ++r.count;
  return r;
}

int64_t older_capacity(const ops::IndexSelectArgs& args) noexcept {
  // The newest block, which has the largest id, is kept whatever its score: it takes no part.
  return args.candidates_out == nullptr ? 0 : args.candidate_blocks - 1;
}

class Scorer {
 public:
  Scorer(const Kernels& kernels, const ops::IndexSelectArgs& args, const Row& row, const Workspace& work) noexcept
      : kernels_(kernels),
        args_(args),
        row_(row),
        work_(work),
        multiplier_(multiplier_for(kernels, args.q.dtype, ops::WeightFormat::kBF16)),
        is_fused_(kernels.score_keys != nullptr && args.q.dtype == DType::kBF16 && args.heads <= kStepHeads &&
                  args.heads % kScoreHeads == 0) {
    if (args.heads <= kStepHeads) pack(0, args.heads);
  }

  // scores[i * 8 + n] of row n of the i-th of `count` flat blocks. Rows past the visible ones give anything.
  void score(const int64_t* blocks, int64_t count, float* scores) const {
    if (is_fused_) kernels_.score_keys(fused_args(blocks, count, scores));
    else multiply(blocks, count, scores);
    for (int64_t n = 0; n < count * kIndexBlockRows; ++n) {
      const float score = ops::round_to(args_.q.dtype, scores[n]);
      scores[n] = score != score ? kLowest : score;
    }
  }

 private:
  [[nodiscard]] ScoreKeysArgs fused_args(const int64_t* blocks, int64_t count, float* scores) const {
    return {args_.plane,   blocks,      count,  work_.query,
            work_.weights, args_.heads, scores, reinterpret_cast<std::byte*>(work_.keys)};
  }

  void multiply(const int64_t* blocks, int64_t count, float* scores) const {
    kernels_.rows.decode_keys({args_.plane, blocks, count, work_.keys});
    std::fill_n(scores, kStepKeys, 0.0f);
    for (int64_t first = 0; first < args_.heads; first += kStepHeads) {
      const int64_t heads = std::min(kStepHeads, args_.heads - first);
      if (args_.heads > kStepHeads) pack(first, heads);
      MultiplyArgs multiply;
      multiply.w.format = ops::WeightFormat::kBF16;
      multiply.w.rows = count * kIndexBlockRows;
      multiply.w.columns = args_.plane.dim;
      multiply.w.data = reinterpret_cast<const std::byte*>(work_.keys);
      multiply.packed = work_.query;
      multiply.count = heads;
      multiply.tile = work_.tile;
      multiply.panels = (multiply.w.rows + kPanel - 1) / kPanel;
      multiply.work = work_.work;
      multiplier_.multiply(multiply);
      const float* weights = work_.weights;
      for (int64_t p = 0; p < multiply.panels; ++p) {
        kernels_.rows.weigh_scores(
            {work_.tile + p * heads * kPanel, weights, heads, args_.q.dtype != DType::kF32, scores + p * kPanel});
      }
    }
  }

  void pack(int64_t first, int64_t heads) const {
    const auto* q = static_cast<const std::byte*>(args_.q.data);
    PackArgs pack;
    pack.x = q + (row_.row * args_.q.stride + first * args_.plane.dim) * dtype_bytes(args_.q.dtype);
    pack.is_f32 = args_.q.dtype == DType::kF32;
    pack.stride = pack.columns = args_.plane.dim;
    pack.count = pack.end = heads;
    pack.packed = work_.query;
    multiplier_.pack(pack);
    for (int64_t h = 0; h < heads; ++h) work_.weights[h] = load(args_.weights, row_.row, first + h);
  }

  const Kernels& kernels_;
  const ops::IndexSelectArgs& args_;
  const Row& row_;
  const Workspace& work_;
  const Multiplier& multiplier_;
  bool is_fused_;  // all heads are packed, in whole groups
};

// Scores blocks [begin, end) of the row's list.
void collect(const Kernels& kernels, const ops::IndexSelectArgs& args, const Row& row, int64_t begin, int64_t end,
             const Workspace& work, Part& part) {
  const Scorer scorer(kernels, args, row, work);
  Best rows(part.rows, args.top_k);
  Best blocks(part.blocks, older_capacity(args));
  alignas(64) float scores[kStepKeys];
  int64_t flat[kStepBlocks];
  for (int64_t at = begin; at < end; at += kStepBlocks) {
    const int64_t count = std::min(kStepBlocks, end - at);
    const auto block_of = [&](int64_t i) { return row.candidates == nullptr ? at + i : row.candidates[at + i]; };
    for (int64_t i = 0; i < count; ++i) {
      flat[i] = args.plane.flat_row(row.table, block_of(i) * kIndexBlockRows) / kIndexBlockRows;
    }
    scorer.score(flat, count, scores);
    for (int64_t i = 0; i < count; ++i) {
      const auto first = static_cast<int32_t>(block_of(i) * kIndexBlockRows);
      const int32_t rows_here = std::min(kIndexBlockRows, row.visible - first);
      const float* of_block = scores + i * kIndexBlockRows;
      const float top = *std::max_element(of_block, of_block + rows_here);
      for (int32_t n = 0; n < rows_here && rows.takes(top); ++n) rows.offer(of_block[n], first + n);
      if (block_of(i) + 1 < row.blocks) blocks.offer(top, static_cast<int32_t>(block_of(i)));
    }
  }
  part.row_count = rows.finish();
  part.block_count = blocks.finish();
}

// The best `capacity` of `count` entries as ascending ids; how many.
int64_t write_ids(Ranked* entries, int64_t count, int64_t capacity, int32_t* out) noexcept {
  if (count > capacity && capacity > 0) {
    std::nth_element(entries, entries + capacity - 1, entries + count, kRanksBefore);
  }
  const int64_t kept = std::min(count, capacity);
  for (int64_t i = 0; i < kept; ++i) out[i] = entries[i].id;
  std::sort(out, out + kept);
  return kept;
}

// Merges the parts of a row, whose entries it moves together.
void finish_row(const ops::IndexSelectArgs& args, const Row& row, Part* parts, int64_t count) noexcept {
  if (row.table == nullptr && args.batch->request_of_row[row.row] < 0) return;
  int64_t rows = parts[0].row_count;
  int64_t blocks = parts[0].block_count;
  for (int64_t i = 1; i < count; ++i) {
    std::copy_n(parts[i].rows, parts[i].row_count, parts[0].rows + rows);
    std::copy_n(parts[i].blocks, parts[i].block_count, parts[0].blocks + blocks);
    rows += parts[i].row_count;
    blocks += parts[i].block_count;
  }
  int32_t* selected = args.selected + row.row * args.top_k;
  std::fill(selected + write_ids(parts[0].rows, rows, args.top_k, selected), selected + args.top_k, -1);
  if (args.candidates_out == nullptr) return;
  int32_t* candidates = args.candidates_out + row.row * args.candidate_blocks;
  int64_t kept = write_ids(parts[0].blocks, blocks, older_capacity(args), candidates);
  if (row.blocks > 0) candidates[kept++] = static_cast<int32_t>(row.blocks - 1);
  std::fill(candidates + kept, candidates + args.candidate_blocks, -1);
}

// Parts that a row is cut into, at most.
int64_t most_parts(int64_t rows, int64_t threads) noexcept {
  return std::max<int64_t>(1, 2 * threads / std::max<int64_t>(1, rows));
}

}  // namespace

int64_t index_select_scratch_bytes(const Kernels& kernels, const ops::ScratchBounds& bounds) noexcept {
  // Whole rows have a part for each thread, a cut row one for each of its parts.
  const int64_t parts = 2 * int64_t{bounds.threads};
  return taken_bytes<Part>(parts) + taken_bytes<Ranked>(parts * 2 * bounds.top_k) +
         taken_bytes<Ranked>(parts * 2 * bounds.candidate_blocks) +
         taken_bytes<std::byte>(bounds.threads * query_bytes()) +
         taken_bytes<uint16_t>(bounds.threads * kStepKeys * ops::kMaxIndexDim) +
         taken_bytes<float>(bounds.threads * kStepKeys * kStepHeads) +
         taken_bytes<std::byte>(bounds.threads * work_bytes(kernels)) + taken_bytes<float>(bounds.threads * kStepHeads);
}

void index_select(const Kernels& kernels, const ops::IndexSelectArgs& args, ops::Exec& exec) {
  const ops::ScratchScope scope(exec.scratch);
  const int64_t threads = exec.pool.threads();
  const int64_t row_room = 2 * int64_t{args.top_k};
  const int64_t block_room = 2 * older_capacity(args);
  auto* parts = exec.scratch.take<Part>(2 * threads);
  auto* row_entries = exec.scratch.take<Ranked>(2 * threads * row_room);
  auto* block_entries = exec.scratch.take<Ranked>(2 * threads * block_room);
  for (int64_t i = 0; i < 2 * threads; ++i) {
    parts[i] = {row_entries + i * row_room, block_entries + i * block_room, 0, 0};
  }
  std::byte* query = exec.scratch.take_bytes(threads * query_bytes());
  auto* keys = exec.scratch.take<uint16_t>(threads * kStepKeys * args.plane.dim);
  auto* tiles = exec.scratch.take<float>(threads * kStepKeys * kStepHeads);
  std::byte* work = exec.scratch.take_bytes(threads * work_bytes(kernels));
  auto* weights = exec.scratch.take<float>(threads * kStepHeads);
  const auto workspace = [&](int64_t worker) {
    return Workspace{query + worker * query_bytes(), keys + worker * kStepKeys * args.plane.dim,
                     tiles + worker * kStepKeys * kStepHeads, work + worker * work_bytes(kernels),
                     weights + worker * kStepHeads};
  };
  const int64_t rows = args.q.rows;
  const int64_t cuts = most_parts(rows, threads);
  if (cuts == 1) {
    exec.pool.parallel_for(rows, 1, [&](int64_t begin, int64_t end, int worker) {
      for (int64_t r = begin; r < end; ++r) {
        const Row row = row_of(args, r);
        collect(kernels, args, row, 0, row.count, workspace(worker), parts[worker]);
        finish_row(args, row, parts + worker, 1);
      }
    });
    return;
  }
  exec.pool.parallel_for(rows * cuts, 1, [&](int64_t begin, int64_t end, int worker) {
    for (int64_t at = begin; at < end; ++at) {
      const Row row = row_of(args, at / cuts);
      const int64_t size = std::max(kPartBlocks, (row.count + cuts - 1) / cuts);
      const int64_t first = std::min(row.count, at % cuts * size);
      collect(kernels, args, row, first, std::min(row.count, first + size), workspace(worker), parts[at]);
    }
  });
  for (int64_t r = 0; r < rows; ++r) finish_row(args, row_of(args, r), parts + r * cuts, cuts);
}

}  // namespace ps::cpu
