// The op table: one backend's implementations of all op contracts. The program picks a table; model/ calls through it
// and knows no backend. Tables are immutable and may be shared between threads.
#pragma once

#include "base/macros.h"
#include "ops/attention.h"
#include "ops/compressor.h"
#include "ops/elementwise.h"
#include "ops/engram.h"
#include "ops/hyper_connection.h"
#include "ops/indexer.h"
#include "ops/linear.h"
#include "ops/moe.h"

namespace ps::ops {

// What bounds an op's scratch: the largest shapes that a model and a plan can ask for.
struct ScratchBounds {
  int32_t threads = 1;
  int64_t tokens = 1;           // rows of a forward
  int64_t columns = 0;          // widest input of a linear op and of one group (K), and row of a norm, in values
  int64_t grouped_columns = 0;  // input of all groups of a grouped linear op together; 0: within `columns`
  int64_t hidden = 0;           // input and output of an expert, in values
  int64_t intermediate = 0;     // widest expert, in values
  int64_t head_dim = 0;
  int64_t heads = 0;
  int64_t top_k = 0;  // selected compressed rows
  int64_t candidate_blocks = 0;
  int64_t window = 0;
  int64_t experts = 0;
  int64_t experts_per_token = 0;
};

template <typename Args>
using Op = void (*)(const Args&, Exec&);

struct OpTable {
  const char* name = "";
  int64_t (*scratch_bytes)(const ScratchBounds&) = nullptr;  // enough for any one op within the bounds

  Op<EmbedArgs> embed = nullptr;
  Op<RmsNormArgs> rms_norm = nullptr;
  Op<RopeArgs> rope = nullptr;
  Op<ScaleArgs> scale = nullptr;
  Op<CompactRowsArgs> compact_rows = nullptr;
  Op<QuantizeMxfp8Args> quantize_mxfp8 = nullptr;
  Op<LinearArgs> linear = nullptr;
  Op<GroupedLinearArgs> grouped_linear = nullptr;
  Op<HcMixArgs> hc_mix = nullptr;
  Op<HcCollapseArgs> hc_collapse = nullptr;
  Op<HcExpandArgs> hc_expand = nullptr;
  Op<SparseAttentionArgs> sparse_attention = nullptr;
  Op<WindowWriteArgs> window_write = nullptr;
  Op<CompressorPoolArgs> compressor_pool = nullptr;
  Op<CompressorRingWriteArgs> compressor_ring_write = nullptr;
  Op<CompressedStoreArgs> compressed_store = nullptr;
  Op<IndexKeyStoreArgs> index_key_store = nullptr;
  Op<IndexQueryQuantizeArgs> index_query_quantize = nullptr;
  Op<IndexSelectArgs> index_select = nullptr;
  Op<RouterArgs> router = nullptr;
  Op<MoeArgs> moe = nullptr;
  Op<EngramGatherArgs> engram_gather = nullptr;
  Op<EngramMixArgs> engram_mix = nullptr;
};

// The scalar reference: slow, obviously right, and the definition of every result.
[[nodiscard]] const OpTable& reference_table();

// Runs an op; debug and sanitizer builds check the arguments first.
template <typename Args>
void run(Op<Args> op, const Args& args, Exec& exec) {
#ifdef PAGESTATE_DCHECKS
  const Status status = check(args);
  PS_CHECK(status.ok(), status.message());
#endif
  op(args, exec);
}

}  // namespace ps::ops
