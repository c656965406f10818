// PageManager: who holds which PAGE, which free ones still hold a known prefix, and who finds them (runtime.md 2.6).
//
// Every PAGE is in one of four states.
//   vacant  free, without content; handed out first, lowest id first
//   cached  free, still published; handed out when nothing is vacant, least recently freed first
//   used    in one or more block tables, counted; published, standing by for another of equal content, or neither
//   unit    raw bytes of a STATE image (state_images.h)
// Allocation is the eviction event: a cached PAGE keeps its rows and its hash until the moment it is handed out.
// The life of a request: match -> admission_demand against available() -> claim the hits -> reserve the rest -> forward
// -> publish what the forward wrote -> ... -> release.
// Rows of a published PAGE never change. The caller keeps to it: publish() only below the committed length, after the
// forward that wrote the rows is enqueued; nothing writes into a PAGE that came from match().
// Knows no bytes, no requests. After construction only the caller's vectors allocate: reserve their capacity
// beforehand. Threading: one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cache/id_set.h"
#include "cache/ids.h"
#include "cache/prefix_index.h"

namespace ps::cache {

struct PageManagerOptions {
  int32_t pages = 0;
  int64_t page_tokens = 0;              // B
  std::string_view layout_id;           // CacheGeometry::layout_id
  std::string_view name_space;          // whatever else must agree for two requests to share rows: model, weights
  ChainHashFunction hash = chain_hash;  // another one only to force collisions in tests
};

enum class PageState : uint8_t { kVacant, kCached, kUsed, kUnit };

// How far one sequence is published. Value-initialized: nothing yet. It belongs to one block table; a sequence that
// gives its PAGEs back starts a new one.
struct PublishCursor {
  int64_t pages = 0;       // PAGEs of the table that are hashed
  ChainHash hash = {};     // of the last of them; meaningless while pages == 0
  bool is_broken = false;  // the chain met another content under its hash: nothing after it can be named
};

struct PageCounters {
  int64_t vacant = 0;
  int64_t cached = 0;
  int64_t used = 0;
  int64_t units = 0;
  int64_t published = 0;      // all cached ones, and some of the used ones
  int64_t evictions = 0;      // total of cached PAGEs handed out
  int64_t lookup_tokens = 0;  // totals of count_lookup
  int64_t hit_tokens = 0;
};

class PageManager {
 public:
  // Called once per cached PAGE that is handed out, after it lost its hash. It may return units; nothing else.
  using EvictHook = std::function<void(PageId page, ChainHash hash)>;

  explicit PageManager(const PageManagerOptions& options);
  PageManager(const PageManager&) = delete;
  PageManager& operator=(const PageManager&) = delete;

  [[nodiscard]] int32_t count() const noexcept { return static_cast<int32_t>(pages_.size()); }
  [[nodiscard]] int64_t page_tokens() const noexcept { return index_.page_tokens(); }
  // PAGEs that reserve() or take_units() can hand out: vacant and cached.
  [[nodiscard]] int64_t available() const noexcept { return vacant_.size() + cached_count_; }

  // The longest published prefix of `tokens` in whole PAGEs, at most max_tokens long. `pages` becomes its PAGEs, the
  // result its tokens. Pass at most tokens.size() - 1 for a prompt: its last block is computed again, since its logits
  // are needed. Changes nothing: until claim(), any allocation may take a hit away.
  [[nodiscard]] int64_t match(std::span<const int32_t> tokens, int64_t max_tokens, std::vector<PageId>& pages) const;

  // What available() must cover before `hits` can be claimed and `fresh` PAGEs reserved: a hit on a free PAGE uses it
  // up too.
  [[nodiscard]] int64_t admission_demand(std::span<const PageId> hits, int64_t fresh) const noexcept;

