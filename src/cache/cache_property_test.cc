// Random lives of many sequences against naive models: every choice of PageManager is predicted, and every image that
// is restored has the bytes that were stored. A failure names its seed and step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/pcg64.h"
#include "cache/page_manager.h"
#include "cache/state_images.h"
#include "cache/state_slots.h"
#include "cache/testing.h"

namespace ps::cache {
namespace {

using Tokens = std::vector<int32_t>;

// PageManager as its contract says it, with whole prefixes for hashes and no thought of cost.
class NaiveManager {
 public:
  NaiveManager(int32_t pages, int64_t page_tokens) : page_tokens_(page_tokens) {
    for (int32_t page = 0; page < pages; ++page) vacant_.insert(page);
  }

  Tokens match(const Tokens& tokens, int64_t max_tokens) const {
    Tokens pages;
    for (int64_t end = page_tokens_; end <= max_tokens; end += page_tokens_) {
      const auto found = pages_of_.find(Tokens(tokens.begin(), tokens.begin() + end));
      if (found == pages_of_.end()) break;
      pages.push_back(found->second.front());
    }
    return pages;
  }
  bool is_free(int32_t page) const { return !references_.contains(page); }
  int64_t available() const { return std::ssize(vacant_) + std::ssize(cached_); }
  void claim(const Tokens& pages) {
    for (const int32_t page : pages) {
      std::erase(cached_, page);
      ++references_[page];
    }
  }
  int32_t allocate() {
    int32_t page = 0;
    if (!vacant_.empty()) {
      page = *vacant_.begin();
      vacant_.erase(vacant_.begin());
    } else {
      page = cached_.front();
      cached_.pop_front();
      forget(page);
    }
    references_[page] = 1;
    return page;
  }
  void release(const Tokens& pages) {
    for (auto page = pages.rbegin(); page != pages.rend(); ++page) {
      if (--references_[*page] > 0) continue;
      references_.erase(*page);
      if (prefix_of_.contains(*page) && pages_of_[prefix_of_[*page]].front() == *page) {
        cached_.push_back(*page);
      } else {
        if (prefix_of_.contains(*page)) forget(*page);
        vacant_.insert(*page);
      }
    }
  }
  void publish(const Tokens& table, const Tokens& tokens, int64_t committed) {
    for (int64_t block = 0; (block + 1) * page_tokens_ <= committed; ++block) {
      const Tokens prefix(tokens.begin(), tokens.begin() + (block + 1) * page_tokens_);
      const int32_t page = table[static_cast<size_t>(block)];
      if (prefix_of_.contains(page)) continue;
      pages_of_[prefix].push_back(page);
      prefix_of_[page] = prefix;
    }
  }
  int64_t vacant() const { return std::ssize(vacant_); }
  int64_t cached() const { return std::ssize(cached_); }
  int64_t published() const { return std::ssize(pages_of_); }

 private:
  void forget(int32_t page) {
    std::deque<int32_t>& pages = pages_of_[prefix_of_[page]];
    std::erase(pages, page);
    if (pages.empty()) pages_of_.erase(prefix_of_[page]);
    prefix_of_.erase(page);
  }

  int64_t page_tokens_;
  std::set<int32_t> vacant_;
  std::deque<int32_t> cached_;
  std::map<int32_t, int32_t> references_;
  std::map<Tokens, std::deque<int32_t>> pages_of_;  // the published one first
  std::map<int32_t, Tokens> prefix_of_;
};

// Drives both through the same random operations.
class ManagerPair {
 public:
  explicit ManagerPair(uint64_t seed)
      : random_(seed),
        count_(static_cast<int32_t>(random_.integer(1, 40))),
        page_tokens_(random_.integer(1, 6)),
        pages_({.pages = count_, .page_tokens = page_tokens_, .layout_id = "layout", .name_space = ""}),
        naive_(count_, page_tokens_) {}

  void step() {
    switch (random_.integer(0, 8)) {
      case 0:
      case 1: admit(); break;
      case 2:
      case 3: grow(); break;
      case 4:
      case 5: commit(); break;
      case 6: leave(); break;
      case 7: units(); break;
    }
    check();
  }

 private:
  struct Sequence {
    Tokens tokens;
    std::vector<PageId> table;
    PublishCursor cursor;
    int64_t committed = 0;
  };

