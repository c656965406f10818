// One running forward: the plan, the buffers and the backend, and the steps of model.md 0 as methods. Internal to
// model/.
#pragma once

#include "model/buffers.h"
#include "model/forward.h"

namespace ps::model {

class ForwardPass {
 public:
  ForwardPass(const Model& model, const ForwardPlan& plan, const CacheViews& cache, ops::Exec& exec,
              Observer* observer);

  void embed();
  // false when no row is left to run: the rest of the forward is empty.
  [[nodiscard]] bool layer(const LayerWeights& weights);
  void head(const Weights& weights);

 private:
  // Sub-layers; each reads buffers_.x and leaves its output in buffers_.y. Attention may narrow the rows on its way.
  [[nodiscard]] bool attention(const LayerWeights& weights);
  void mixture_of_experts(const LayerWeights& weights);
  void engram(const LayerWeights& weights);

  // The steps of attention (attention_layer.cc).
  void narrow_to_decoder();
  void narrow_to_logit_rows();
  void project_query_latents(const LayerWeights& weights);
  void project_window(const LayerWeights& weights);
  void compress(const LayerWeights& weights);
  void select(const LayerWeights& weights);
  // From the latents of the querying rows to their outputs in buffers_.y, block by block; then the window ring.
  void attend(const LayerWeights& weights);
  void project_queries(const LayerWeights& weights, int64_t first, int64_t count);
  void attend_block(const LayerWeights& weights, int64_t first, int64_t count);
  void project_output(const LayerWeights& weights, int64_t first, int64_t count);

  // From here on only these rows go on: every buffer that is alive between layers keeps them, at its front.
  void keep_rows(const int32_t* rows, int32_t count);
  void set_row_count(int64_t rows);

  // Mixes from h, collapses h with the incoming pre-mix into buffers_.x, normed; the fresh pre-mix becomes the incoming
  // one.
  void enter_sublayer(const HyperConnectionWeights& hc, const ops::Vector& norm, int layer, std::string_view point);
  // Expands buffers_.y back into h.
  void leave_sublayer(int layer, std::string_view point);

  // x itself for an unquantized weight, else x on the MXFP8 grid, in `grid_buffer`: written unless it is there already.
  ops::ConstActivations input_for(const ops::Weight& weight, const ops::ConstActivations& x,
                                  ops::Activations& grid_buffer);
  void linear(const ops::ConstActivations& x, const ops::Weight& weight, const ops::Activations& y);
  void norm(const ops::ConstActivations& x, const ops::Vector& weight, const ops::Activations& y);
  void rotate(const ops::Activations& x, const int32_t* positions, int64_t heads, const LayerWeights& weights,
              bool inverse);
  [[nodiscard]] const int32_t* query_positions() const noexcept {
    return query_rows_ == nullptr ? batch_.positions : plan_.logit_positions;
  }

  [[nodiscard]] const CompressionPlan& compression(int ratio) const noexcept {
    return ratio == 1 ? plan_.ratio1 : plan_.ratio2;
  }
  void observe(std::string_view point, int layer, const ops::ConstActivations& value) {
    if (observer_ != nullptr) observer_->activations(point, layer, value);
  }

  const Model& model_;
  const Dimensions& dims_;
  const ops::OpTable& ops_;
  const ForwardPlan& plan_;
  const CacheViews& cache_;
  ops::Exec& exec_;
  Observer* observer_;
  Buffers buffers_;
  ops::Batch batch_;                     // of the rows that run now
  const int32_t* query_rows_ = nullptr;  // of batch_, when only some of its rows still query; nullptr: all
  int incoming_ = 0;                     // which of buffers_.pre feeds the next sub-layer
};

}  // namespace ps::model
