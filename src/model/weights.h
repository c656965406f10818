// The text backbone's weights as op views into the mapped checkpoint, bound once by their official names (model.md
// 1.2). Nothing is copied or repacked. REQUIRES: the Checkpoint outlives the views; its schema check has proven every
// tensor.
#pragma once

#include <optional>
#include <vector>

#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "ops/engram.h"
#include "ops/moe.h"
#include "ops/views.h"

namespace ps::model {

struct HyperConnectionWeights {
  ops::Weight fn;     // [24, 4 * D] F32
  ops::Vector base;   // [24]
  ops::Vector scale;  // [3]
};

struct CompressorWeights {
  ops::Weight wkv;           // [head_dim, D]
  ops::Weight wgate;         // [head_dim, D]; data nullptr at ratio 1
  ops::Vector norm;          // [head_dim]
  ops::Weight index_wk;      // [index_dim, head_dim]
  ops::Vector index_k_norm;  // [index_dim]
};

struct IndexerWeights {
  ops::Weight wq_b;          // [index_heads * index_dim, q_rank]
  ops::Weight weights_proj;  // [index_heads, D]
};

struct EngramWeights {
  ops::EngramTable table;
  ops::Weight wkv;       // [5 * D, columns * dim]
  ops::Weight q_weight;  // [4, D]
  ops::Weight k_weight;  // [4, D]
};

struct LayerWeights {
  checkpoint::LayerInfo info;
  ops::Vector attn_norm;
  ops::Vector ffn_norm;
  HyperConnectionWeights hc_attn;
  HyperConnectionWeights hc_ffn;

  ops::Vector sink;  // [H]
  ops::Vector q_norm;
  ops::Vector kv_norm;
  ops::Weight wq_a;
  ops::Weight wq_b;
  ops::Weight wkv;
  ops::Weight wo_a;  // [groups * o_rank, H * head_dim / groups]
  ops::Weight wo_b;
  std::optional<CompressorWeights> compressor;  // FULL
  std::optional<IndexerWeights> indexer;        // FULL and REINDEX
  std::optional<EngramWeights> engram;

  ops::Weight gate;
  ops::Vector gate_bias;
  ops::Vector gate_bias_image;
  std::vector<ops::Expert> experts;
  ops::Expert shared;
};

struct Weights {
  ops::Weight embed;  // [V, D]
  ops::Weight head;   // [V, D]
  ops::Vector norm;
  std::vector<LayerWeights> layers;
};

[[nodiscard]] Weights bind_weights(const checkpoint::Checkpoint& checkpoint);

}  // namespace ps::model
