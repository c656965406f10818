#include "model/forward.h"

#include <algorithm>
#include <string>

#include "model/forward_pass.h"

namespace ps::model {

Model::Model(const checkpoint::Checkpoint& checkpoint, const ops::OpTable& table, ModelOptions options)
    : options_(options),
      table_(table),
      topology_(checkpoint.topology()),
      dims_(dimensions(checkpoint.config())),
      rope_(rope_tables(checkpoint.config().text_config)),
      weights_(bind_weights(checkpoint)) {}

int decoder_layer(const checkpoint::LayerTopology& topology) noexcept {
  return topology.owners.empty() ? 0 : topology.owners.back();
}

Status supports_decoder_replay(const checkpoint::LayerTopology& topology) {
  if (topology.owners.empty()) return Status::unsupported("decoder replay needs a layer that owns compressed rows");
  const int first = decoder_layer(topology);
  for (const checkpoint::LayerInfo& layer : topology.layers) {
    if (layer.layer <= first) continue;  // the owner's own Engram and selection run on its rows
    if (layer.engram >= 0) {
      return Status::unsupported("decoder replay: Engram layer " + std::to_string(layer.layer) +
                                 " lies behind the last KV owner, layer " + std::to_string(first));
    }
    if (layer.uses_candidates && topology.candidate_source < first) {
      return Status::unsupported("decoder replay: layer " + std::to_string(layer.layer) + " uses candidates of layer " +
                                 std::to_string(topology.candidate_source) + ", which precedes the last KV owner");
    }
  }
  return {};
}

int64_t forward_scratch_bytes(const Dimensions& dims, const ops::OpTable& table, DType compute, int64_t tokens,
                              int64_t logit_rows, int threads) {
  Placer counter(nullptr);
  (void)lay_out(counter, dims, compute, tokens, logit_rows);
  ops::ScratchBounds bounds;
  bounds.threads = threads;
  bounds.tokens = tokens;
  bounds.grouped_columns = dims.heads * dims.head_dim;
  bounds.columns = std::max({dims.hidden, dims.q_rank, dims.head_dim, bounds.grouped_columns / dims.o_groups,
                             dims.o_groups * dims.o_rank, dims.intermediate, dims.engram_columns * dims.engram_dim});
  bounds.hidden = dims.hidden;
  bounds.intermediate = dims.intermediate;
  bounds.head_dim = dims.head_dim;
  bounds.heads = dims.heads;
  bounds.top_k = dims.top_k;
  bounds.candidate_blocks = dims.candidate_blocks;
  bounds.window = dims.window;
  bounds.experts = dims.experts;
  bounds.experts_per_token = dims.experts_per_token;
  return counter.total_bytes() + table.scratch_bytes(bounds);
}

void Model::forward(const ForwardPlan& plan, const CacheViews& cache, ops::Exec& exec, Observer* observer) const {
  const ops::ScratchScope scope(exec.scratch);
  ForwardPass pass(*this, plan, cache, exec, observer);
  pass.embed();
  for (const LayerWeights& layer : weights_.layers) {
    if (!pass.layer(layer)) return;
  }
  pass.head(weights_);
}

namespace {

Buffers place(const Model& model, const ForwardPlan& plan, Arena& arena) {
  Placer placer(&arena);
  return lay_out(placer, model.dims(), model.compute(), plan.batch.tokens, plan.logit_row_count);
}

}  // namespace

ForwardPass::ForwardPass(const Model& model, const ForwardPlan& plan, const CacheViews& cache, ops::Exec& exec,
                         Observer* observer)
    : model_(model),
      dims_(model.dims()),
      ops_(model.table()),
      plan_(plan),
      cache_(cache),
      exec_(exec),
      observer_(observer),
      buffers_(place(model, plan, exec.scratch)),
      batch_(plan.batch) {}

void ForwardPass::embed() {
  ops::run(ops_.embed, {plan_.ids, model_.weights().embed, buffers_.h, ops::kStreams}, exec_);
  if (plan_.is_image != nullptr) std::copy_n(plan_.is_image, plan_.batch.tokens, buffers_.is_image);
  float* incoming = buffers_.pre[incoming_];
  for (int64_t row = 0; row < plan_.batch.tokens; ++row) {
    for (int64_t stream = 0; stream < ops::kStreams; ++stream) {
      incoming[row * ops::kStreams + stream] = stream == 0 ? 1.0f : 0.0f;
    }
  }
}

bool ForwardPass::layer(const LayerWeights& weights) {
  const int layer = weights.info.layer;
  if (weights.engram) engram(weights);
  enter_sublayer(weights.hc_attn, weights.attn_norm, layer, "attn.x");
  if (!attention(weights)) return false;
  leave_sublayer(layer, "attn.h");
  enter_sublayer(weights.hc_ffn, weights.ffn_norm, layer, "ffn.x");
  mixture_of_experts(weights);
  leave_sublayer(layer, "ffn.h");
  return true;
}

void ForwardPass::keep_rows(const int32_t* rows, int32_t count) {
  const auto keep = [&](void* data, int64_t row_bytes) {
    ops::run(ops_.compact_rows, {data, row_bytes, rows, count}, exec_);
  };
  for (const ops::Activations* buffer : {&buffers_.h, &buffers_.x}) {
    keep(buffer->data, buffer->columns * dtype_bytes(buffer->dtype));
  }
  buffers_.x_mx.grid = ops::Grid::kNone;
  for (float* mix : {buffers_.pre[0], buffers_.pre[1], buffers_.post})
    keep(mix, ops::kStreams * int64_t{sizeof(float)});
  keep(buffers_.is_image, 1);
  keep(buffers_.combine, ops::kStreams * ops::kStreams * int64_t{sizeof(float)});
  set_row_count(count);
}

void ForwardPass::set_row_count(int64_t rows) {
  for (ops::Activations* buffer : buffers_.per_row()) buffer->rows = rows;
}

void ForwardPass::head(const Weights& weights) {
  ops::run(ops_.hc_collapse, {buffers_.h, buffers_.pre[incoming_], nullptr, buffers_.last}, exec_);
  norm(buffers_.last, weights.norm, buffers_.last);
  observe("head.x", -1, buffers_.last);
  for (int32_t first = 0; first < plan_.logit_row_count; first += plan_.logit_block_rows) {
    const int32_t rows = std::min(plan_.logit_block_rows, plan_.logit_row_count - first);
    ops::ConstActivations x = buffers_.last;
    x.data = static_cast<const std::byte*>(x.data) + first * x.stride * dtype_bytes(x.dtype);
    x.rows = rows;
    linear(x, weights.head, {plan_.logits, DType::kF32, ops::Grid::kNone, rows, dims_.vocabulary, dims_.vocabulary});
    plan_.sink->logits(first, rows, plan_.logits);
  }
}

void ForwardPass::enter_sublayer(const HyperConnectionWeights& hc, const ops::Vector& norm_weight, int layer,
                                 std::string_view point) {
  float* made = buffers_.pre[1 - incoming_];
  ops::run(ops_.hc_mix,
           {buffers_.h, hc.fn, hc.base, hc.scale, dims_.norm_eps, dims_.hc_eps, dims_.hc_iterations, made,
            buffers_.post, buffers_.combine},
           exec_);
  ops::run(ops_.hc_collapse, {buffers_.h, buffers_.pre[incoming_], nullptr, buffers_.x}, exec_);
  norm(buffers_.x, norm_weight, buffers_.x);
  buffers_.x_mx.grid = ops::Grid::kNone;
  incoming_ = 1 - incoming_;
  observe(point, layer, buffers_.x);
  if (observer_ != nullptr) observer_->floats("hc.pre", layer, made, buffers_.h.rows, ops::kStreams);
}

void ForwardPass::leave_sublayer(int layer, std::string_view point) {
  ops::run(ops_.hc_expand, {buffers_.y, buffers_.post, buffers_.combine, buffers_.h}, exec_);
  observe(point, layer, buffers_.h);
}

void ForwardPass::mixture_of_experts(const LayerWeights& weights) {
  linear(buffers_.x, weights.gate, buffers_.router_logits);
  ops::run(ops_.router,
           {buffers_.router_logits, weights.gate_bias, weights.gate_bias_image,
            plan_.is_image == nullptr ? nullptr : buffers_.is_image, static_cast<int32_t>(dims_.experts_per_token),
            dims_.routed_scaling, buffers_.expert_ids, buffers_.expert_weights},
           exec_);
  if (observer_ != nullptr) {
    observer_->ids("moe.experts", weights.info.layer, buffers_.expert_ids, buffers_.x.rows, dims_.experts_per_token);
  }
  ops::MoeArgs args;
  args.x = input_for(weights.experts.front().w1, buffers_.x, buffers_.x_mx);
  args.x_shared = input_for(weights.shared.w1, buffers_.x, buffers_.x_mx);
  args.experts = weights.experts.data();
  args.expert_count = static_cast<int32_t>(weights.experts.size());
  args.shared = weights.shared;
  args.ids = buffers_.expert_ids;
  args.weights = buffers_.expert_weights;
  args.top_k = static_cast<int32_t>(dims_.experts_per_token);
  args.limit = dims_.swiglu_limit;
  args.y = buffers_.y;
  ops::run(ops_.moe, args, exec_);
  observe("moe.y", weights.info.layer, buffers_.y);
}

void ForwardPass::engram(const LayerWeights& weights) {
  const EngramWeights& engram = *weights.engram;
  const int64_t* rows = plan_.engram_rows[static_cast<size_t>(weights.info.engram)];
  for (int64_t first = 0; first < buffers_.h.rows; first += kBlockRows) {
    const int64_t count = std::min(kBlockRows, buffers_.h.rows - first);
    for (ops::Activations* buffer : {&buffers_.engram_e, &buffers_.engram_e_mx, &buffers_.engram_u}) {
      buffer->rows = count;
    }
    ops::run(ops_.engram_gather,
             {engram.table, rows + first * dims_.engram_columns, static_cast<int32_t>(dims_.engram_columns),
              buffers_.engram_e},
             exec_);
    buffers_.engram_e_mx.grid = ops::Grid::kNone;
    linear(input_for(engram.wkv, buffers_.engram_e, buffers_.engram_e_mx), engram.wkv, buffers_.engram_u);
    const uint8_t* alive = plan_.engram_alive == nullptr ? nullptr : plan_.engram_alive + first;
    ops::run(ops_.engram_mix,
             {buffers_.engram_u, engram.q_weight, engram.k_weight, alive, dims_.norm_eps,
              block_of(buffers_.h, first, count)},
             exec_);
  }
  observe("engram.h", weights.info.layer, buffers_.h);
}

ops::ConstActivations ForwardPass::input_for(const ops::Weight& weight, const ops::ConstActivations& x,
                                             ops::Activations& grid_buffer) {
  if (!ops::is_quantized(weight.format)) return x;
  if (grid_buffer.grid != ops::Grid::kMxfp8) {
    grid_buffer.grid = ops::Grid::kMxfp8;
    ops::run(ops_.quantize_mxfp8, {x, grid_buffer}, exec_);
  }
  return grid_buffer;
}

void ForwardPass::linear(const ops::ConstActivations& x, const ops::Weight& weight, const ops::Activations& y) {
  ops::run(ops_.linear, {x, weight, y}, exec_);
}

void ForwardPass::norm(const ops::ConstActivations& x, const ops::Vector& weight, const ops::Activations& y) {
  ops::run(ops_.rms_norm, {x, weight, y, dims_.norm_eps}, exec_);
}

}  // namespace ps::model