  static Tokens plain(std::span<const PageId> pages) {
    Tokens ids;
    for (const PageId page : pages) ids.push_back(ordinal(page));
    return ids;
  }
  // Prompts share prefixes: two letters per block, mostly the first.
  Tokens draw_tokens(int64_t count) {
    Tokens tokens;
    while (std::ssize(tokens) < count) {
      const int32_t letter = random_.integer(0, 5) == 0 ? 1 : 0;
      tokens.insert(tokens.end(), static_cast<size_t>(page_tokens_), letter);
    }
    tokens.resize(static_cast<size_t>(count));
    return tokens;
  }
  void expect_reserved(int64_t fresh, std::vector<PageId>& table) {
    const size_t before = table.size();
    const bool fits = fresh <= naive_.available();
    ASSERT_EQ(pages_.reserve(fresh, table), fits);
    ASSERT_EQ(table.size(), before + static_cast<size_t>(fits ? fresh : 0));
    for (size_t i = before; i < table.size(); ++i) ASSERT_EQ(ordinal(table[i]), naive_.allocate());
  }

  void admit() {
    Sequence sequence;
    sequence.tokens = draw_tokens(random_.integer(1, 8 * page_tokens_));
    const int64_t length = std::ssize(sequence.tokens);
    const int64_t hit = pages_.match(sequence.tokens, length - 1, sequence.table);
    const Tokens expected = naive_.match(sequence.tokens, length - 1);
    ASSERT_EQ(plain(sequence.table), expected);
    ASSERT_EQ(hit, std::ssize(expected) * page_tokens_);
    const int64_t fresh = (length + page_tokens_ - 1) / page_tokens_ - std::ssize(expected);
    const int64_t free_hits = std::ranges::count_if(expected, [this](int32_t page) { return naive_.is_free(page); });
    ASSERT_EQ(pages_.admission_demand(sequence.table, fresh), fresh + free_hits);
    if (fresh + free_hits > naive_.available()) return;
    pages_.claim(sequence.table);
    naive_.claim(expected);
    sequence.cursor = pages_.cursor_after(sequence.table);
    sequence.committed = hit;
    expect_reserved(fresh, sequence.table);
    sequences_.push_back(std::move(sequence));
  }
  void grow() {
    if (sequences_.empty()) return;
    Sequence& sequence = pick();
    const Tokens more = draw_tokens(random_.integer(1, 2 * page_tokens_ + 1));
    const int64_t length = std::ssize(sequence.tokens) + std::ssize(more);
    const int64_t fresh = (length + page_tokens_ - 1) / page_tokens_ - std::ssize(sequence.table);
    const size_t before = sequence.table.size();
    expect_reserved(fresh, sequence.table);
    if (fresh > 0 && sequence.table.size() == before) return;
    sequence.tokens.insert(sequence.tokens.end(), more.begin(), more.end());
  }
  void commit() {
    if (sequences_.empty()) return;
    Sequence& sequence = pick();
    sequence.committed = random_.integer(sequence.committed, std::ssize(sequence.tokens) + 1);
    pages_.publish(sequence.table, sequence.tokens, sequence.committed, sequence.cursor);
    naive_.publish(plain(sequence.table), sequence.tokens, sequence.committed);
    ASSERT_FALSE(sequence.cursor.is_broken);
    ASSERT_EQ(sequence.cursor.pages, sequence.committed / page_tokens_);
  }
  void leave() {
    if (sequences_.empty()) return;
    Sequence& sequence = pick();
    pages_.release(sequence.table);
    naive_.release(plain(sequence.table));
    std::swap(sequence, sequences_.back());
    sequences_.pop_back();
  }
  void units() {
    if (random_.integer(0, 2) == 0 && !units_.empty()) {
      pages_.return_units(units_.back());
      Tokens reversed = plain(units_.back());
      naive_.release(reversed);
      units_.pop_back();
      return;
    }
    std::vector<PageId> units(static_cast<size_t>(random_.integer(1, 5)));
    const bool fits = std::ssize(units) <= naive_.available();
    ASSERT_EQ(pages_.take_units(units), fits);
    if (!fits) return;
    for (const PageId unit : units) ASSERT_EQ(ordinal(unit), naive_.allocate());
    units_.push_back(std::move(units));
  }
  Sequence& pick() { return sequences_[static_cast<size_t>(random_.integer(0, std::ssize(sequences_)))]; }
  void check() {
    int64_t entries = 0;
    for (const Sequence& sequence : sequences_) entries += std::ssize(sequence.table);
    const Status status = pages_.check_integrity(entries);
    ASSERT_TRUE(status.ok()) << status.to_string();
    const PageCounters counters = pages_.counters();
    ASSERT_EQ(counters.vacant, naive_.vacant());
    ASSERT_EQ(counters.cached, naive_.cached());
    ASSERT_EQ(counters.published, naive_.published());
    ASSERT_EQ(pages_.available(), naive_.available());
  }

