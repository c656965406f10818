// The attention sub-layer of all six kinds, in the exact order of model.md 2.5-2.7.
//
// NOTE: the order of cache accesses is part of correctness. Index keys of this forward are stored before scores are
// taken; compressor rows are pooled before the ring is overwritten; the window ring is written after attention, since a
// chunk wider than the window would destroy rows that its first queries still read.
#include <algorithm>

#include "model/forward_pass.h"

namespace ps::model {

bool ForwardPass::attention(const LayerWeights& weights) {
  if (weights.compressor) compress(weights);
  if (plan_.decoder.is_narrowed && weights.info.layer == decoder_layer(model_.topology())) narrow_to_decoder();
  if (batch_.tokens == 0) return false;
  project_window(weights);
  if (weights.indexer) {
    project_query_latents(weights);
    select(weights);
  }
  const bool is_last = weights.info.layer + 1 == static_cast<int>(model_.weights().layers.size());
  if (is_last && plan_.logit_row_count < batch_.tokens) narrow_to_logit_rows();
  if (!weights.indexer || query_rows_ != nullptr) project_query_latents(weights);
  attend(weights);
  return buffers_.x.rows > 0;
}

void ForwardPass::narrow_to_decoder() {
  keep_rows(plan_.decoder.rows, plan_.decoder.batch.tokens);
  batch_ = plan_.decoder.batch;
}

// The window rows of this layer keep all rows of the batch; what follows them serves the wanted logits only.
void ForwardPass::narrow_to_logit_rows() {
  const ops::Activations window_rows = buffers_.kv;
  keep_rows(plan_.logit_rows, plan_.logit_row_count);
  buffers_.kv = window_rows;
  query_rows_ = plan_.logit_rows;
}

void ForwardPass::project_query_latents(const LayerWeights& weights) {
  linear(input_for(weights.wq_a, buffers_.x, buffers_.x_mx), weights.wq_a, buffers_.qr);
  norm(buffers_.qr, weights.q_norm, buffers_.qr);
  buffers_.qr_mx.grid = ops::Grid::kNone;
  observe("attn.qr", weights.info.layer, buffers_.qr);
}

void ForwardPass::project_queries(const LayerWeights& weights, int64_t first, int64_t count) {
  ops::Activations on_grid = block_of(buffers_.qr_mx, first, count);
  buffers_.q.rows = count;
  linear(input_for(weights.wq_b, block_of(buffers_.qr, first, count), on_grid), weights.wq_b, buffers_.q);
  rotate(buffers_.q, query_positions() + first, dims_.heads, weights, false);
  observe("attn.q", weights.info.layer, buffers_.q);
}

void ForwardPass::project_window(const LayerWeights& weights) {
  buffers_.kv.grid = ops::Grid::kNone;
  linear(input_for(weights.wkv, buffers_.x, buffers_.x_mx), weights.wkv, buffers_.kv);
  norm(buffers_.kv, weights.kv_norm, buffers_.kv);
  rotate(buffers_.kv, batch_.positions, 1, weights, false);
  ops::Activations on_grid = buffers_.kv;
  on_grid.grid = ops::Grid::kMxfp8;
  ops::run(ops_.quantize_mxfp8, {buffers_.kv, on_grid}, exec_);
  buffers_.kv = on_grid;
  observe("attn.kv", weights.info.layer, buffers_.kv);
}

void ForwardPass::compress(const LayerWeights& weights) {
  const CompressorWeights& compressor = *weights.compressor;
  const int layer = weights.info.layer;
  const auto owner = static_cast<size_t>(model_.topology().owner_ordinal(layer));
  const CompressionPlan& plan = compression(weights.info.ratio);
  // Ratio 1 makes one latent per row of the batch; ratio 2 one per closed group.
  const auto group_rows = [&](ops::Activations buffer) {
    buffer.rows = plan.group_count;
    return buffer;
  };
  const ops::Activations latent = group_rows(buffers_.latent);
  if (weights.info.ratio == 1) {
    linear(buffers_.x, compressor.wkv, latent);
  } else {
    const ops::CompressorRing& ring = cache_.compressors[owner];
    linear(buffers_.x, compressor.wkv, buffers_.pool_kv);
    linear(buffers_.x, compressor.wgate, buffers_.pool_score);
    ops::run(ops_.compressor_pool,
             {buffers_.pool_kv, buffers_.pool_score, &plan_.batch, plan.groups, plan.group_count, ring, latent}, exec_);
    ops::run(ops_.compressor_ring_write,
             {buffers_.pool_kv, buffers_.pool_score, &plan_.batch, plan.ring_rows, plan.ring_row_count, ring}, exec_);
  }
  norm(latent, compressor.norm, latent);
  observe("compressor.latent", layer, latent);

  // The index key branches off the un-rotated latent.
  const ops::Activations key = group_rows(buffers_.index_key);
  linear(latent, compressor.index_wk, key);
  norm(key, compressor.index_k_norm, key);
  rotate(key, plan.group_positions, 1, weights, false);
  observe("indexer.key", layer, key);
  ops::run(ops_.index_key_store, {key, &plan_.batch, plan.groups, plan.group_count, cache_.index[owner]}, exec_);

  rotate(latent, plan.group_positions, 1, weights, false);
  ops::run(ops_.compressed_store, {latent, &plan_.batch, plan.groups, plan.group_count, cache_.main[owner]}, exec_);
}

void ForwardPass::select(const LayerWeights& weights) {
  const IndexerWeights& indexer = *weights.indexer;
  const int layer = weights.info.layer;
  const ops::IndexPlane& plane = cache_.index[static_cast<size_t>(model_.topology().owner_ordinal(weights.info.owner))];
  linear(input_for(indexer.wq_b, buffers_.qr, buffers_.qr_mx), indexer.wq_b, buffers_.index_q);
  rotate(buffers_.index_q, batch_.positions, dims_.index_heads, weights, false);
  ops::run(ops_.index_query_quantize, {buffers_.index_q, static_cast<int32_t>(dims_.index_heads), plane.format}, exec_);
  observe("indexer.q", layer, buffers_.index_q);
  linear(buffers_.x, indexer.weights_proj, buffers_.index_w);
  ops::run(ops_.scale, {buffers_.index_w, dims_.index_scale, buffers_.index_w}, exec_);
  observe("indexer.w", layer, buffers_.index_w);

  ops::IndexSelectArgs args;
  args.q = buffers_.index_q;
  args.weights = buffers_.index_w;
  args.batch = &batch_;
  args.plane = plane;
  args.heads = static_cast<int32_t>(dims_.index_heads);
  args.top_k = static_cast<int32_t>(dims_.top_k);
  args.selected = buffers_.selected;
  args.candidate_blocks = static_cast<int32_t>(dims_.candidate_blocks);
  if (weights.info.uses_candidates) args.candidates_in = buffers_.candidates;
  if (weights.info.is_candidate_source) args.candidates_out = buffers_.candidates;
  ops::run(ops_.index_select, args, exec_);
  if (observer_ == nullptr) return;
  observer_->ids("indexer.selected", layer, buffers_.selected, batch_.tokens, dims_.top_k);
  if (weights.info.is_candidate_source) {
    observer_->ids("indexer.candidates", layer, buffers_.candidates, batch_.tokens, dims_.candidate_blocks);
  }
}

void ForwardPass::attend(const LayerWeights& weights) {
  const int64_t rows = buffers_.x.rows;
  for (int64_t first = 0; first < rows; first += kBlockRows) {
    const int64_t count = std::min(kBlockRows, rows - first);
    project_queries(weights, first, count);
    attend_block(weights, first, count);
    project_output(weights, first, count);
  }
  const ops::WindowRing& ring = cache_.windows[static_cast<size_t>(weights.info.layer)];
  ops::run(ops_.window_write, {buffers_.kv, &batch_, ring}, exec_);
  observe("attn.y", weights.info.layer, buffers_.y);
}

void ForwardPass::attend_block(const LayerWeights& weights, int64_t first, int64_t count) {
  const int layer = weights.info.layer;
  buffers_.o.rows = count;
  ops::SparseAttentionArgs args;
  args.q = buffers_.q;
  args.kv = buffers_.kv;
  args.batch = &batch_;
  const bool are_all_rows = query_rows_ == nullptr && count == batch_.tokens;
  if (!are_all_rows) args.query_rows = (query_rows_ == nullptr ? buffers_.all_rows : query_rows_) + first;
  args.ring = cache_.windows[static_cast<size_t>(layer)];
  if (weights.info.ratio > 0) {
    args.plane = cache_.main[static_cast<size_t>(model_.topology().owner_ordinal(weights.info.owner))];
    args.selected = buffers_.selected;
    args.top_k = static_cast<int32_t>(dims_.top_k);
  }
  args.sink = weights.sink;
  args.scale = dims_.attention_scale;
  args.heads = static_cast<int32_t>(dims_.heads);
  args.window = static_cast<int32_t>(dims_.window);
  args.o = buffers_.o;
  ops::run(ops_.sparse_attention, args, exec_);
  observe("attn.o", layer, buffers_.o);
}

void ForwardPass::project_output(const LayerWeights& weights, int64_t first, int64_t count) {
  buffers_.o_low.rows = buffers_.o_low_mx.rows = count;
  rotate(buffers_.o, query_positions() + first, dims_.heads, weights, true);
  ops::run(ops_.grouped_linear, {buffers_.o, weights.wo_a, buffers_.o_low, static_cast<int32_t>(dims_.o_groups)},
           exec_);
  observe("attn.o_low", weights.info.layer, buffers_.o_low);
  buffers_.o_low_mx.grid = ops::Grid::kNone;
  linear(input_for(weights.wo_b, buffers_.o_low, buffers_.o_low_mx), weights.wo_b, block_of(buffers_.y, first, count));
}

void ForwardPass::rotate(const ops::Activations& x, const int32_t* positions, int64_t heads,
                         const LayerWeights& weights, bool inverse) {
  const RopeTables& tables = model_.rope();
  const std::vector<float>& table = weights.info.ratio == 0 ? tables.window : tables.compressed;
  ops::run(ops_.rope,
           {x, positions, table.data(), static_cast<int32_t>(heads), static_cast<int32_t>(dims_.rope_pairs), inverse},
           exec_);
}

}  // namespace ps::model
