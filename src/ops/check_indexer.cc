#include "base/macros.h"
#include "ops/check_args.h"
#include "ops/check_views.h"
#include "ops/indexer.h"

namespace ps::ops {
namespace {

Status check_quantize(const IndexQueryQuantizeArgs& args) {
  PS_RETURN_IF_ERROR(expect_positive("heads", args.heads));
  PS_RETURN_IF_ERROR(expect_multiple("columns of q", args.q.columns, args.heads));
  PS_RETURN_IF_ERROR(expect_index_dim(args.q.columns / args.heads));
  return expect_matrix("q", args.q, args.q.rows, args.q.columns);
}

Status check_select(const IndexSelectArgs& args) {
  PS_RETURN_IF_ERROR(expect_batch(args.batch, true));
  PS_RETURN_IF_ERROR(expect_positive("heads", args.heads));
  PS_RETURN_IF_ERROR(expect_index_plane(args.plane));
  const int64_t rows = args.batch->tokens;
  PS_RETURN_IF_ERROR(expect_matrix("q", args.q, rows, int64_t{args.heads} * args.plane.dim));
  PS_RETURN_IF_ERROR(expect_matrix("weights", args.weights, rows, args.heads));
  PS_RETURN_IF_ERROR(expect_dtype("weights", args.weights, args.q.dtype));
  PS_RETURN_IF_ERROR(expect_positive("top_k", args.top_k));
  PS_RETURN_IF_ERROR(expect_array("selected", args.selected, rows));
  PS_RETURN_IF_ERROR(expect(args.candidates_in == nullptr || args.candidates_out == nullptr,
                            "candidates are read or published, not both"));
  const bool has_candidates = args.candidates_in != nullptr || args.candidates_out != nullptr;
  return has_candidates ? expect_positive("candidate_blocks", args.candidate_blocks) : Status();
}

}  // namespace

Status check(const IndexQueryQuantizeArgs& args) { return check_quantize(args).with("index_query_quantize"); }
Status check(const IndexSelectArgs& args) { return check_select(args).with("index_select"); }

}  // namespace ps::ops
