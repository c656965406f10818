// The indexer: quantized queries, scores over the index plane, top-k and candidate blocks. model.md 2.7; runtime.md 5.
//
// Ties: among equal scores the smaller position wins, for rows and for blocks, so a selection does not depend on the
// order of evaluation. Workspace is bounded by top_k and the candidate list, not by the context length.
#pragma once

#include "base/status.h"
#include "ops/batch.h"
#include "ops/cache_views.h"
#include "ops/exec.h"
#include "ops/views.h"

namespace ps::ops {

// Rounds each head's query to the grid of the index format, in place: kFp4 per 32 dims (Q4e), kFp8 one scale per head.
struct IndexQueryQuantizeArgs {
  Activations q;  // [T, heads * dim]
  int32_t heads = 0;
  IndexFormat format = IndexFormat::kFp4;
};
[[nodiscard]] Status check(const IndexQueryQuantizeArgs& args);

// score[j] = rd( sum over heads ascending, plain adds from 0, of rd( relu(rd(dot(q[h], k[j]))) * w[h] ) ), rd() =
// rounding to the compute dtype, dot canonical. Row t sees j < visible_rows(position, ratio).
//   selected[t]: the min(visible, top_k) rows of largest score, ascending, -1 tail; if candidates_in is given
//   (ascending, -1 tail), only the visible rows of those blocks take part.
//   candidates_out[t]: blocks b = rows 8b..8b+7 with the largest max score, the block of the newest visible row always
//   first among them; ascending, -1 tail. Selection itself never uses candidates_out. At most one of the two is given.
// NaN scores count as -inf. A selection holds min(rows that take part, top_k) ids and a candidate list min(blocks,
// candidate_blocks), even when scores are -inf.
struct IndexSelectArgs {
  ConstActivations q;        // [T, heads * dim], on the grid of plane.format
  ConstActivations weights;  // [T, heads]
  const Batch* batch = nullptr;
  IndexPlane plane;
  int32_t heads = 0;
  int32_t top_k = 0;
  int32_t* selected = nullptr;             // [T, top_k]
  const int32_t* candidates_in = nullptr;  // [T, candidate_blocks] or nullptr
  int32_t* candidates_out = nullptr;       // [T, candidate_blocks] or nullptr
  int32_t candidate_blocks = 0;
};
[[nodiscard]] Status check(const IndexSelectArgs& args);

namespace ref {
void index_query_quantize(const IndexQueryQuantizeArgs& args, Exec& exec);
void index_select(const IndexSelectArgs& args, Exec& exec);
}  // namespace ref

}  // namespace ps::ops