  // One more reference to each; a cached PAGE becomes used.
  // REQUIRES: match() gave them, and nothing was allocated since.
  void claim(std::span<const PageId> pages);
  // Appends `fresh` unpublished PAGEs of one reference each. false, and nothing changed, when available() < fresh.
  [[nodiscard]] bool reserve(int64_t fresh, std::vector<PageId>& pages);
  // One reference less to each, the last first, so that the end of a sequence is evicted before its start. A PAGE
  // without references becomes cached when published, else vacant: no two cached PAGEs hold the same.
  // REQUIRES: the caller holds them.
  void release(std::span<const PageId> pages);

  // A cursor for a table that begins with claimed hits, which are published. Broken when the last one has no hash.
  [[nodiscard]] PublishCursor cursor_after(std::span<const PageId> hits) const noexcept;
  // Publishes the full PAGEs below `committed_tokens` that lie behind the cursor. `tokens` are the sequence's, from
  // position 0, at least as many. Content that another PAGE holds already stays published there, and this one stands
  // by. Under a hash that names other content nothing is published, nor anything after it. Costs the new PAGEs only.
  void publish(std::span<const PageId> table, std::span<const int32_t> tokens, int64_t committed_tokens,
               PublishCursor& cursor);

  [[nodiscard]] bool is_published(PageId page) const noexcept { return index_.is_published(page); }
  // REQUIRES: the PAGE is published or stands by.
  [[nodiscard]] ChainHash hash_of(PageId page) const { return index_.hash_of(page); }
  // The PAGE published under `hash`.
  [[nodiscard]] std::optional<PageId> find(ChainHash hash) const noexcept { return index_.find(hash); }

  // Raw units for bytes that are no rows: fills `units`, any ids, or changes nothing when available() is less.
  [[nodiscard]] bool take_units(std::span<PageId> units);
  void return_units(std::span<const PageId> units);
  void on_evict(EvictHook hook) { evict_hook_ = std::move(hook); }

  // Once per admitted request: the tokens it asked match() for, and those it got.
  void count_lookup(int64_t tokens, int64_t hit_tokens) noexcept {
    lookup_tokens_ += tokens;
    hit_tokens_ += hit_tokens;
  }
  [[nodiscard]] PageCounters counters() const noexcept;
  [[nodiscard]] int32_t references(PageId page) const noexcept { return at(page).references; }
  [[nodiscard]] PageState state(PageId page) const noexcept { return at(page).state; }

  // The invariants of runtime.md 2.9 that can be seen from here; internal, with the PAGE and what it contradicts.
  // I1: references are the entries of all block tables plus the units. I2: no PAGE is both free and referenced.
  // I3: a published PAGE has its tokens, and they give its hash. `table_entries` is the caller's count of the PAGEs
  // that its tables hold; without it the number handed out and not released stands in.
  [[nodiscard]] Status check_integrity(std::optional<int64_t> table_entries = {}) const;

 private:
  using State = PageState;
  struct Page {
    int32_t references = 0;
    int32_t newer = kNone;  // neighbours in the order of freeing, while cached
    int32_t older = kNone;
    State state = State::kVacant;
  };
  static constexpr int32_t kNone = -1;

  [[nodiscard]] Page& at(PageId page) noexcept { return pages_[static_cast<size_t>(ordinal(page))]; }
  [[nodiscard]] const Page& at(PageId page) const noexcept { return pages_[static_cast<size_t>(ordinal(page))]; }
  [[nodiscard]] PageId allocate(State state);
  void link_newest(PageId page) noexcept;
  void unlink(PageId page) noexcept;
  void check_held(PageId page, State state) const;
  [[nodiscard]] Status check_page(PageId page) const;

  PrefixIndex index_;
  std::vector<Page> pages_;
  IdSet vacant_;
  int32_t oldest_ = kNone;  // of the cached PAGEs
  int32_t newest_ = kNone;
  int64_t cached_count_ = 0;
  int64_t unit_count_ = 0;
  int64_t entry_count_ = 0;  // references of used PAGEs
  int64_t evictions_ = 0;
  int64_t lookup_tokens_ = 0;
  int64_t hit_tokens_ = 0;
  EvictHook evict_hook_;
};

}  // namespace ps::cache
