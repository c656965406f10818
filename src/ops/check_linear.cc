#include "base/macros.h"
#include "base/quantize.h"
#include "ops/check_args.h"
#include "ops/check_views.h"
#include "ops/linear.h"

namespace ps::ops {
namespace {

// y is in the compute dtype, which is x's, or F32 for the unquantized kinds with F32 outputs.
Status check_output_dtype(const ConstActivations& x, const Weight& w, const Activations& y) {
  if (y.dtype == x.dtype) return {};
  if (y.dtype == DType::kF32) return expect(!is_quantized(w.format), "y is F32 and x BF16, but w is quantized");
  return Status::invalid("y is BF16, but x is F32");
}

Status check_linear(const LinearArgs& args) {
  PS_RETURN_IF_ERROR(expect_weight("w", args.w));
  PS_RETURN_IF_ERROR(expect_equal("columns of x", args.x.columns, "columns of w", args.w.columns));
  PS_RETURN_IF_ERROR(expect_matrix("x", args.x, args.x.rows, args.w.columns));
  PS_RETURN_IF_ERROR(expect_matrix("y", args.y, args.x.rows, args.w.rows));
  PS_RETURN_IF_ERROR(expect_input_grid("x", args.x, "w", args.w));
  PS_RETURN_IF_ERROR(expect_no_grid("y", args.y));
  PS_RETURN_IF_ERROR(check_output_dtype(args.x, args.w, args.y));
  return expect_apart("x", args.x, "y", args.y);
}

Status check_grouped(const GroupedLinearArgs& args) {
  PS_RETURN_IF_ERROR(expect_weight("w", args.w));
  PS_RETURN_IF_ERROR(expect_positive("groups", args.groups));
  PS_RETURN_IF_ERROR(expect_multiple("rows of w", args.w.rows, args.groups));
  if (args.w.format == WeightFormat::kFp8Block32) {
    PS_RETURN_IF_ERROR(expect_multiple("rows of w per group", args.w.rows / args.groups, kMxGroup));
  }
  PS_RETURN_IF_ERROR(expect_matrix("x", args.x, args.x.rows, args.groups * args.w.columns));
  PS_RETURN_IF_ERROR(expect_matrix("y", args.y, args.x.rows, args.w.rows));
  PS_RETURN_IF_ERROR(expect(args.x.grid == Grid::kNone, "x is on the MXFP8 grid, but is never quantized"));
  PS_RETURN_IF_ERROR(expect_no_grid("y", args.y));
  PS_RETURN_IF_ERROR(expect_dtype("y", args.y, args.x.dtype));
  return expect_apart("x", args.x, "y", args.y);
}

Status check_quantize(const QuantizeMxfp8Args& args) {
  PS_RETURN_IF_ERROR(expect_matrix("x", args.x, args.x.rows, args.x.columns));
  PS_RETURN_IF_ERROR(expect_matrix("y", args.y, args.x.rows, args.x.columns));
  PS_RETURN_IF_ERROR(expect_multiple("columns of x", args.x.columns, kMxGroup));
  return expect_same_or_apart("x", args.x, "y", args.y);
}

}  // namespace

Status check(const LinearArgs& args) { return check_linear(args).with("linear"); }
Status check(const GroupedLinearArgs& args) { return check_grouped(args).with("grouped_linear"); }
Status check(const QuantizeMxfp8Args& args) { return check_quantize(args).with("quantize_mxfp8"); }

}  // namespace ps::ops
