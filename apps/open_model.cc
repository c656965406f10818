#include "apps/open_model.h"

#include "base/macros.h"
#include "text/token_map.h"

namespace ps::apps {

Result<std::unique_ptr<OpenModel>> open_model(const std::string& folder, const Machine& machine,
                                              const engine::EngineOptions& options) {
  PS_TRY(checkpoint::Checkpoint checkpoint, open_checkpoint(folder, machine));
  PS_TRY(auto tokenizer, text::Tokenizer::load(checkpoint.tokenizer_path()));
  std::unique_ptr<OpenModel> model(new OpenModel{std::move(checkpoint), std::move(tokenizer), nullptr});
  std::vector<int32_t> classes;
  if (!model->checkpoint.config().text_config.engram_layer_ids.empty()) {
    classes = text::engram_token_map(*model->tokenizer).class_of;
  }
  PS_TRY(model->engine, engine::Engine::create(model->checkpoint, std::move(classes), model->tokenizer->never_sampled(),
                                               *machine.table, options));
  return model;
}

}  // namespace ps::apps
