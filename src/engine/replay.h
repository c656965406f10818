// Bounded replay as pure arithmetic: which rows a prefill forward runs, and what each may read and write (runtime.md
// 3).
//
// Encoder replay: a prefix hit restores no window state; the forward starts one PAGE below the hit in a fresh slot and
// rebuilds it. Decoder replay: layers from the last KV owner on run only for the last W rows of the forward that
// finishes the prompt. W = sliding window, H = PAGE = hash block. "Row" and "position" are the same number here.
#pragma once

#include <cstdint>

namespace ps::engine {

struct ReplayRules {
  int32_t window = 0;       // W
  int32_t page_tokens = 0;  // H
  bool encoder_replay = true;
  bool decoder_replay = true;
};

// What the rows [start, end) of one request do in a prefill forward.
struct PrefillRows {
  int32_t start = 0;  // <= the resume position
  int32_t end = 0;
  int32_t window_start = 0;  // encoder layers: lowest position that any window reads
  int32_t cached_until = 0;  // encoder rings keep the rows below it; 0 for a fresh slot
  int32_t write_from = 0;    // compressed groups that end below it are not written
  // Decoder layers run rows [decoder_start, end); none when decoder_start == end. With decoder replay a window reads
  // nothing below decoder_start.
  int32_t decoder_start = 0;
  bool decoder_truncated = false;
};

// How a request comes to its resume position.
enum class Resume : uint8_t {
  kContinue,   // its own slot holds the state of that position (also position 0 and a restored image)
  kFreshSlot,  // a prefix hit whose window state must be rebuilt
};

// Where the forward that continues at `resume` begins, before its end is known: at the resume position, or one PAGE or
// more below it for a rebuild. `finishes` says that it will reach `prompt`.
[[nodiscard]] int32_t prefill_start(const ReplayRules& rules, Resume how, int32_t prompt, int32_t resume,
                                    bool finishes) noexcept;

// REQUIRES: resume < end <= prompt.
[[nodiscard]] PrefillRows prefill_rows(const ReplayRules& rules, Resume how, int32_t prompt, int32_t resume,
                                       int32_t end) noexcept;

}  // namespace ps::engine
