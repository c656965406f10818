// A small real checkpoint, engines on it, and a record of what each sequence got.
#pragma once

#include <gtest/gtest.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/pcg64.h"
#include "engine/engine.h"
#include "tests/model/golden_data.h"

namespace ps::tests {

// Six layers of every kind but a second window layer: WINDOW, FULL 2, REUSE, FULL 1 with candidates, REINDEX, REUSE; window 40, top-k 32.
inline const Golden& small_model() {
  static const Golden golden("native/native6");
  return golden;
}

inline std::unique_ptr<engine::Engine> make_engine(const engine::EngineOptions& options) {
  const Golden& golden = small_model();
  auto made = engine::Engine::create(golden.checkpoint(), golden.token_classes(), {}, ops::reference_table(), options);
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return made.ok() ? std::move(made).value() : nullptr;
}

// Tokens and a hash of the logits behind each, in order of position.
struct Transcript {
  std::vector<int32_t> tokens;
  std::map<int64_t, uint64_t> logits;
  engine::FinishReason finish = engine::FinishReason::kNone;
  int64_t cached_tokens = 0;

  friend bool operator==(const Transcript& a, const Transcript& b) { return a.tokens == b.tokens && a.logits == b.logits; }
  // Whether this is how `whole` began.
  [[nodiscard]] bool begins(const Transcript& whole) const {
    if (tokens.size() > whole.tokens.size() || !std::equal(tokens.begin(), tokens.end(), whole.tokens.begin())) return false;
    for (const auto& [position, hash] : logits) {
      const auto found = whole.logits.find(position);
      if (found == whole.logits.end() || found->second != hash) return false;
    }
    return true;
  }
};

// Collects transcripts of all sequences of one engine.
class Transcriber : public engine::LogitTap {
 public:
  explicit Transcriber(engine::Engine& engine) : engine_(engine) { engine.tap(this); }
  ~Transcriber() override { engine_.tap(nullptr); }

  void logits(engine::SequenceId sequence, int64_t position, std::span<const float> values) override {
    transcripts_[sequence].logits[position] = XXH3_64bits(values.data(), values.size_bytes());
  }
  void step() {
    for (const engine::Event& event : engine_.step()) {
      Transcript& transcript = transcripts_[event.sequence];
      if (event.token >= 0) transcript.tokens.push_back(event.token);
      if (event.finish != engine::FinishReason::kNone) transcript.finish = event.finish;
      transcript.cached_tokens = event.cached_tokens;
    }
  }
  void run() {
    for (int step_count = 0; engine_.has_work(); ++step_count) {
      ASSERT_LT(step_count, 100000) << "the engine does not come to an end";
      step();
    }
  }
  [[nodiscard]] const Transcript& of(engine::SequenceId sequence) { return transcripts_[sequence]; }

 private:
  engine::Engine& engine_;
  std::map<engine::SequenceId, Transcript> transcripts_;
};

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
  transcriber.run();
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
