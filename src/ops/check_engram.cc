#include "base/macros.h"
#include "base/quantize.h"
#include "ops/check_args.h"
#include "ops/check_views.h"
#include "ops/engram.h"
#include "ops/hyper_connection.h"

namespace ps::ops {
namespace {

Status check_table(const EngramTable& table) {
  PS_RETURN_IF_ERROR(expect_positive("rows of the table", table.rows));
  PS_RETURN_IF_ERROR(expect_positive("dim of the table", table.dim));
  PS_RETURN_IF_ERROR(expect(table.data != nullptr, "the table has no data"));
  if (table.dtype == DType::kF8E4M3) {
    PS_RETURN_IF_ERROR(expect(table.scale != nullptr, "the table is F8_E4M3 without scales"));
    return expect_multiple("dim of the table", table.dim, kMxGroup);
  }
  PS_RETURN_IF_ERROR(expect(table.dtype == DType::kBF16 || table.dtype == DType::kF32,
                            "the table is neither F8_E4M3 nor BF16 nor F32"));
  return expect(table.scale == nullptr, "the table is unquantized, but has scales");
}

Status check_gather(const EngramGatherArgs& args) {
  PS_RETURN_IF_ERROR(check_table(args.table));
  PS_RETURN_IF_ERROR(expect_positive("columns", args.columns));
  PS_RETURN_IF_ERROR(expect_matrix("e", args.e, args.e.rows, int64_t{args.columns} * args.table.dim));
  PS_RETURN_IF_ERROR(expect_array("row_ids", args.row_ids, args.e.rows));
  if (args.table.dtype == DType::kF8E4M3) return {};  // rows of the table are on the grid
  return expect_no_grid("e", args.e);
}

Status check_mix(const EngramMixArgs& args) {
  const int64_t dim = args.q_weight.columns;
  PS_RETURN_IF_ERROR(expect_plain_weight("q_weight", args.q_weight, kStreams, dim));
  PS_RETURN_IF_ERROR(expect_plain_weight("k_weight", args.k_weight, kStreams, dim));
  PS_RETURN_IF_ERROR(expect_matrix("h", args.h, args.h.rows, kStreams * dim));
  PS_RETURN_IF_ERROR(expect_matrix("u", args.u, args.h.rows, (kStreams + 1) * dim));
  PS_RETURN_IF_ERROR(expect(args.eps >= 0, "eps is negative"));
  PS_RETURN_IF_ERROR(expect_no_grid("h", args.h));
  return expect_apart("u", args.u, "h", args.h);
}

}  // namespace

Status check(const EngramGatherArgs& args) { return check_gather(args).with("engram_gather"); }
Status check(const EngramMixArgs& args) { return check_mix(args).with("engram_mix"); }

}  // namespace ps::ops