  Pcg64 random_;
  int32_t count_;
  int64_t page_tokens_;
  PageManager pages_;
  NaiveManager naive_;
  std::vector<Sequence> sequences_;
  std::vector<std::vector<PageId>> units_;
};

TEST(CacheProperty, ManagerFollowsTheNaiveModel) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    ManagerPair pair(seed);
    for (int step = 0; step < 400; ++step) {
      pair.step();
      if (HasFatalFailure()) FAIL() << "seed " << seed << ", step " << step;
    }
  }
}

// An engine in the small: sequences that hold PAGEs and a slot, advance by whole PAGEs, store and restore images, leave
// at any moment. A slot's bytes are a function of the tokens that its sequence has seen, so a restored one shows whose
// they are.
class ImageEngine {
 public:
  explicit ImageEngine(uint64_t seed)
      : random_(seed),
        count_(static_cast<int32_t>(random_.integer(6, 50))),
        geometry_(
            test::small_geometry({.format = {MainFormat::kFp4, ops::IndexFormat::kFp4}, .page_tokens = kPageTokens})),
        pool_(CachePool::allocate(geometry_, count_, kSlots).value()),
        pages_({.pages = count_, .page_tokens = kPageTokens, .layout_id = geometry_.layout_id, .name_space = ""}),
        slots_(kSlots),
        images_(pages_, geometry_, kSlots) {}

  void step() {
    images_.complete_step(batch_was_real_);
    check();
    for (int64_t leaving = random_.integer(0, 2); leaving > 0 && !running_.empty(); --leaving) leave();
    for (int64_t coming = random_.integer(0, 3); coming > 0; --coming) admit();
    check();
    // A batch without rows now and then: nothing is copied for it.
    batch_was_real_ = !running_.empty() && random_.integer(0, 6) != 0;
    if (!batch_was_real_) return;
    images_.run_copies(pool_);
    for (Sequence& sequence : running_) forward(sequence);
    check();
  }

  void drain() {
    while (!running_.empty()) leave();
    images_.complete_step(batch_was_real_);
    EXPECT_EQ(images_.available(), count_);
    EXPECT_TRUE(images_.make_room(count_));
    EXPECT_EQ(pages_.available(), count_);
    EXPECT_EQ(slots_.available(), kSlots);
    check();
  }
  int64_t restores() const { return images_.counters().restores; }
  int64_t evictions() const { return images_.counters().evictions; }

 private:
  static constexpr int64_t kPageTokens = 16;
  static constexpr int32_t kSlots = 4;
  struct Sequence {
    Tokens tokens;  // of the whole prompt
    std::vector<PageId> table;
    PublishCursor cursor;
    SlotId slot = {};
    int64_t position = 0;
    bool must_zero = false;
    bool was_restored = false;
  };

  void admit() {
    Sequence sequence;
    for (int64_t block = random_.integer(2, 7); block > 0; --block) {
      sequence.tokens.insert(sequence.tokens.end(), static_cast<size_t>(kPageTokens),
                             random_.integer(0, 4) == 0 ? 1 : 0);
    }
    const auto length = std::ssize(sequence.tokens);
    (void)pages_.match(sequence.tokens, length - 1, sequence.table);
    sequence.table.resize(static_cast<size_t>(images_.restorable_pages(sequence.table)));
    const int64_t fresh = length / kPageTokens - std::ssize(sequence.table);
    const std::optional<SlotId> slot = slots_.take();
    if (!slot) return;
    const bool hit = !sequence.table.empty();
    std::optional<ChainHash> hash;
    if (hit) hash = pages_.hash_of(sequence.table.back());
    const int64_t demand = pages_.admission_demand(sequence.table, fresh);
    const bool fits = demand <= images_.available(hash);
    if (hit) {
      ASSERT_TRUE(images_.queue_restore(*hash, *slot, geometry_.layout_id));
    }
    ASSERT_EQ(images_.make_room(demand), fits);
    if (!fits) {
      images_.cancel_restore(*slot);
      slots_.release(*slot);
      return;
    }
    pages_.claim(sequence.table);
    sequence.cursor = pages_.cursor_after(sequence.table);
    sequence.position = std::ssize(sequence.table) * kPageTokens;
    ASSERT_TRUE(pages_.reserve(fresh, sequence.table));
    sequence.slot = *slot;
    sequence.must_zero = !hit;
    sequence.was_restored = hit;
    running_.push_back(std::move(sequence));
  }

