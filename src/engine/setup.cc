#include "engine/setup.h"

#include <algorithm>
#include <string>

#include "base/macros.h"

namespace ps::engine {

model::CacheViews make_views(cache::CachePool& pool, const checkpoint::LayerTopology& topology) {
  model::CacheViews views;
  for (int layer = 0; layer < static_cast<int>(topology.layers.size()); ++layer) {
    views.windows.push_back(pool.window_ring(layer));
  }
  for (int owner = 0; owner < static_cast<int>(topology.owners.size()); ++owner) {
    views.main.push_back(pool.main_plane(owner));
    views.index.push_back(pool.index_plane(owner));
    views.compressors.push_back(pool.compressor_ring(owner));
  }
  return views;
}

Result<PlanShape> make_plan_shape(const checkpoint::Config& config, std::span<const int32_t> token_classes) {
  PlanShape shape;
  const checkpoint::TextConfig& text = config.text_config;
  shape.vocabulary = static_cast<int32_t>(text.vocab_size);
  if (text.engram_layer_ids.empty()) return shape;
  if (static_cast<int64_t>(token_classes.size()) != text.vocab_size) {
    return Status::invalid("the tokenizer maps " + std::to_string(token_classes.size()) +
                           " ids to Engram classes, vocab_size is " + std::to_string(text.vocab_size));
  }
  const int64_t classes = *std::max_element(token_classes.begin(), token_classes.end()) + int64_t{1};
  const int32_t pad = token_classes[static_cast<size_t>(text.engram_pad_token_id)];
  PS_TRY(shape.engram, checkpoint::make_engram_layers(text, classes, pad));
  return shape;
}

}  // namespace ps::engine
