#include "base/macros.h"
#include "ops/attention.h"
#include "ops/check_args.h"
#include "ops/check_views.h"

namespace ps::ops {
namespace {

Status check_selection(const SparseAttentionArgs& args) {
  if (args.plane.base == nullptr) {
    return expect(args.selected == nullptr, "a WINDOW layer has a selection, but no main plane");
  }
  PS_RETURN_IF_ERROR(expect_main_plane(args.plane, args.kv.columns));
  return expect(args.top_k > 0 && (args.selected != nullptr || args.batch->tokens == 0),
                "a layer with a main plane has no selection");
}

Status check_queries(const SparseAttentionArgs& args) {
  const int64_t width = args.heads * args.kv.columns;
  PS_RETURN_IF_ERROR(expect_matrix("q", args.q, args.q.rows, width));
  PS_RETURN_IF_ERROR(expect_matrix("o", args.o, args.q.rows, width));
  PS_RETURN_IF_ERROR(expect_dtype("o", args.o, args.q.dtype));
  PS_RETURN_IF_ERROR(expect_no_grid("o", args.o));
  PS_RETURN_IF_ERROR(expect_apart("q", args.q, "o", args.o));
  PS_RETURN_IF_ERROR(expect_apart("kv", args.kv, "o", args.o));
  if (args.query_rows != nullptr) return {};
  return expect_equal("rows of q", args.q.rows, "rows of the batch", args.batch->tokens);
}

Status check_attention(const SparseAttentionArgs& args) {
  PS_RETURN_IF_ERROR(expect_batch(args.batch, args.plane.base != nullptr));
  PS_RETURN_IF_ERROR(expect_positive("heads", args.heads));
  PS_RETURN_IF_ERROR(expect_matrix("kv", args.kv, args.batch->tokens, args.ring.dim));
  PS_RETURN_IF_ERROR(expect_dtype("kv", args.kv, args.q.dtype));
  PS_RETURN_IF_ERROR(expect(args.kv.grid == Grid::kMxfp8, "kv must be on the MXFP8 grid"));
  PS_RETURN_IF_ERROR(check_queries(args));
  PS_RETURN_IF_ERROR(expect_window_ring(args.ring, args.kv.columns));
  PS_RETURN_IF_ERROR(expect(args.window >= 0, "the window is negative"));
  if (args.ring.ring_slots < args.window) {
    return expect_equal("slots of the window ring", args.ring.ring_slots, "the window", args.window);
  }
  PS_RETURN_IF_ERROR(check_selection(args));
  return expect_vector("sink", args.sink, args.heads);
}

Status check_window_write(const WindowWriteArgs& args) {
  PS_RETURN_IF_ERROR(expect_batch(args.batch, false));
  PS_RETURN_IF_ERROR(expect_matrix("kv", args.kv, args.batch->tokens, args.ring.dim));
  PS_RETURN_IF_ERROR(expect(args.kv.grid == Grid::kMxfp8, "kv must be on the MXFP8 grid"));
  return expect_window_ring(args.ring, args.kv.columns);
}

}  // namespace

Status check(const SparseAttentionArgs& args) { return check_attention(args).with("sparse_attention"); }
Status check(const WindowWriteArgs& args) { return check_window_write(args).with("window_write"); }

}  // namespace ps::ops
