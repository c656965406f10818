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
constexpr int64_t kRowsTogether = 4;                          // rows that share decoded keys
constexpr float kLowest = -std::numeric_limits<float>::infinity();

// An object of its own type, which the algorithms inline.
constexpr auto kRanksBefore = [](const Ranked& a, const Ranked& b) { return ops::ranks_before(a, b); };

// The best `capacity` entries of those offered in ascending order of ids, in room for twice as many.
class Best {
 public:
  Best() noexcept = default;
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
  Ranked* entries_ = nullptr;
  int64_t capacity_ = 0;
  int64_t size_ = 0;
  float worst_ = kLowest;
  bool is_full_ = false;
};

// One thread's room.
struct Workspace {
  std::byte* query;  // packed heads of each row
  uint16_t* keys;    // [kStepKeys, dim]
  float* tile;       // [kPanelGroup][kStepHeads][kPanel]
  float* weights;    // [kRowsTogether][kStepHeads]
};

// Of one row in any layout, or of kRowsTogether rows as BF16.
int64_t query_bytes() noexcept {
  return std::max(packed_bound(kStepHeads, ops::kMaxIndexDim), kRowsTogether * kStepHeads * ops::kMaxIndexDim * 2);
}

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

// The kernel of its own applies: all heads are packed at once, in whole groups.
bool is_fused(const Kernels& kernels, const ops::IndexSelectArgs& args) noexcept {
  return kernels.score_keys != nullptr && args.q.dtype == DType::kBF16 && args.heads <= kStepHeads &&
         args.heads % kScoreHeads == 0 && args.plane.dim <= kChunk * kBlock;
}

// Scores of up to kRowsTogether rows of one request, or, if not fused, of one row.
class Scorer {
 public:
  Scorer(const Kernels& kernels, const ops::IndexSelectArgs& args, const Row* rows, int64_t row_count,
         const Workspace& work) noexcept
      : kernels_(kernels),
        args_(args),
        rows_(rows),
        row_count_(row_count),
        work_(work),
        multiplier_(multiplier_for(kernels, args.q.dtype, ops::WeightFormat::kBF16)),
        is_fused_(is_fused(kernels, args)),
        query_stride_(is_fused_ ? multiplier_.packed_bytes(args.heads, args.plane.dim) : 0) {
    if (args.heads > kStepHeads) return;
    for (int64_t r = 0; r < row_count; ++r) pack(r, 0, args.heads);
  }

  // scores[r][i * 8 + n] of row n of the i-th of `count` flat blocks. Rows past the visible ones give anything.
  void score(const int64_t* blocks, int64_t count, float* scores) const {
    if (is_fused_) {
      kernels_.score_keys({args_.plane, blocks, count, work_.query, query_stride_, work_.weights, kStepHeads,
                           row_count_, args_.heads, scores, kStepKeys, reinterpret_cast<std::byte*>(work_.keys)});
    } else {
      multiply(blocks, count, scores);
    }
    for (int64_t r = 0; r < row_count_; ++r) {
      for (int64_t n = r * kStepKeys; n < r * kStepKeys + count * kIndexBlockRows; ++n) {
        const float score = ops::round_to(args_.q.dtype, scores[n]);
        scores[n] = score != score ? kLowest : score;
      }
    }
  }

 private:
  void multiply(const int64_t* blocks, int64_t count, float* scores) const {
    kernels_.rows.decode_keys({args_.plane, blocks, count, work_.keys});
    std::fill_n(scores, kStepKeys, 0.0f);
    for (int64_t first = 0; first < args_.heads; first += kStepHeads) {
      const int64_t heads = std::min(kStepHeads, args_.heads - first);
      if (args_.heads > kStepHeads) pack(0, first, heads);
      MultiplyArgs multiply;
      multiply.w.format = ops::WeightFormat::kBF16;
      multiply.w.rows = count * kIndexBlockRows;
      multiply.w.columns = args_.plane.dim;
      multiply.w.data = reinterpret_cast<const std::byte*>(work_.keys);
      multiply.packed = work_.query;
      multiply.count = heads;
      multiply.tile = work_.tile;
      multiply.panels = (multiply.w.rows + kPanel - 1) / kPanel;
      multiplier_.multiply(multiply);
      for (int64_t p = 0; p < multiply.panels; ++p) {
        kernels_.rows.weigh_scores(
            {work_.tile + p * heads * kPanel, work_.weights, heads, args_.q.dtype != DType::kF32, scores + p * kPanel});
      }
    }
  }

