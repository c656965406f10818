// Bounded replay on the real arithmetic: narrowing gives the bits of a dense run under the same window bounds, and what
// is cached stays untouched (runtime.md 3.11, T3.2-T3.9).
#include <cmath>
#include <cstring>

#include "tests/engine/forward_bench.h"

namespace ps::tests {
namespace {

using engine::LogitRows;
using engine::SequenceRows;

constexpr int32_t kWindow = 40;
constexpr int32_t kPage = 48;
constexpr int32_t kMaxTokens = 480;

// One sequence that fills one pool with all its PAGEs in order.
class Bench {
 public:
  Bench() : forwards_({}, kPage, kMaxTokens / kPage, 1, kMaxTokens) {
    for (int32_t page = 0; page < kMaxTokens / kPage; ++page) pages_.push_back(cache::PageId{page});
    pool().poison_pages(pages_.front(), kMaxTokens / kPage);
    pool().poison_slot(cache::SlotId{0});
  }

  // Runs the planned rows of `prompt`; returns the logits of its last row, empty when none was wanted.
  std::vector<float> run(const std::vector<int32_t>& prompt, const engine::PrefillRows& rows, bool dense = false) {
    std::vector<int32_t> classes(3, checkpoint::kEngramDead);
    for (const int32_t id : prompt) classes.push_back(small_model().token_classes()[static_cast<size_t>(id)]);
    SequenceRows sequence;
    sequence.start = rows.start;
    const auto count = static_cast<size_t>(rows.end - rows.start);
    sequence.ids = std::span(prompt).subspan(static_cast<size_t>(rows.start), count);
    sequence.classes = std::span(classes).subspan(static_cast<size_t>(rows.start), count + 3);
    sequence.pages = pages_;
    sequence.logits = rows.decoder_start < rows.end ? LogitRows::kLast : LogitRows::kNone;
    sequence.window_start = rows.window_start;
    sequence.cached_until = rows.cached_until;
    sequence.write_from = rows.write_from;
    sequence.decoder_start = rows.decoder_start;
    sequence.decoder_window_start = rows.decoder_truncated ? rows.decoder_start : 0;
    const auto& logits = dense ? forwards_.run_dense(sequence) : forwards_.run(sequence);
    return logits.empty() ? std::vector<float>() : logits.rbegin()->second;
  }

  [[nodiscard]] std::vector<std::byte> page_bytes() {
    std::vector<std::byte> bytes;
    for (size_t owner = 0; owner < forwards_.geometry().owners.size(); ++owner) {
      const ops::MainPlane plane = pool().main_plane(static_cast<int>(owner));
      std::vector<int32_t> table;
      for (const cache::PageId page : pages_) table.push_back(cache::ordinal(page));
      for (int64_t row = 0; row < kMaxTokens / plane.ratio; ++row) {
        const std::byte* at = plane.row(table.data(), row);
        bytes.insert(bytes.end(), at, at + ops::row_bytes(plane.format, plane.dim));
      }
      const ops::IndexPlane index = pool().index_plane(static_cast<int>(owner));
      const int64_t index_bytes = kMaxTokens / index.ratio * ops::index_row_bytes(index.format, index.dim);
      // FP4 values and scales are two regions; both are dense over the PAGEs.
      const int64_t value_bytes = index.scales == nullptr ? index_bytes : kMaxTokens / index.ratio * index.dim / 2;
      bytes.insert(bytes.end(), index.values, index.values + value_bytes);
      if (index.scales != nullptr) bytes.insert(bytes.end(), index.scales, index.scales + (index_bytes - value_bytes));
    }
    return bytes;
  }

  [[nodiscard]] std::vector<std::byte> window_row(int layer, int32_t position) {
    const ops::WindowRing ring = pool().window_ring(layer);
    const std::byte* at = ring.row(0, position);
    return {at, at + ops::row_bytes(ring.format, ring.dim)};
  }

 private:
  cache::CachePool& pool() noexcept { return forwards_.pool(); }

