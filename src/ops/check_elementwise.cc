#include "base/macros.h"
#include "ops/check_args.h"
#include "ops/check_views.h"
#include "ops/elementwise.h"

namespace ps::ops {
namespace {

Status check_embed(const EmbedArgs& args) {
  PS_RETURN_IF_ERROR(expect_plain_weight("w", args.w, args.w.rows, args.w.columns));
  PS_RETURN_IF_ERROR(expect_positive("streams", args.streams));
  PS_RETURN_IF_ERROR(expect_matrix("h", args.h, args.h.rows, args.streams * args.w.columns));
  PS_RETURN_IF_ERROR(expect_no_grid("h", args.h));
  return expect_array("ids", args.ids, args.h.rows);
}

Status check_norm(const RmsNormArgs& args) {
  PS_RETURN_IF_ERROR(expect_positive("columns of x", args.x.columns));
  PS_RETURN_IF_ERROR(expect_matrix("x", args.x, args.x.rows, args.x.columns));
  PS_RETURN_IF_ERROR(expect_matrix("y", args.y, args.x.rows, args.x.columns));
  PS_RETURN_IF_ERROR(expect_vector("w", args.w, args.x.columns));
  PS_RETURN_IF_ERROR(expect(args.eps >= 0, "eps is negative"));
  PS_RETURN_IF_ERROR(expect_no_grid("y", args.y));
  return expect_same_or_apart("x", args.x, "y", args.y);
}

Status check_rope(const RopeArgs& args) {
  PS_RETURN_IF_ERROR(expect_positive("heads", args.heads));
  PS_RETURN_IF_ERROR(expect_matrix("x", args.x, args.x.rows, args.x.columns));
  PS_RETURN_IF_ERROR(expect_multiple("columns of x", args.x.columns, args.heads));
  if (args.pairs < 0 || 2 * int64_t{args.pairs} > args.x.columns / args.heads) {
    return Status::invalid(check_detail(args.pairs, "pairs do not fit into a head of", args.x.columns / args.heads));
  }
  PS_RETURN_IF_ERROR(expect_no_grid("x", args.x));
  PS_RETURN_IF_ERROR(expect_array("positions", args.positions, args.x.rows));
  return expect_array("inverse_frequency", args.inverse_frequency, args.pairs);
}

Status check_scale(const ScaleArgs& args) {
  PS_RETURN_IF_ERROR(expect_matrix("x", args.x, args.x.rows, args.x.columns));
  PS_RETURN_IF_ERROR(expect_matrix("y", args.y, args.x.rows, args.x.columns));
  PS_RETURN_IF_ERROR(expect_no_grid("y", args.y));
  return expect_same_or_apart("x", args.x, "y", args.y);
}

Status check_compact(const CompactRowsArgs& args) {
  PS_RETURN_IF_ERROR(expect(args.count >= 0, "count is negative"));
  PS_RETURN_IF_ERROR(expect_positive("row_bytes", args.row_bytes));
  PS_RETURN_IF_ERROR(expect_array("data", args.data, args.count));
  return expect_array("rows", args.rows, args.count);
}

}  // namespace

Status check(const EmbedArgs& args) { return check_embed(args).with("embed"); }
Status check(const RmsNormArgs& args) { return check_norm(args).with("rms_norm"); }
Status check(const RopeArgs& args) { return check_rope(args).with("rope"); }
Status check(const ScaleArgs& args) { return check_scale(args).with("scale"); }
Status check(const CompactRowsArgs& args) { return check_compact(args).with("compact_rows"); }

}  // namespace ps::ops
