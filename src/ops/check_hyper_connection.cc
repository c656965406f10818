#include "base/macros.h"
#include "ops/check_args.h"
#include "ops/check_views.h"
#include "ops/hyper_connection.h"

namespace ps::ops {
namespace {

Status check_mix(const HcMixArgs& args) {
  PS_RETURN_IF_ERROR(expect_positive("columns of h", args.h.columns));
  PS_RETURN_IF_ERROR(expect_multiple("columns of h", args.h.columns, kStreams));
  PS_RETURN_IF_ERROR(expect_matrix("h", args.h, args.h.rows, args.h.columns));
  PS_RETURN_IF_ERROR(expect(args.fn.format == WeightFormat::kF32, "fn is not F32"));
  PS_RETURN_IF_ERROR(expect_weight("fn", args.fn, kMixes, args.h.columns));
  PS_RETURN_IF_ERROR(expect_vector("base", args.base, kMixes));
  PS_RETURN_IF_ERROR(expect_vector("scale", args.scale, 3));
  PS_RETURN_IF_ERROR(expect(args.norm_eps >= 0 && args.eps >= 0, "an eps is negative"));
  PS_RETURN_IF_ERROR(expect_positive("iterations", args.iterations));
  PS_RETURN_IF_ERROR(expect_array("pre", args.pre, args.h.rows));
  PS_RETURN_IF_ERROR(expect_array("post", args.post, args.h.rows));
  return expect_array("combine", args.combine, args.h.rows);
}

Status check_collapse(const HcCollapseArgs& args) {
  PS_RETURN_IF_ERROR(expect_matrix("h", args.h, args.h.rows, kStreams * args.x.columns));
  PS_RETURN_IF_ERROR(expect_matrix("x", args.x, args.x.rows, args.x.columns));
  if (args.rows == nullptr) {
    PS_RETURN_IF_ERROR(expect_equal("rows of x", args.x.rows, "rows of h", args.h.rows));
  }
  PS_RETURN_IF_ERROR(expect_array("pre", args.pre, args.x.rows));
  PS_RETURN_IF_ERROR(expect_no_grid("x", args.x));
  return expect_apart("h", args.h, "x", args.x);
}

Status check_expand(const HcExpandArgs& args) {
  PS_RETURN_IF_ERROR(expect_matrix("y", args.y, args.y.rows, args.y.columns));
  PS_RETURN_IF_ERROR(expect_matrix("h", args.h, args.y.rows, kStreams * args.y.columns));
  PS_RETURN_IF_ERROR(expect_array("post", args.post, args.y.rows));
  PS_RETURN_IF_ERROR(expect_array("combine", args.combine, args.y.rows));
  PS_RETURN_IF_ERROR(expect_no_grid("h", args.h));
  return expect_apart("y", args.y, "h", args.h);
}

}  // namespace

Status check(const HcMixArgs& args) { return check_mix(args).with("hc_mix"); }
Status check(const HcCollapseArgs& args) { return check_collapse(args).with("hc_collapse"); }
Status check(const HcExpandArgs& args) { return check_expand(args).with("hc_expand"); }

}  // namespace ps::ops
