#include "apps/roofline.h"

#include <algorithm>

namespace ps::apps {
namespace {

double values(const ops::Weight& w) { return static_cast<double>(w.rows) * static_cast<double>(w.columns); }

double bytes(const ops::Weight& w) {
  switch (w.format) {
    case ops::WeightFormat::kF32: return values(w) * 4;
    case ops::WeightFormat::kBF16: return values(w) * 2;
    case ops::WeightFormat::kFp8Block32: return values(w) * (1 + 1.0 / 1024);
    case ops::WeightFormat::kFp4Block32: return values(w) * (0.5 + 1.0 / 32);
  }
  return 0;
}

double bytes(const ops::Expert& expert) { return bytes(expert.w1) + bytes(expert.w3) + bytes(expert.w2); }
double values(const ops::Expert& expert) { return values(expert.w1) + values(expert.w3) + values(expert.w2); }

// Calls visit(weight, writes_cache) for every dense weight of a layer; writes_cache: rows without logits need it even
// in the last layer.
template <typename Visit>
void for_dense(const model::LayerWeights& layer, const Visit& visit) {
  visit(layer.wkv, true);
  if (layer.compressor) {
    visit(layer.compressor->wkv, true);
    if (layer.compressor->wgate.data != nullptr) visit(layer.compressor->wgate, true);
    visit(layer.compressor->index_wk, true);
  }
  if (layer.engram) visit(layer.engram->wkv, true);
  visit(layer.hc_attn.fn, true);
  for (const ops::Weight* w : {&layer.hc_ffn.fn, &layer.wq_a, &layer.wq_b, &layer.wo_a, &layer.wo_b, &layer.gate,
                               &layer.shared.w1, &layer.shared.w3, &layer.shared.w2}) {
    visit(*w, false);
  }
  if (layer.indexer) {
    visit(layer.indexer->wq_b, false);
    visit(layer.indexer->weights_proj, false);
  }
}

}  // namespace

double Work::floor_seconds(double bytes_per_second, double flops_per_second) const noexcept {
  return std::max(bytes / bytes_per_second, flops / flops_per_second);
}

double Roofline::dense_bytes(bool has_logits) const {
  const model::Weights& weights = model_.weights();
  double sum = has_logits ? bytes(weights.head) : 0;
  for (const model::LayerWeights& layer : weights.layers) {
    for_dense(layer, [&](const ops::Weight& w, bool) { sum += bytes(w); });
  }
  return sum;
}

double Roofline::expert_bytes(size_t layer) const { return bytes(model_.weights().layers[layer].experts.front()); }

Work Roofline::cache_reads(const model::LayerWeights& layer, int64_t position) const {
  const model::Dimensions& d = model_.dims();
  const auto window = static_cast<double>(std::min(position + 1, d.window));
  Work work;
  work.bytes = window * static_cast<double>(geometry_.window_row_bytes);
  double keys = window;
  if (layer.info.ratio > 0) {
    const int64_t visible = (position + 1) / layer.info.ratio;
    const auto selected = static_cast<double>(std::min(visible, d.top_k));
    work.bytes += selected * static_cast<double>(geometry_.main_row_bytes);
    keys += selected;
    if (layer.indexer) {
      const int64_t candidates = d.candidate_blocks * ops::kIndexBlockRows;
      const auto scored = static_cast<double>(layer.info.uses_candidates ? std::min(visible, candidates) : visible);
      work.bytes += scored * static_cast<double>(geometry_.index_row_bytes);
      work.flops += scored * 2 * static_cast<double>(d.index_heads * d.index_dim);
    }
  }
  work.flops += keys * 4 * static_cast<double>(d.heads * d.head_dim);
  return work;
}

Work Roofline::row(int64_t position, bool has_logits) const {
  const model::Dimensions& d = model_.dims();
  const model::Weights& weights = model_.weights();
  Work work;
  work.bytes = 2.0 * static_cast<double>(d.hidden);
  if (has_logits) work.flops += 2 * values(weights.head);
  for (const model::LayerWeights& layer : weights.layers) {
    const bool is_last = &layer == &weights.layers.back();
    const bool is_whole = !is_last || has_logits;
    for_dense(layer, [&](const ops::Weight& w, bool writes_cache) {
      if (is_whole || writes_cache) work.flops += 2 * values(w);
    });
    if (layer.engram) {
      const double row =
          static_cast<double>(d.engram_dim) * (layer.engram->table.dtype == DType::kF8E4M3
                                                   ? 1 + 1.0 / 32
                                                   : static_cast<double>(dtype_bytes(layer.engram->table.dtype)));
      work.bytes += row * static_cast<double>(d.engram_columns);
    }
    if (!is_whole) continue;
    work += cache_reads(layer, position);
    work.flops += 2 * values(layer.experts.front()) * static_cast<double>(d.experts_per_token);
  }
  return work;
}

}  // namespace ps::apps
