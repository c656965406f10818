// What a sequence got, in a form that can be compared bit for bit: its tokens and a hash of the logits behind each.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "engine/engine.h"

namespace ps::engine {

struct Transcript {
  std::vector<int32_t> tokens;
  std::map<int64_t, uint64_t> logits;  // position of the row -> XXH3-64 of its logits
  FinishReason finish = FinishReason::kNone;
  int64_t cached_tokens = 0;

  // Same tokens and same logits.
  friend bool operator==(const Transcript& a, const Transcript& b) {
    return a.tokens == b.tokens && a.logits == b.logits;
  }
  // Whether this is how `whole` began.
  [[nodiscard]] bool begins(const Transcript& whole) const;
};

// Steps an engine and collects the transcripts of all its sequences. REQUIRES: the engine outlives it; one at a time
// per engine.
class Transcriber final : public StepTap {
 public:
  explicit Transcriber(Engine& engine) : engine_(engine) { engine.tap(this); }
  ~Transcriber() override { engine_.tap(nullptr); }
  Transcriber(const Transcriber&) = delete;
  Transcriber& operator=(const Transcriber&) = delete;

  void logits(SequenceId sequence, int64_t position, std::span<const float> values) override;
  void step();
  // Steps until nothing is left to do; false when that does not happen within `most_steps`.
  [[nodiscard]] bool run(int64_t most_steps = 1'000'000);
  // Empty for an unknown sequence.
  [[nodiscard]] const Transcript& of(SequenceId sequence) { return transcripts_[sequence]; }

 private:
  Engine& engine_;
  std::map<SequenceId, Transcript> transcripts_;
};

}  // namespace ps::engine
