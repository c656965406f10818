// One request's life in the engine: its tokens, what of them is in the cache, and what it holds.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cache/ids.h"
#include "cache/page_manager.h"
#include "engine/replay.h"
#include "engine/request.h"

namespace ps::engine {

enum class SequenceState : uint8_t { kWaiting, kRunning, kFinished };

struct Sequence {
  SequenceId id{};
  Request request;
  SequenceState state = SequenceState::kWaiting;
  bool abort_requested = false;

  std::vector<int32_t> tokens;   // prompt, then answer
  std::vector<int32_t> classes;  // Engram: `history` dead entries, then one per token; empty without Engram
  int64_t prompt_tokens = 0;

  // Tokens [0, computed) have their rows in the cache. Up to `target` they are fed as a prompt (after a preemption the
  // answer so far included); behind it one token a step.
  int64_t computed = 0;
  int64_t target = 0;
  int64_t admitted_at = 0;  // the hit of the latest admission
  Resume resume = Resume::kContinue;

  std::vector<cache::PageId> pages;
  cache::PublishCursor published;
  std::optional<cache::SlotId> slot;
  bool slot_needs_zero = false;  // before the next forward
  int64_t image_boundary =
      0;                   // checkpoint mode: where the next image is wanted beside the regular interval; 0 = nowhere
  int64_t last_image = 0;  // position of the newest image or restore

  int64_t cached_tokens = 0;  // hit of the first admission
  bool was_admitted = false;
  int32_t preemptions = 0;
  std::vector<float> prompt_logprobs;
  std::vector<TokenLogprob> prompt_top;  // top_logprobs entries for each of prompt_logprobs
  bool prompt_logprobs_sent = false;

  [[nodiscard]] int64_t length() const noexcept { return static_cast<int64_t>(tokens.size()); }
  [[nodiscard]] int64_t answer_tokens() const noexcept { return length() - prompt_tokens; }
  [[nodiscard]] bool is_prefilling() const noexcept { return computed < target; }
  // What is fed as a prompt is fed in two legs: the request's own prompt, whose end decides which decoder windows are
  // cut, and the answer that a preemption took, whose rows saw whole windows. Then a recomputed sequence has the bits
  // of one that was left alone. A hit behind the prompt leaves one leg: the windows are rebuilt there.
  [[nodiscard]] int64_t leg_end(int64_t position) const noexcept {
    return admitted_at < prompt_tokens && position < prompt_tokens ? prompt_tokens : length();
  }
  [[nodiscard]] bool is_second_leg(int64_t position) const noexcept {
    return admitted_at < prompt_tokens && position >= prompt_tokens;
  }
};

}  // namespace ps::engine
