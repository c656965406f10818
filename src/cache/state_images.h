// StateImages: copies of STATE slots at PAGE boundaries, kept in PAGE units of the same pool (the "copy" capability,
// runtime.md 2.7.1). An engine that rebuilds windows by replay has none.
//
// An image is keyed by the chain hash of the PAGE that ends at its boundary, and lives no longer than that PAGE is
// published. It holds the window rings and the cursor, not the compressor rings: a boundary is a multiple of every
// ratio, so the first group that is read after it is one that the resumed forward writes. Its bytes fill
// units_per_image() arbitrary PAGEs in a fixed order. All images of one object have one layout id.
//
//   COPYING   units taken, copy queued or under way; nobody finds it
//   READY     found by its hash; evicted least recently used first while nothing pins it
//   EVICTING  found no more; its units return when no restore reads it and no store writes it
//
// The order of one step, which all safety rests on:
//   complete_step(previous batch was real) -> admissions -> run_copies, only for a batch that has rows -> zeroing of
//   fresh slots, cursor, forward -> publish -> queue_store for slots that stand on a boundary.
// An admission pins its image (queue_restore) before make_room and reserve, which could evict that very image.
// run_copies does stores before restores: a slot may pass from a stored request to a restored one between two batches.
// Until then nothing may write to a slot with a queued store, not even zero_slot.
// A store that has not run is given up when KV needs its units; otherwise a pool full of them could admit nobody.
// After construction nothing allocates memory. Threading: one thread at a time, the PageManager's.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cache/geometry.h"
#include "cache/ids.h"
#include "cache/page_manager.h"
#include "cache/pool.h"

namespace ps::cache {

enum class StoreResult : uint8_t {
  kQueued,
  kDuplicate,     // an image of this hash exists or is being copied
  kNotPublished,  // no PAGE has this hash (any more): nobody could hit the boundary
  kNoRoom,        // too few free PAGEs and unpinned images; nothing was evicted
};

struct ImageCounters {
  int64_t copying = 0;
  int64_t ready = 0;
  int64_t pinned = 0;  // of the ready ones
  int64_t evicting = 0;
  int64_t stores = 0;     // totals: images that became ready
  int64_t restores = 0;   // restores that ran
  int64_t evictions = 0;  // images, ready or queued, that were given up
};

class StateImages {
 public:
  // Installs itself as the eviction hook of `pages`, which must outlive it.
  // REQUIRES: the model has owners (paged_bytes > 0).
  StateImages(PageManager& pages, const CacheGeometry& geometry, int32_t slots);
  ~StateImages();
  StateImages(const StateImages&) = delete;
  StateImages& operator=(const StateImages&) = delete;

  [[nodiscard]] int64_t units_per_image() const noexcept { return units_per_image_; }

  // A READY image of this hash.
  [[nodiscard]] bool has_image(ChainHash hash) const noexcept { return find_ready(hash) != kNone; }
  // How many leading PAGEs of a hit can be resumed from: up to the last one whose boundary has a READY image.
  [[nodiscard]] int64_t restorable_pages(std::span<const PageId> hits) const noexcept;

  // PAGEs that live KV can have: free ones and the units of every image that may be evicted. `pinned_next` is left out:
  // the image that the same admission is about to pin.
  [[nodiscard]] int64_t available(std::optional<ChainHash> pinned_next = {}) const noexcept;
  // Evicts images until PageManager::available() >= pages, and no more. false, and nothing evicted, when it cannot.
  [[nodiscard]] bool make_room(int64_t pages);

  // Queues a copy of `slot`, which stands at `tokens`, the boundary that `hash` names.
  // REQUIRES: tokens is a positive multiple of the PAGE size; elsewhere half a group would be lost.
  [[nodiscard]] StoreResult queue_store(ChainHash hash, int64_t tokens, SlotId slot);
  // Queues the copy of a READY image into `slot` and pins the image until the batch that reads it completes. false when
  // there is none, or when `layout_id`, that of the pool of `slot`, is not the images' own: no byte is read then.
  // REQUIRES: no restore into `slot` is queued.
  [[nodiscard]] bool queue_restore(ChainHash hash, SlotId slot, std::string_view layout_id);
  // Takes back a restore that has not run, if there is one: the request is cancelled or could not be admitted.
  void cancel_restore(SlotId slot);

  // Copies what is queued, stores first. REQUIRES: the layout of `pool` is the images' own; each stored slot still
  // stands at its boundary.
  void run_copies(CachePool& pool);
  // A real batch makes its stored images READY and drops its pins; an empty one carried nothing.
  void complete_step(bool batch_was_real);

  [[nodiscard]] ImageCounters counters() const noexcept;
  // internal, with the image and what it contradicts.
  [[nodiscard]] Status check_integrity() const;

 private:
  enum class State : uint8_t { kUnused, kCopying, kReady, kEvicting };
  struct Image {
    ChainHash hash = {};
    PageId page = {};  // published under hash while the image is indexed
    int64_t tokens = 0;
    int32_t pins = 0;
    int32_t newer = kNone;  // neighbours in the order of use, while READY and unpinned
    int32_t older = kNone;
    State state = State::kUnused;
    bool has_writer = false;  // a store into its units is queued or under way
  };
  struct Copy {
    int32_t image = kNone;
    SlotId slot = {};
  };
  static constexpr int32_t kNone = -1;

  [[nodiscard]] Image& at(int32_t image) noexcept { return images_[static_cast<size_t>(image)]; }
  [[nodiscard]] const Image& at(int32_t image) const noexcept { return images_[static_cast<size_t>(image)]; }
  [[nodiscard]] std::span<PageId> units_of(int32_t image) noexcept {
    return std::span(units_).subspan(static_cast<size_t>(image * units_per_image_),
                                     static_cast<size_t>(units_per_image_));
  }
  [[nodiscard]] int32_t find_ready(ChainHash hash) const noexcept;
  [[nodiscard]] int64_t queued_stores() const noexcept { return std::ssize(stores_) - stores_run_; }
  void page_evicted(PageId page);
  void evict(int32_t image);
  void retire_if_idle(int32_t image);
  void unpin(int32_t image);
  void link_newest(int32_t image) noexcept;
  void unlink(int32_t image) noexcept;

  PageManager& pages_;
  std::string layout_id_;
  int64_t page_tokens_ = 0;
  int64_t units_per_image_ = 0;
  std::vector<Image> images_;
  std::vector<PageId> units_;           // [images, units_per_image]
  std::vector<int32_t> unused_;         // images without units; capacity for all
  std::vector<int32_t> image_of_page_;  // [pages] the indexed image of the hash that the PAGE is published under
  std::vector<Copy> stores_;            // those that ran, then those queued
  std::vector<Copy> restores_;          // likewise
  int64_t stores_run_ = 0;
  int64_t restores_run_ = 0;
  int32_t oldest_ = kNone;  // of the READY and unpinned images
  int32_t newest_ = kNone;
  int64_t evictable_count_ = 0;
  int64_t total_stores_ = 0;
  int64_t total_restores_ = 0;
  int64_t total_evictions_ = 0;
};

}  // namespace ps::cache