  // Heads [first, first + heads) of row r.
  void pack(int64_t r, int64_t first, int64_t heads) const {
    const int64_t row = rows_[r].row;
    const auto* q = static_cast<const std::byte*>(args_.q.data);
    PackArgs pack;
    pack.x = q + (row * args_.q.stride + first * args_.plane.dim) * dtype_bytes(args_.q.dtype);
    pack.is_f32 = args_.q.dtype == DType::kF32;
    pack.stride = pack.columns = args_.plane.dim;
    pack.count = pack.end = heads;
    pack.packed = work_.query + r * query_stride_;
    multiplier_.pack(pack);
    for (int64_t h = 0; h < heads; ++h) work_.weights[r * kStepHeads + h] = load(args_.weights, row, first + h);
  }

  const Kernels& kernels_;
  const ops::IndexSelectArgs& args_;
  const Row* rows_;
  int64_t row_count_;
  const Workspace& work_;
  const Multiplier& multiplier_;
  bool is_fused_;
  int64_t query_stride_;
};

// The best of one row.
struct Collected {
  Best rows;
  Best blocks;
};

// Scores of `count` blocks of the row's list, from its entry `at` on.
void offer(const Row& row, int64_t at, int64_t count, const float* scores, Collected& best) noexcept {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t block = row.candidates == nullptr ? at + i : row.candidates[at + i];
    const auto first = static_cast<int32_t>(block * kIndexBlockRows);
    const int32_t rows_here = std::min(kIndexBlockRows, row.visible - first);
    const float* of_block = scores + i * kIndexBlockRows;
    const float top = *std::max_element(of_block, of_block + rows_here);
    for (int32_t n = 0; n < rows_here && best.rows.takes(top); ++n) best.rows.offer(of_block[n], first + n);
    if (block + 1 < row.blocks) best.blocks.offer(top, static_cast<int32_t>(block));
  }
}

// Scores blocks [begin, end) of the list of each row, as far as it goes. REQUIRES: the rows share a list, but for its
// length.
void collect(const Kernels& kernels, const ops::IndexSelectArgs& args, const Row* rows, int64_t row_count,
             int64_t begin, int64_t end, const Workspace& work, Part* parts) {
  const Scorer scorer(kernels, args, rows, row_count, work);
  Collected best[kRowsTogether];
  for (int64_t r = 0; r < row_count; ++r) {
    best[r] = {Best(parts[r].rows, args.top_k), Best(parts[r].blocks, older_capacity(args))};
  }
  alignas(64) float scores[kRowsTogether * kStepKeys];
  int64_t flat[kStepBlocks];
  for (int64_t at = begin; at < end; at += kStepBlocks) {
    const int64_t count = std::min(kStepBlocks, end - at);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t block = rows[0].candidates == nullptr ? at + i : rows[0].candidates[at + i];
      flat[i] = args.plane.flat_row(rows[0].table, block * kIndexBlockRows) / kIndexBlockRows;
    }
    scorer.score(flat, count, scores);
    for (int64_t r = 0; r < row_count; ++r) {
      offer(rows[r], at, std::min(count, rows[r].count - at), scores + r * kStepKeys, best[r]);
    }
  }
  for (int64_t r = 0; r < row_count; ++r) {
    parts[r].row_count = best[r].rows.finish();
    parts[r].block_count = best[r].blocks.finish();
  }
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

