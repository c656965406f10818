#include "base/macros.h"
#include "ops/check_args.h"
#include "ops/check_views.h"
#include "ops/compressor.h"

namespace ps::ops {
namespace {

// kv and score are F32 rows of the batch, as wide as the ring.
Status check_inputs(const ConstActivations& kv, const ConstActivations& score, const Batch& batch,
                    const CompressorRing& ring) {
  PS_RETURN_IF_ERROR(expect_matrix("kv", kv, batch.tokens, ring.dim));
  PS_RETURN_IF_ERROR(expect_matrix("score", score, batch.tokens, ring.dim));
  PS_RETURN_IF_ERROR(expect_dtype("kv", kv, DType::kF32));
  PS_RETURN_IF_ERROR(expect_dtype("score", score, DType::kF32));
  return expect_compressor_ring(ring, kv.columns);
}

Status check_groups(const CompressedGroup* groups, int32_t group_count) {
  PS_RETURN_IF_ERROR(expect(group_count >= 0, "group_count is negative"));
  return expect_array("groups", groups, group_count);
}

Status check_pool(const CompressorPoolArgs& args) {
  PS_RETURN_IF_ERROR(expect_batch(args.batch, false));
  PS_RETURN_IF_ERROR(check_inputs(args.kv, args.score, *args.batch, args.ring));
  PS_RETURN_IF_ERROR(check_groups(args.groups, args.group_count));
  return expect_matrix("latent", args.latent, args.group_count, args.ring.dim);
}

Status check_ring_write(const CompressorRingWriteArgs& args) {
  PS_RETURN_IF_ERROR(expect_batch(args.batch, false));
  PS_RETURN_IF_ERROR(check_inputs(args.kv, args.score, *args.batch, args.ring));
  PS_RETURN_IF_ERROR(expect(args.row_count >= 0, "row_count is negative"));
  return expect_array("rows", args.rows, args.row_count);
}

Status check_compressed_store(const CompressedStoreArgs& args) {
  PS_RETURN_IF_ERROR(expect_batch(args.batch, true));
  PS_RETURN_IF_ERROR(check_groups(args.groups, args.group_count));
  PS_RETURN_IF_ERROR(expect_matrix("latent", args.latent, args.group_count, args.plane.dim));
  return expect_main_plane(args.plane, args.latent.columns);
}

Status check_key_store(const IndexKeyStoreArgs& args) {
  PS_RETURN_IF_ERROR(expect_batch(args.batch, true));
  PS_RETURN_IF_ERROR(check_groups(args.groups, args.group_count));
  PS_RETURN_IF_ERROR(expect_matrix("key", args.key, args.group_count, args.plane.dim));
  return expect_index_plane(args.plane);
}

}  // namespace

Status check(const CompressorPoolArgs& args) { return check_pool(args).with("compressor_pool"); }
Status check(const CompressorRingWriteArgs& args) { return check_ring_write(args).with("compressor_ring_write"); }
Status check(const CompressedStoreArgs& args) { return check_compressed_store(args).with("compressed_store"); }
Status check(const IndexKeyStoreArgs& args) { return check_key_store(args).with("index_key_store"); }

}  // namespace ps::ops
