#include <string>

#include "base/macros.h"
#include "base/quantize.h"
#include "ops/check_args.h"
#include "ops/check_views.h"
#include "ops/moe.h"

namespace ps::ops {
namespace {

Status check_top_k(int32_t top_k, int64_t experts) {
  if (top_k >= 1 && top_k <= experts) return {};
  return Status::invalid(check_detail("top_k is", top_k, "of", experts, "experts"));
}

Status check_router(const RouterArgs& args) {
  const int64_t experts = args.logits.columns;
  PS_RETURN_IF_ERROR(expect_matrix("logits", args.logits, args.logits.rows, experts));
  PS_RETURN_IF_ERROR(expect_dtype("logits", args.logits, DType::kF32));
  PS_RETURN_IF_ERROR(check_top_k(args.top_k, experts));
  PS_RETURN_IF_ERROR(expect_vector("bias", args.bias, experts));
  PS_RETURN_IF_ERROR(
      expect(args.is_image == nullptr || args.bias_image.data != nullptr, "is_image is given without bias_image"));
  if (args.bias_image.data != nullptr) PS_RETURN_IF_ERROR(expect_vector("bias_image", args.bias_image, experts));
  PS_RETURN_IF_ERROR(expect_array("ids", args.ids, args.logits.rows));
  return expect_array("weights", args.weights, args.logits.rows);
}

// One expert of [D] -> [I] -> [D], fed with x.
Status check_expert(const Expert& expert, int64_t dim, std::string_view x_name, const ConstActivations& x) {
  const int64_t inner = expert.w1.rows;
  PS_RETURN_IF_ERROR(expect_weight("w1", expert.w1, inner, dim));
  PS_RETURN_IF_ERROR(expect_weight("w3", expert.w3, inner, dim));
  PS_RETURN_IF_ERROR(expect_weight("w2", expert.w2, dim, inner));
  PS_RETURN_IF_ERROR(expect_input_grid(x_name, x, "w1", expert.w1));
  return expect_input_grid(x_name, x, "w3", expert.w3);
}

Status check_inputs(const MoeArgs& args) {
  const int64_t tokens = args.y.rows;
  const int64_t dim = args.y.columns;
  PS_RETURN_IF_ERROR(expect_matrix("y", args.y, tokens, dim));
  PS_RETURN_IF_ERROR(expect_matrix("x", args.x, tokens, dim));
  PS_RETURN_IF_ERROR(expect_matrix("x_shared", args.x_shared, tokens, dim));
  PS_RETURN_IF_ERROR(expect_dtype("x", args.x, args.y.dtype));
  PS_RETURN_IF_ERROR(expect_dtype("x_shared", args.x_shared, args.y.dtype));
  PS_RETURN_IF_ERROR(expect_no_grid("y", args.y));
  PS_RETURN_IF_ERROR(expect_apart("x", args.x, "y", args.y));
  return expect_apart("x_shared", args.x_shared, "y", args.y);
}

Status check_moe(const MoeArgs& args) {
  PS_RETURN_IF_ERROR(check_inputs(args));
  PS_RETURN_IF_ERROR(expect_positive("expert_count", args.expert_count));
  PS_RETURN_IF_ERROR(expect(args.experts != nullptr, "experts is null"));
  PS_RETURN_IF_ERROR(check_top_k(args.top_k, args.expert_count));
  PS_RETURN_IF_ERROR(expect(args.limit > 0, "the limit is not positive"));
  PS_RETURN_IF_ERROR(expect_array("ids", args.ids, args.y.rows));
  PS_RETURN_IF_ERROR(expect_array("weights", args.weights, args.y.rows));
  for (int32_t e = 0; e < args.expert_count; ++e) {
    Status status = check_expert(args.experts[e], args.y.columns, "x", args.x);
    if (!status.ok()) return std::move(status).with("expert " + std::to_string(e));
  }
  return check_expert(args.shared, args.y.columns, "x_shared", args.x_shared).with("shared expert");
}

}  // namespace

Status check(const RouterArgs& args) { return check_router(args).with("router"); }
Status check(const MoeArgs& args) { return check_moe(args).with("moe"); }

}  // namespace ps::ops
