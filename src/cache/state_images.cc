#include "cache/state_images.h"

#include <algorithm>
#include <cstring>

#include "base/macros.h"
#include "cache/integrity.h"

namespace ps::cache {
namespace {

// The bytes of PAGE units as one stream, in the order of the units and of the parts of each.
class UnitStream {
 public:
  UnitStream(CachePool& pool, std::span<const PageId> units) noexcept : pool_(pool), units_(units) {}

  // The next bytes that are contiguous, at most `limit`, at least one. REQUIRES: the units are not used up.
  std::span<std::byte> next(size_t limit) noexcept {
    while (rest_.empty()) {
      rest_ = pool_.page_part(units_.front(), part_);
      if (++part_ < pool_.layout().page_parts()) continue;
      part_ = 0;
      units_ = units_.subspan(1);
    }
    const std::span<std::byte> piece = rest_.first(std::min(limit, rest_.size()));
    rest_ = rest_.subspan(piece.size());
    return piece;
  }

 private:
  CachePool& pool_;
  std::span<const PageId> units_;
  std::span<std::byte> rest_;
  int part_ = 0;
};

enum class Direction : uint8_t { kStore, kRestore };

void copy_image(CachePool& pool, std::span<const PageId> units, SlotId slot, Direction direction) noexcept {
  UnitStream stream(pool, units);
  const auto rings = pool.slot_bytes(slot).first(static_cast<size_t>(pool.geometry().window_bytes()));
  for (std::span<std::byte> left : {rings, std::as_writable_bytes(pool.cursor(slot))}) {
    while (!left.empty()) {
      const std::span<std::byte> piece = stream.next(left.size());
      if (direction == Direction::kStore) {
        std::memcpy(piece.data(), left.data(), piece.size());
      } else {
        std::memcpy(left.data(), piece.data(), piece.size());
      }
      left = left.subspan(piece.size());
    }
  }
}

}  // namespace

StateImages::StateImages(PageManager& pages, const CacheGeometry& geometry, int32_t slots)
    : pages_(pages),
      layout_id_(geometry.layout_id),
      page_tokens_(geometry.options.page_tokens),
      units_per_image_(geometry.pages_per_state_image()) {
  PS_CHECK(units_per_image_ > 0, "a model without owners has no PAGE to keep an image in");
  PS_CHECK(page_tokens_ == pages.page_tokens(), page_tokens_, pages.page_tokens());
  const auto count = static_cast<size_t>(pages.count() / units_per_image_);
  images_.resize(count);
  units_.resize(count * static_cast<size_t>(units_per_image_));
  for (size_t image = count; image-- > 0;) unused_.push_back(static_cast<int32_t>(image));
  image_of_page_.resize(static_cast<size_t>(pages.count()), kNone);
  stores_.reserve(count);
  restores_.reserve(2 * static_cast<size_t>(slots));  // one that ran and one that is queued per slot
  pages_.on_evict([this](PageId page, ChainHash) { page_evicted(page); });
}

StateImages::~StateImages() { pages_.on_evict({}); }

int32_t StateImages::find_ready(ChainHash hash) const noexcept {
  const std::optional<PageId> page = pages_.find(hash);
  const int32_t image = page ? image_of_page_[static_cast<size_t>(ordinal(*page))] : kNone;
  return image != kNone && at(image).state == State::kReady ? image : kNone;
}

int64_t StateImages::restorable_pages(std::span<const PageId> hits) const noexcept {
  for (size_t count = hits.size(); count > 0; --count) {
    const int32_t image = image_of_page_[static_cast<size_t>(ordinal(hits[count - 1]))];
    if (image != kNone && at(image).state == State::kReady) return static_cast<int64_t>(count);
  }
  return 0;
}

int64_t StateImages::available(std::optional<ChainHash> pinned_next) const noexcept {
  int64_t images = evictable_count_ + queued_stores();
  if (pinned_next) {
    const int32_t image = find_ready(*pinned_next);
    if (image != kNone && at(image).pins == 0) --images;
  }
  return pages_.available() + images * units_per_image_;
}

bool StateImages::make_room(int64_t pages) {
  if (pages > available()) return false;
  while (pages_.available() < pages)
    evict(oldest_ != kNone ? oldest_ : stores_[static_cast<size_t>(stores_run_)].image);
  return true;
}

StoreResult StateImages::queue_store(ChainHash hash, int64_t tokens, SlotId slot) {
  PS_CHECK(tokens > 0 && tokens % page_tokens_ == 0, tokens, "is no boundary of PAGEs of", page_tokens_);
  const std::optional<PageId> page = pages_.find(hash);
  if (!page) return StoreResult::kNotPublished;
  if (image_of_page_[static_cast<size_t>(ordinal(*page))] != kNone) return StoreResult::kDuplicate;
  // Queued stores keep their units: this one would give up an equally fresh image for its own.
  if (unused_.empty() || units_per_image_ > pages_.available() + evictable_count_ * units_per_image_) {
    return StoreResult::kNoRoom;
  }
  while (pages_.available() < units_per_image_) evict(oldest_);
  const int32_t image = unused_.back();
  unused_.pop_back();
  PS_CHECK(pages_.take_units(units_of(image)));
  if (pages_.find(hash) != page) {  // the units took the very PAGE: nobody else held it
    pages_.return_units(units_of(image));
    unused_.push_back(image);
    return StoreResult::kNotPublished;
  }
  at(image) = {.hash = hash, .page = *page, .tokens = tokens, .state = State::kCopying, .has_writer = true};
  image_of_page_[static_cast<size_t>(ordinal(*page))] = image;
  stores_.push_back({image, slot});
  return StoreResult::kQueued;
}

bool StateImages::queue_restore(ChainHash hash, SlotId slot, std::string_view layout_id) {
  if (layout_id != layout_id_) return false;
  const int32_t image = find_ready(hash);
  if (image == kNone) return false;
  const auto queued = std::span(restores_).subspan(static_cast<size_t>(restores_run_));
  PS_CHECK(std::ranges::none_of(queued, [slot](const Copy& copy) { return copy.slot == slot; }), "slot", ordinal(slot));
  if (at(image).pins++ == 0) unlink(image);
  restores_.push_back({image, slot});
  return true;
}

void StateImages::cancel_restore(SlotId slot) {
  const auto queued = restores_.begin() + restores_run_;
  const auto found = std::find_if(queued, restores_.end(), [slot](const Copy& copy) { return copy.slot == slot; });
  if (found == restores_.end()) return;
  const int32_t image = found->image;
  restores_.erase(found);
  unpin(image);
}

void StateImages::run_copies(CachePool& pool) {
  PS_CHECK(pool.geometry().layout_id == layout_id_, pool.geometry().layout_id, layout_id_);
  for (; stores_run_ < std::ssize(stores_); ++stores_run_) {
    const Copy& copy = stores_[static_cast<size_t>(stores_run_)];
    PS_CHECK(pool.position(copy.slot) == at(copy.image).tokens, "slot", ordinal(copy.slot), "left its boundary",
             at(copy.image).tokens, "for", pool.position(copy.slot));
    copy_image(pool, units_of(copy.image), copy.slot, Direction::kStore);
  }
  for (; restores_run_ < std::ssize(restores_); ++restores_run_) {
    const Copy& copy = restores_[static_cast<size_t>(restores_run_)];
    copy_image(pool, units_of(copy.image), copy.slot, Direction::kRestore);
    ++total_restores_;
  }
}

void StateImages::complete_step(bool batch_was_real) {
  if (!batch_was_real) return;
  for (const Copy& copy : std::span(stores_).first(static_cast<size_t>(stores_run_))) {
    at(copy.image).has_writer = false;
    if (at(copy.image).state == State::kCopying) {
      at(copy.image).state = State::kReady;
      link_newest(copy.image);
      ++total_stores_;
    } else {
      retire_if_idle(copy.image);
    }
  }
  for (const Copy& copy : std::span(restores_).first(static_cast<size_t>(restores_run_))) unpin(copy.image);
  stores_.erase(stores_.begin(), stores_.begin() + stores_run_);
  restores_.erase(restores_.begin(), restores_.begin() + restores_run_);
  stores_run_ = 0;
  restores_run_ = 0;
}

void StateImages::page_evicted(PageId page) {
  const int32_t image = image_of_page_[static_cast<size_t>(ordinal(page))];
  if (image != kNone) evict(image);
}

// Nobody finds the image from here on. A store that has not run is dropped, so that only what really touches the units
// keeps them.
void StateImages::evict(int32_t image) {
  image_of_page_[static_cast<size_t>(ordinal(at(image).page))] = kNone;
  ++total_evictions_;
  if (at(image).state == State::kReady && at(image).pins == 0) unlink(image);
  const auto queued = stores_.begin() + stores_run_;
  const auto found = std::find_if(queued, stores_.end(), [image](const Copy& copy) { return copy.image == image; });
  if (found != stores_.end()) {
    stores_.erase(found);
    at(image).has_writer = false;
  }
  at(image).state = State::kEvicting;
  retire_if_idle(image);
}

void StateImages::retire_if_idle(int32_t image) {
  if (at(image).pins > 0 || at(image).has_writer) return;
  pages_.return_units(units_of(image));
  at(image) = {};
  unused_.push_back(image);
}

void StateImages::unpin(int32_t image) {
  PS_CHECK(at(image).pins > 0, "image", image);
  if (--at(image).pins > 0) return;
  if (at(image).state == State::kReady) {
    link_newest(image);
  } else {
    retire_if_idle(image);
  }
}

void StateImages::link_newest(int32_t image) noexcept {
  at(image).older = newest_;
  at(image).newer = kNone;
  (newest_ == kNone ? oldest_ : at(newest_).newer) = image;
  newest_ = image;
  ++evictable_count_;
}

void StateImages::unlink(int32_t image) noexcept {
  const Image& links = at(image);
  (links.older == kNone ? oldest_ : at(links.older).newer) = links.newer;
  (links.newer == kNone ? newest_ : at(links.newer).older) = links.older;
  --evictable_count_;
}

ImageCounters StateImages::counters() const noexcept {
  ImageCounters counters;
  for (const Image& image : images_) {
    counters.copying += image.state == State::kCopying ? 1 : 0;
    counters.ready += image.state == State::kReady ? 1 : 0;
    counters.pinned += image.state == State::kReady && image.pins > 0 ? 1 : 0;
    counters.evicting += image.state == State::kEvicting ? 1 : 0;
  }
  counters.stores = total_stores_;
  counters.restores = total_restores_;
  counters.evictions = total_evictions_;
  return counters;
}

Status StateImages::check_integrity() const {
  std::vector<int32_t> pins(images_.size(), 0);
  std::vector<int32_t> writers(images_.size(), 0);
  for (const Copy& copy : restores_) ++pins[static_cast<size_t>(copy.image)];
  for (const Copy& copy : stores_) ++writers[static_cast<size_t>(copy.image)];
  int64_t held = 0;
  int64_t indexed = 0;
  int64_t evictable = 0;
  for (int32_t id = 0; id < std::ssize(images_); ++id) {
    const Image& image = at(id);
    const bool is_indexed = image.state == State::kCopying || image.state == State::kReady;
    held += image.state == State::kUnused ? 0 : 1;
    indexed += is_indexed ? 1 : 0;
    evictable += image.state == State::kReady && image.pins == 0 ? 1 : 0;
    if (image.pins != pins[static_cast<size_t>(id)]) return broken("image", id, "pins without restores");
    if ((image.has_writer ? 1 : 0) != writers[static_cast<size_t>(id)])
      return broken("image", id, "a writer without a store");
    if (image.has_writer != (image.state == State::kCopying) && image.state != State::kEvicting) {
      return broken("image", id, "its state contradicts its store");
    }
    if (!is_indexed) continue;
    if (image_of_page_[static_cast<size_t>(ordinal(image.page))] != id) return broken("image", id, "not indexed");
    if (pages_.find(image.hash) != image.page) return broken("image", id, "outlives its PAGE");
  }
  PS_RETURN_IF_ERROR(expect_count(
      "indexed images", std::ranges::count_if(image_of_page_, [](int32_t id) { return id != kNone; }), indexed));
  PS_RETURN_IF_ERROR(expect_count("unused images", std::ssize(unused_), std::ssize(images_) - held));
  PS_RETURN_IF_ERROR(expect_count("units", pages_.counters().units, held * units_per_image_));
  PS_RETURN_IF_ERROR(expect_count("evictable images", evictable, evictable_count_));
  int64_t linked = 0;
  for (int32_t id = oldest_; id != kNone && linked <= evictable; id = at(id).newer) {
    if (at(id).state != State::kReady || at(id).pins != 0) return broken("image", id, "misplaced in the order of use");
    ++linked;
  }
  return expect_count("images in the order of use", linked, evictable);
}

}  // namespace ps::cache