  void leave() {
    Sequence& sequence = running_[static_cast<size_t>(random_.integer(0, std::ssize(running_)))];
    images_.cancel_restore(sequence.slot);
    pages_.release(sequence.table);
    slots_.release(sequence.slot);
    std::swap(sequence, running_.back());
    running_.pop_back();
  }

  // What the rings and the history hold after `position` tokens of this prompt.
  void expect_or_write(const Sequence& sequence, bool write) {
    uint64_t seed = static_cast<uint64_t>(sequence.position);
    for (int64_t block = 0; block < sequence.position / kPageTokens; ++block) {
      seed = seed * 3 + static_cast<uint64_t>(sequence.tokens[static_cast<size_t>(block * kPageTokens)]) + 1;
    }
    const auto rings = pool_.slot_bytes(sequence.slot).first(static_cast<size_t>(geometry_.window_bytes()));
    if (write) pool_.poison_slot(sequence.slot);
    for (size_t i = 0; i < rings.size(); ++i) {
      const auto expected = static_cast<std::byte>((seed * 0x9E3779B97F4A7C15u + i * 0xD1B54A32D192ED03u) >> 56);
      if (write) rings[i] = expected;
      if (rings[i] != expected) FAIL() << "ring byte " << i << " at position " << sequence.position;
    }
    if (write) pool_.position(sequence.slot) = sequence.position;
    if (write) pool_.history(sequence.slot)[2] = static_cast<int64_t>(seed);
    ASSERT_EQ(pool_.position(sequence.slot), sequence.position);
    ASSERT_EQ(pool_.history(sequence.slot)[2], static_cast<int64_t>(seed));
  }

  void forward(Sequence& sequence) {
    if (std::exchange(sequence.must_zero, false)) pool_.zero_slot(sequence.slot);
    if (sequence.position > 0) expect_or_write(sequence, false);
    if (sequence.position == std::ssize(sequence.tokens)) return;
    // Rows written into somebody else's units would show in the next restore of that image.
    pool_.poison_pages(sequence.table[static_cast<size_t>(sequence.position / kPageTokens)], 1);
    sequence.position += kPageTokens;
    expect_or_write(sequence, true);
    pages_.publish(sequence.table, sequence.tokens, sequence.position, sequence.cursor);
    if (random_.integer(0, 3) != 0) (void)images_.queue_store(sequence.cursor.hash, sequence.position, sequence.slot);
  }

  void check() {
    int64_t entries = 0;
    for (const Sequence& sequence : running_) entries += std::ssize(sequence.table);
    Status status = pages_.check_integrity(entries);
    ASSERT_TRUE(status.ok()) << status.to_string();
    status = images_.check_integrity();
    ASSERT_TRUE(status.ok()) << status.to_string();
  }

  Pcg64 random_;
  int32_t count_;
  CacheGeometry geometry_;
  CachePool pool_;
  PageManager pages_;
  StateSlots slots_;
  StateImages images_;
  std::vector<Sequence> running_;
  bool batch_was_real_ = false;
};

TEST(CacheProperty, RestoredImagesAreTheStoredOnes) {
  int64_t restores = 0;
  int64_t evictions = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    ImageEngine engine(seed);
    for (int step = 0; step < 150; ++step) {
      engine.step();
      if (HasFailure()) FAIL() << "seed " << seed << ", step " << step;
    }
    engine.drain();
    if (HasFailure()) FAIL() << "seed " << seed << ", drained";
    restores += engine.restores();
    evictions += engine.evictions();
  }
  EXPECT_GT(restores, 500);
  EXPECT_GT(evictions, 500);
}

}  // namespace
}  // namespace ps::cache
