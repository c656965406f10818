#include "ops/table.h"

#include <algorithm>

#include "ops/ref_scratch.h"

namespace ps::ops {
namespace {

int64_t scratch_bytes(const ScratchBounds& bounds) {
  return std::max({ref::elementwise_scratch_bytes(bounds), ref::linear_scratch_bytes(bounds),
                   ref::hyper_connection_scratch_bytes(bounds), ref::moe_scratch_bytes(bounds),
                   ref::engram_scratch_bytes(bounds), ref::attention_scratch_bytes(bounds),
                   ref::compressor_scratch_bytes(bounds), ref::indexer_scratch_bytes(bounds)});
}

}  // namespace

const OpTable& reference_table() {
  static constexpr OpTable kTable{
      .name = "ref",
      .scratch_bytes = scratch_bytes,
      .embed = ref::embed,
      .rms_norm = ref::rms_norm,
      .rope = ref::rope,
      .scale = ref::scale,
      .compact_rows = ref::compact_rows,
      .quantize_mxfp8 = ref::quantize_mxfp8,
      .linear = ref::linear,
      .grouped_linear = ref::grouped_linear,
      .hc_mix = ref::hc_mix,
      .hc_collapse = ref::hc_collapse,
      .hc_expand = ref::hc_expand,
      .sparse_attention = ref::sparse_attention,
      .window_write = ref::window_write,
      .compressor_pool = ref::compressor_pool,
      .compressor_ring_write = ref::compressor_ring_write,
      .compressed_store = ref::compressed_store,
      .index_key_store = ref::index_key_store,
      .index_query_quantize = ref::index_query_quantize,
      .index_select = ref::index_select,
      .router = ref::router,
      .moe = ref::moe,
      .engram_gather = ref::engram_gather,
      .engram_mix = ref::engram_mix,
  };
  return kTable;
}

}  // namespace ps::ops
