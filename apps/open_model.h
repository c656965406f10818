// A checkpoint opened for use: tokenizer and engine. What commands with an engine share.
#pragma once

#include <memory>
#include <string>

#include "apps/machine_options.h"
#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "engine/engine.h"
#include "text/tokenizer.h"

namespace ps::apps {

struct OpenModel {
  checkpoint::Checkpoint checkpoint;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::unique_ptr<engine::Engine> engine;  // refers to the checkpoint
};

// Refuses what is wrong or does not fit; reads no weights yet (weights.h).
[[nodiscard]] Result<std::unique_ptr<OpenModel>> open_model(const std::string& folder, const Machine& machine,
                                                            const engine::EngineOptions& options);

}  // namespace ps::apps
