#include "engine/transcript.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

namespace ps::engine {

bool Transcript::begins(const Transcript& whole) const {
  if (tokens.size() > whole.tokens.size() || !std::equal(tokens.begin(), tokens.end(), whole.tokens.begin()))
    return false;
  return std::all_of(logits.begin(), logits.end(), [&](const auto& entry) {
    const auto found = whole.logits.find(entry.first);
    return found != whole.logits.end() && found->second == entry.second;
  });
}

void Transcriber::logits(SequenceId sequence, int64_t position, std::span<const float> values) {
  transcripts_[sequence].logits[position] = XXH3_64bits(values.data(), values.size_bytes());
}

void Transcriber::step() {
  for (const Event& event : engine_.step()) {
    Transcript& transcript = transcripts_[event.sequence];
    if (event.token >= 0) transcript.tokens.push_back(event.token);
    if (event.finish != FinishReason::kNone) transcript.finish = event.finish;
    transcript.cached_tokens = event.cached_tokens;
  }
}

bool Transcriber::run(int64_t most_steps) {
  for (int64_t count = 0; engine_.has_work(); ++count) {
    if (count == most_steps) return false;
    step();
  }
  return true;
}

}  // namespace ps::engine
