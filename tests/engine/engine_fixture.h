// A small real checkpoint, engines on it, and a record of what each sequence got.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/pcg64.h"
#include "cpu/table.h"
#include "engine/engine.h"
#include "engine/transcript.h"
#include "tests/model/golden_data.h"

namespace ps::tests {

// Six layers of every kind but a second window layer: WINDOW, FULL 2, REUSE, FULL 1 with candidates, REINDEX, REUSE;
// window 40, top-k 32.
inline const Golden& small_model() {
  static const Golden golden("native/native6");
  return golden;
}

inline std::unique_ptr<engine::Engine> make_engine(const engine::EngineOptions& options) {
  const Golden& golden = small_model();
  auto made = engine::Engine::create(golden.checkpoint(), golden.token_classes(), {}, cpu::table(), options);
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return made.ok() ? std::move(made).value() : nullptr;
}

using engine::Transcriber;
using engine::Transcript;

// Options with room for everything, exact in every respect.
inline engine::EngineOptions exact_options() {
  engine::EngineOptions options;
  options.encoder_replay = false;
  options.decoder_replay = false;
  options.page_tokens = 48;
  options.max_sequences = 4;
  options.token_budget = 512;
  options.max_context = 480;
  options.pages = 40;
  options.poison = true;
  return options;
}

inline Transcript run_alone(const engine::EngineOptions& options, const engine::Request& request) {
  const auto engine = make_engine(options);
  Transcriber transcriber(*engine);
  const auto id = engine->add(request);
  EXPECT_TRUE(id.ok()) << id.status().to_string();
  if (!id.ok()) return {};
  EXPECT_TRUE(transcriber.run());
  return transcriber.of(id.value());
}

// A prompt of the model's vocabulary: equal seeds agree on every common prefix.
inline std::vector<int32_t> random_prompt(uint64_t seed, int64_t length) {
  Pcg64 random(seed);
  std::vector<int32_t> prompt;
  const int64_t vocabulary = small_model().checkpoint().config().text_config.vocab_size;
  for (int64_t i = 0; i < length; ++i) prompt.push_back(static_cast<int32_t>(random.integer(3, vocabulary)));
  return prompt;
}

}  // namespace ps::tests
