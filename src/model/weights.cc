#include "model/weights.h"

#include <string>

#include "base/macros.h"

namespace ps::model {
namespace {

using checkpoint::Checkpoint;

ops::WeightFormat op_format(checkpoint::WeightFormat format) {
  switch (format) {
    case checkpoint::WeightFormat::kFp8Block: return ops::WeightFormat::kFp8Block32;
    case checkpoint::WeightFormat::kFp4Row: return ops::WeightFormat::kFp4Block32;
    case checkpoint::WeightFormat::kBf16: return ops::WeightFormat::kBF16;
    case checkpoint::WeightFormat::kF32: return ops::WeightFormat::kF32;
    case checkpoint::WeightFormat::kFp8Row: break;  // Engram rows: bound as a table, never as a matrix
  }
  PS_CHECK(false, "no linear op reads", checkpoint::weight_format_name(format));
  return ops::WeightFormat::kF32;
}

// Binds tensors below one prefix, e.g. "layers.3.".
class Binder {
 public:
  Binder(const Checkpoint& checkpoint, std::string prefix) : checkpoint_(checkpoint), prefix_(std::move(prefix)) {}

  // "<name>.weight" with its scale.
  [[nodiscard]] ops::Weight weight(const std::string& name) const {
    const checkpoint::MatrixView view = checkpoint_.matrix(prefix_ + name);
    return {op_format(view.format), view.rows, view.columns, view.data, view.scale};
  }

  // An unquantized matrix whose name carries no ".weight".
  [[nodiscard]] ops::Weight plain_matrix(const std::string& name) const {
    const checkpoint::TensorView& view = checkpoint_.tensor(prefix_ + name);
    const ops::WeightFormat format = view.dtype == DType::kF32 ? ops::WeightFormat::kF32 : ops::WeightFormat::kBF16;
    return {format, view.shape[0], view.shape[1], view.data, nullptr};
  }

  [[nodiscard]] ops::Vector vector(const std::string& name) const {
    const checkpoint::TensorView& view = checkpoint_.tensor(prefix_ + name);
    return {view.data, view.dtype, view.shape.elements()};
  }

  [[nodiscard]] HyperConnectionWeights hyper_connection(const std::string& name) const {
    return {plain_matrix(name + "_fn"), vector(name + "_base"), vector(name + "_scale")};
  }

  [[nodiscard]] ops::Expert expert(const std::string& name) const {
    return {weight(name + ".w1"), weight(name + ".w3"), weight(name + ".w2")};
  }

  [[nodiscard]] CompressorWeights compressor(bool gated) const {
    CompressorWeights weights;
    weights.wkv = weight("attn.compressor.wkv");
    if (gated) weights.wgate = weight("attn.compressor.wgate");
    weights.norm = vector("attn.compressor.norm.weight");
    weights.index_wk = weight("attn.indexer.wk");
    weights.index_k_norm = vector("attn.indexer.k_norm.weight");
    return weights;
  }

  [[nodiscard]] EngramWeights engram() const {
    const checkpoint::MatrixView rows = checkpoint_.matrix(prefix_ + "engram.embed");
    EngramWeights weights;
    weights.table.rows = rows.rows;
    weights.table.dim = static_cast<int32_t>(rows.columns);
    weights.table.data = rows.data;
    weights.table.scale = rows.scale;
    weights.table.dtype = rows.format == checkpoint::WeightFormat::kFp8Row ? DType::kF8E4M3
                          : rows.format == checkpoint::WeightFormat::kBf16 ? DType::kBF16
                                                                           : DType::kF32;
    weights.wkv = weight("engram.wkv");
    weights.q_weight = plain_matrix("engram.q_weight");
    weights.k_weight = plain_matrix("engram.k_weight");
    return weights;
  }

 private:
  const Checkpoint& checkpoint_;
  std::string prefix_;
};

LayerWeights bind_layer(const Checkpoint& checkpoint, const checkpoint::LayerInfo& info, int64_t experts) {
  const Binder binder(checkpoint, "layers." + std::to_string(info.layer) + ".");
  LayerWeights layer;
  layer.info = info;
  layer.attn_norm = binder.vector("attn_norm.weight");
  layer.ffn_norm = binder.vector("ffn_norm.weight");
  layer.hc_attn = binder.hyper_connection("hc_attn");
  layer.hc_ffn = binder.hyper_connection("hc_ffn");
  layer.sink = binder.vector("attn.attn_sink");
  layer.q_norm = binder.vector("attn.q_norm.weight");
  layer.kv_norm = binder.vector("attn.kv_norm.weight");
  layer.wq_a = binder.weight("attn.wq_a");
  layer.wq_b = binder.weight("attn.wq_b");
  layer.wkv = binder.weight("attn.wkv");
  layer.wo_a = binder.weight("attn.wo_a");
  layer.wo_b = binder.weight("attn.wo_b");
  if (info.is_full()) layer.compressor = binder.compressor(info.ratio == 2);
  if (info.is_index_source()) {
    layer.indexer = IndexerWeights{binder.weight("attn.indexer.wq_b"), binder.weight("attn.indexer.weights_proj")};
  }
  if (info.engram >= 0) layer.engram = binder.engram();
  layer.gate = binder.weight("ffn.gate");
  layer.gate_bias = binder.vector("ffn.gate.bias");
  layer.gate_bias_image = binder.vector("ffn.gate.bias_vl");
  for (int64_t expert = 0; expert < experts; ++expert) {
    layer.experts.push_back(binder.expert("ffn.experts." + std::to_string(expert)));
  }
  layer.shared = binder.expert("ffn.shared_experts");
  return layer;
}

}  // namespace

Weights bind_weights(const Checkpoint& checkpoint) {
  const Binder binder(checkpoint, "");
  Weights weights;
  weights.embed = binder.weight("embed");
  weights.head = binder.weight("head");
  weights.norm = binder.vector("norm.weight");
  for (const checkpoint::LayerInfo& info : checkpoint.topology().layers) {
    weights.layers.push_back(bind_layer(checkpoint, info, checkpoint.config().text_config.n_routed_experts));
  }
  return weights;
}

}  // namespace ps::model
