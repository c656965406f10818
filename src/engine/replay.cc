#include "engine/replay.h"

#include <algorithm>

#include "base/macros.h"

namespace ps::engine {

int32_t prefill_start(const ReplayRules& rules, Resume how, int32_t prompt, int32_t resume, bool finishes) noexcept {
  if (how == Resume::kFreshSlot) return std::max(0, resume - rules.page_tokens);
  const bool is_short = rules.decoder_replay && finishes && resume > 0 && prompt - resume < rules.window;
  if (!is_short) return resume;
  // One PAGE earlier on the grid; more where PAGEs are so small that the tail would still not fit.
  const int32_t page_tokens = rules.page_tokens;
  const int32_t one_earlier = resume / page_tokens * page_tokens - page_tokens;
  const int32_t whole_tail = (prompt - rules.window) / page_tokens * page_tokens;
  return std::max(0, std::min(one_earlier, whole_tail));
}

PrefillRows prefill_rows(const ReplayRules& rules, Resume how, int32_t prompt, int32_t resume, int32_t end) noexcept {
  PS_DCHECK(resume < end && end <= prompt, resume, end, prompt);  // a chunk never ends among rows that are replayed
  const bool finishes = end == prompt;
  PrefillRows rows;
  rows.start = prefill_start(rules, how, prompt, resume, finishes);
  rows.end = end;
  rows.write_from = rows.start < resume ? resume : 0;
  if (how == Resume::kFreshSlot) {
    rows.window_start = rows.start;
  } else if (rows.start < resume) {
    rows.cached_until = resume;
  }
  rows.decoder_start = rows.start;
  if (rules.decoder_replay) {
    rows.decoder_start = finishes ? std::max(rows.start, end - rules.window) : end;
    // A tail that starts at position 0 misses nothing: the forward is a full prefill.
    rows.decoder_truncated = rows.decoder_start > 0;
  }
  return rows;
}

}  // namespace ps::engine