// Rows [begin, end), at most kRowsTogether at a time.
void select_rows(const Kernels& kernels, const ops::IndexSelectArgs& args, int64_t begin, int64_t end,
                 const Workspace& work, Part* parts) {
  const int64_t most = is_fused(kernels, args) && args.candidates_in == nullptr ? kRowsTogether : 1;
  const int32_t* requests = args.batch->request_of_row;
  for (int64_t first = begin; first < end;) {
    Row rows[kRowsTogether];
    int64_t count = 0;
    int64_t blocks = 0;
    do {
      rows[count] = row_of(args, first + count);
      blocks = std::max(blocks, rows[count++].count);
    } while (count < most && first + count < end && requests[first + count] == requests[first]);
    collect(kernels, args, rows, count, 0, blocks, work, parts);
    for (int64_t r = 0; r < count; ++r) finish_row(args, rows[r], parts + r, 1);
    first += count;
  }
}

// Parts that a row is cut into, at most.
int64_t most_parts(int64_t rows, int64_t threads) noexcept {
  return std::max<int64_t>(1, 2 * threads / std::max<int64_t>(1, rows));
}

}  // namespace

int64_t index_select_scratch_bytes(const ops::ScratchBounds& bounds) noexcept {
  // Rows that a thread selects together have a part each, a cut row has one for each of its parts.
  const int64_t parts = kRowsTogether * int64_t{bounds.threads};
  return taken_bytes<Part>(parts) + taken_bytes<Ranked>(parts * 2 * bounds.top_k) +
         taken_bytes<Ranked>(parts * 2 * bounds.candidate_blocks) +
         taken_bytes<std::byte>(bounds.threads * query_bytes()) +
         taken_bytes<uint16_t>(bounds.threads * kStepKeys * ops::kMaxIndexDim) +
         taken_bytes<float>(bounds.threads * kStepKeys * kStepHeads) +
         taken_bytes<float>(bounds.threads * kRowsTogether * kStepHeads);
}

void index_select(const Kernels& kernels, const ops::IndexSelectArgs& args, ops::Exec& exec) {
  const ops::ScratchScope scope(exec.scratch);
  const int64_t threads = exec.pool.threads();
  const int64_t row_room = 2 * int64_t{args.top_k};
  const int64_t block_room = 2 * older_capacity(args);
  const int64_t part_count = kRowsTogether * threads;
  auto* parts = exec.scratch.take<Part>(part_count);
  auto* row_entries = exec.scratch.take<Ranked>(part_count * row_room);
  auto* block_entries = exec.scratch.take<Ranked>(part_count * block_room);
  for (int64_t i = 0; i < part_count; ++i) {
    parts[i] = {row_entries + i * row_room, block_entries + i * block_room, 0, 0};
  }
  std::byte* query = exec.scratch.take_bytes(threads * query_bytes());
  auto* keys = exec.scratch.take<uint16_t>(threads * kStepKeys * args.plane.dim);
  auto* tiles = exec.scratch.take<float>(threads * kStepKeys * kStepHeads);
  auto* weights = exec.scratch.take<float>(threads * kRowsTogether * kStepHeads);
  const auto workspace = [&](int64_t worker) {
    return Workspace{query + worker * query_bytes(), keys + worker * kStepKeys * args.plane.dim,
                     tiles + worker * kStepKeys * kStepHeads, weights + worker * kRowsTogether * kStepHeads};
  };
  const int64_t rows = args.q.rows;
  const int64_t cuts = most_parts(rows, threads);
  if (cuts == 1) {
    const int64_t grain = std::clamp<int64_t>(rows / (2 * threads), 1, kRowsTogether);
    exec.pool.parallel_for(rows, grain, [&](int64_t begin, int64_t end, int worker) {
      select_rows(kernels, args, begin, end, workspace(worker), parts + worker * kRowsTogether);
    });
    return;
  }
  exec.pool.parallel_for(rows * cuts, 1, [&](int64_t begin, int64_t end, int worker) {
    for (int64_t at = begin; at < end; ++at) {
      const Row row = row_of(args, at / cuts);
      const int64_t size = std::max(kPartBlocks, (row.count + cuts - 1) / cuts);
      const int64_t first = std::min(row.count, at % cuts * size);
      collect(kernels, args, &row, 1, first, std::min(row.count, first + size), workspace(worker), parts + at);
    }
  });
  for (int64_t r = 0; r < rows; ++r) finish_row(args, row_of(args, r), parts + r * cuts, cuts);
}

}  // namespace ps::cpu