  ForwardBench forwards_;
  std::vector<cache::PageId> pages_;
};

engine::ReplayRules rules(bool encoder, bool decoder) { return {kWindow, kPage, encoder, decoder}; }

bool is_finite(const std::vector<float>& values) {
  for (const float value : values) {
    if (!std::isfinite(value)) return false;
  }
  return !values.empty();
}

TEST(ReplayModel, NarrowedDecoderEqualsTheDenseRunWithTheSameWindows) {
  for (const int32_t length : {1, 2, 39, 40, 41, 47, 48, 95, 130, 200}) {
    const std::vector<int32_t> prompt = random_prompt(7, length);
    const auto rows = engine::prefill_rows(rules(false, true), engine::Resume::kContinue, length, 0, length);
    Bench narrowed;
    Bench dense;
    const std::vector<float> logits = narrowed.run(prompt, rows);
    EXPECT_TRUE(is_finite(logits)) << length;
    EXPECT_EQ(logits, dense.run(prompt, rows, true)) << length;
    EXPECT_EQ(narrowed.page_bytes(), dense.page_bytes()) << length;
  }
}

// The same for the other row plans: a short last chunk that backs off, and a prefix hit in a fresh slot.
TEST(ReplayModel, NarrowingIsExactAfterBackOffAndAfterAHit) {
  for (const int32_t resume : {48, 96, 144}) {
    for (const int32_t rest : {1, 25, 39, 60}) {
      const int32_t length = resume + rest;
      const std::vector<int32_t> prompt = random_prompt(17, length);
      for (const engine::Resume how : {engine::Resume::kContinue, engine::Resume::kFreshSlot}) {
        const auto first = engine::prefill_rows(rules(true, true), engine::Resume::kContinue, length, 0, resume);
        const auto last = engine::prefill_rows(rules(true, true), how, length, resume, length);
        Bench narrowed;
        Bench dense;
        (void)narrowed.run(prompt, first);
        (void)dense.run(prompt, first);
        const std::vector<float> logits = narrowed.run(prompt, last);
        EXPECT_TRUE(is_finite(logits));
        EXPECT_EQ(logits, dense.run(prompt, last, true)) << resume << '+' << rest;
        EXPECT_EQ(narrowed.page_bytes(), dense.page_bytes()) << resume << '+' << rest;
      }
    }
  }
}

// T3.2: what is cached for later hits does not depend on decoder replay; the logits of a long prompt do, since windows
// are cut.
TEST(ReplayModel, DecoderReplayLeavesGlobalRowsExact) {
  const std::vector<int32_t> prompt = random_prompt(7, 150);
  Bench on;
  Bench off;
  const std::vector<float> truncated =
      on.run(prompt, engine::prefill_rows(rules(false, true), engine::Resume::kContinue, 150, 0, 150));
  const std::vector<float> exact =
      off.run(prompt, engine::prefill_rows(rules(false, false), engine::Resume::kContinue, 150, 0, 150));
  EXPECT_EQ(on.page_bytes(), off.page_bytes());
  EXPECT_NE(truncated, exact);
}

// Example E: a prompt within the window is a full prefill.
TEST(ReplayModel, ShortPromptsAreExact) {
  const std::vector<int32_t> prompt = random_prompt(7, kWindow);
  Bench on;
  Bench off;
  EXPECT_EQ(on.run(prompt, engine::prefill_rows(rules(false, true), engine::Resume::kContinue, kWindow, 0, kWindow)),
            off.run(prompt, engine::prefill_rows(rules(false, false), engine::Resume::kContinue, kWindow, 0, kWindow)));
}

// The same prompt in two forwards, where PAGEs are shorter than the window: the second starts again at 0, and the
// decoder rings of the first, which ran no decoder, hold nothing.
TEST(ReplayModel, ShortPromptsInTwoChunksAreExact) {
  const engine::ReplayRules small_pages = {kWindow, 16, false, true};
  for (const int32_t length : {17, 25, kWindow}) {
    const std::vector<int32_t> prompt = random_prompt(7, length);
    Bench chunked;
    Bench whole;
    (void)chunked.run(prompt, engine::prefill_rows(small_pages, engine::Resume::kContinue, length, 0, 16));
    const auto last = engine::prefill_rows(small_pages, engine::Resume::kContinue, length, 16, length);
    EXPECT_EQ(last.start, 0);
    EXPECT_EQ(chunked.run(prompt, last),
              whole.run(prompt, engine::prefill_rows(small_pages, engine::Resume::kContinue, length, 0, length)))
        << length;
  }
}

// T3.3, T3.4, T3.7: a short last chunk backs off. Below the resume position PAGEs and encoder rings keep their bytes;
// what the forward adds is what a resume without back-off writes.
TEST(ReplayModel, BackOffKeepsWhatIsCached) {
  for (const int32_t resume : {47, 48, 96, 97, 143}) {
    for (const int32_t rest : {1, 2, 17, 39}) {
      const int32_t length = resume + rest;
      const std::vector<int32_t> prompt = random_prompt(9, length);
      Bench backed_off;
      Bench plain;
      const auto first = engine::prefill_rows(rules(false, true), engine::Resume::kContinue, length, 0, resume);
      (void)backed_off.run(prompt, first);
      (void)plain.run(prompt, first);
      const auto last = engine::prefill_rows(rules(false, true), engine::Resume::kContinue, length, resume, length);
      EXPECT_LT(last.start, resume);
      EXPECT_TRUE(is_finite(backed_off.run(prompt, last))) << resume << '+' << rest;
      (void)plain.run(prompt,
                      engine::prefill_rows(rules(false, false), engine::Resume::kContinue, length, resume, length));
      EXPECT_EQ(backed_off.page_bytes(), plain.page_bytes()) << resume << '+' << rest;
      for (int layer = 0; layer < 3; ++layer) {  // the encoder; layer 3 owns the last compressed rows
        for (int32_t position = std::max(0, length - kWindow); position < length; ++position) {
          EXPECT_EQ(backed_off.window_row(layer, position), plain.window_row(layer, position))
              << "layer " << layer << " position " << position << " of " << resume << '+' << rest;
        }
      }
    }
  }
}

// T3.5, T3.6: a hit starts one PAGE below in a fresh, poisoned slot; PAGEs below the hit keep their bytes, nothing
// unwritten is read.
TEST(ReplayModel, EncoderReplayRebuildsFromOnePageBelow) {
  for (const int32_t hit : {48, 96, 144}) {
    for (const int32_t rest : {1, 2, 30, 41, 60}) {
      const int32_t length = hit + rest;
      const std::vector<int32_t> prompt = random_prompt(11, length);
      Bench bench;
      (void)bench.run(prompt, engine::prefill_rows(rules(true, true), engine::Resume::kContinue, length, 0, hit));
      const std::vector<std::byte> before = bench.page_bytes();
      Bench fresh;
      (void)fresh.run(prompt, engine::prefill_rows(rules(true, true), engine::Resume::kContinue, length, 0, length));
      const auto rows = engine::prefill_rows(rules(true, true), engine::Resume::kFreshSlot, length, hit, length);
      EXPECT_EQ(rows.start, hit - kPage);
      EXPECT_TRUE(is_finite(bench.run(prompt, rows))) << hit << '+' << rest;
      const std::vector<std::byte> after = bench.page_bytes();
      // Rows of positions below the hit: the first hit / ratio rows of each owner's main plane.
      EXPECT_EQ(std::memcmp(before.data(), after.data(), static_cast<size_t>(hit / 2) * 128), 0);
    }
  }
}

// T3.9: lengths against chunk sizes; the next token's forward reads only what was written.
TEST(ReplayModel, EveryLengthAndChunkLeavesACompleteState) {
  for (int32_t length = 1; length <= 3 * kWindow + 2; length += 11) {
    for (const int32_t chunk : {48, 96, 480}) {
      std::vector<int32_t> prompt = random_prompt(13, length + 1);
      const int32_t next = prompt.back();
      prompt.pop_back();
      Bench bench;
      int32_t resume = 0;
      while (resume < length) {
        const int32_t end = std::min(length, resume + chunk);
        (void)bench.run(prompt,
                        engine::prefill_rows(rules(true, true), engine::Resume::kContinue, length, resume, end));
        resume = end;
      }
      prompt.push_back(next);
      engine::PrefillRows decode;
      decode.start = decode.decoder_start = length;
      decode.end = length + 1;
      EXPECT_TRUE(is_finite(bench.run(prompt, decode))) << length << " in chunks of " << chunk;
    }
  }
}

}  // namespace
}  // namespace ps::tests
