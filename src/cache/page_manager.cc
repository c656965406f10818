#include "cache/page_manager.h"

#include <algorithm>
#include <string>

#include "base/macros.h"
#include "cache/integrity.h"

namespace ps::cache {
PageManager::PageManager(const PageManagerOptions& options)
    : index_(options.pages, options.page_tokens, root_hash(options.layout_id, options.name_space), options.hash),
      pages_(static_cast<size_t>(options.pages)),
      vacant_(options.pages) {}

int64_t PageManager::match(std::span<const int32_t> tokens, int64_t max_tokens, std::vector<PageId>& pages) const {
  pages.clear();
  const int64_t limit = std::min(max_tokens, std::ssize(tokens)) / page_tokens();
  ChainHash previous = index_.root();
  for (int64_t block = 0; block < limit; ++block) {
    const auto content = tokens.subspan(static_cast<size_t>(block * page_tokens()), static_cast<size_t>(page_tokens()));
    const ChainHash hash = index_.hash(previous, content);
    const std::optional<PageId> page = index_.find(hash);
    if (!page || !index_.holds(*page, previous, content)) break;
    pages.push_back(*page);
    previous = hash;
  }
  return std::ssize(pages) * page_tokens();
}

int64_t PageManager::admission_demand(std::span<const PageId> hits, int64_t fresh) const noexcept {
  return fresh + std::ranges::count_if(hits, [this](PageId page) { return at(page).state == State::kCached; });
}

void PageManager::claim(std::span<const PageId> pages) {
  for (const PageId page : pages) {
    PS_CHECK(index_.is_published(page), "PAGE", ordinal(page), "lost its content since match()");
    if (at(page).state == State::kCached) {
      unlink(page);
      at(page).state = State::kUsed;
    }
    ++at(page).references;
    ++entry_count_;
  }
}

bool PageManager::reserve(int64_t fresh, std::vector<PageId>& pages) {
  if (fresh > available()) return false;
  for (int64_t count = 0; count < fresh; ++count) {
    pages.push_back(allocate(State::kUsed));
    ++entry_count_;
  }
  return true;
}

void PageManager::release(std::span<const PageId> pages) {
  for (size_t i = pages.size(); i-- > 0;) {
    const PageId page = pages[i];
    check_held(page, State::kUsed);
    --entry_count_;
    if (--at(page).references > 0) continue;
    if (index_.is_published(page)) {
      at(page).state = State::kCached;
      link_newest(page);
    } else {
      if (index_.is_named(page)) index_.erase(page);
      at(page).state = State::kVacant;
      vacant_.insert(ordinal(page));
    }
  }
}

PublishCursor PageManager::cursor_after(std::span<const PageId> hits) const noexcept {
  if (hits.empty()) return {};
  if (!index_.is_named(hits.back())) return {.pages = std::ssize(hits), .hash = {}, .is_broken = true};
  return {.pages = std::ssize(hits), .hash = index_.hash_of(hits.back()), .is_broken = false};
}

void PageManager::publish(std::span<const PageId> table, std::span<const int32_t> tokens, int64_t committed_tokens,
                          PublishCursor& cursor) {
  const int64_t full = committed_tokens / page_tokens();
  if (cursor.is_broken || cursor.pages >= full) return;
  PS_CHECK(full <= std::ssize(table) && committed_tokens <= std::ssize(tokens), committed_tokens, table.size(),
           tokens.size());
  while (cursor.pages < full) {
    const PageId page = table[static_cast<size_t>(cursor.pages)];
    check_held(page, State::kUsed);
    const auto content =
        tokens.subspan(static_cast<size_t>(cursor.pages * page_tokens()), static_cast<size_t>(page_tokens()));
    const ChainHash previous = cursor.pages == 0 ? index_.root() : cursor.hash;
    const ChainHash hash = index_.hash(previous, content);
    if (const std::optional<PageId> holder = index_.find(hash); holder && !index_.holds(*holder, previous, content)) {
      cursor.is_broken = true;
      return;
    }
    if (!index_.is_named(page)) index_.insert(page, hash, previous, content);
    PS_CHECK(index_.hash_of(page) == hash, "PAGE", ordinal(page), "has the hash of other content");
    cursor.hash = hash;
    ++cursor.pages;
  }
}

bool PageManager::take_units(std::span<PageId> units) {
  if (std::ssize(units) > available()) return false;
  for (PageId& unit : units) {
    unit = allocate(State::kUnit);
    ++unit_count_;
  }
  return true;
}

void PageManager::return_units(std::span<const PageId> units) {
  for (const PageId unit : units) {
    check_held(unit, State::kUnit);
    at(unit) = {};
    vacant_.insert(ordinal(unit));
    --unit_count_;
  }
}

PageCounters PageManager::counters() const noexcept {
  PageCounters counters;
  counters.vacant = vacant_.size();
  counters.cached = cached_count_;
  counters.units = unit_count_;
  counters.used = count() - available() - unit_count_;
  counters.published = index_.published();
  counters.evictions = evictions_;
  counters.lookup_tokens = lookup_tokens_;
  counters.hit_tokens = hit_tokens_;
  return counters;
}

// REQUIRES: available() > 0. The hook runs when every structure is whole again: it may return units.
PageId PageManager::allocate(State state) {
  if (!vacant_.empty()) {
    const PageId page{vacant_.take_lowest()};
    at(page) = {.references = 1, .state = state};
    return page;
  }
  PS_CHECK(oldest_ != kNone);
  const PageId page{oldest_};
  unlink(page);
  at(page) = {.references = 1, .state = state};
  const ChainHash hash = index_.hash_of(page);
  index_.erase(page);
  ++evictions_;
  if (evict_hook_) evict_hook_(page, hash);
  return page;
}

void PageManager::link_newest(PageId page) noexcept {
  at(page).older = newest_;
  at(page).newer = kNone;
  (newest_ == kNone ? oldest_ : at(PageId{newest_}).newer) = ordinal(page);
  newest_ = ordinal(page);
  ++cached_count_;
}

void PageManager::unlink(PageId page) noexcept {
  const Page& links = at(page);
  (links.older == kNone ? oldest_ : at(PageId{links.older}).newer) = links.newer;
  (links.newer == kNone ? newest_ : at(PageId{links.newer}).older) = links.older;
  --cached_count_;
}

void PageManager::check_held(PageId page, State state) const {
  PS_CHECK(ordinal(page) >= 0 && ordinal(page) < count(), "PAGE", ordinal(page), "of", count());
  PS_CHECK(at(page).state == state && at(page).references > 0, "PAGE", ordinal(page), "is not held");
}

Status PageManager::check_page(PageId page) const {
  const Page& entry = at(page);
  const bool is_free = entry.state == State::kVacant || entry.state == State::kCached;
  if (is_free != (entry.references == 0))
    return broken("PAGE", ordinal(page), std::to_string(entry.references) + " references");
  if (vacant_.contains(ordinal(page)) != (entry.state == State::kVacant))
    return broken("PAGE", ordinal(page), "vacant and not, at once");
  if (entry.state == State::kUnit && entry.references != 1) return broken("PAGE", ordinal(page), "a shared unit");
  const bool may_be_named = entry.state == State::kUsed || entry.state == State::kCached;
  if (index_.is_named(page) && !may_be_named) return broken("PAGE", ordinal(page), "a hash without rows");
  if (!index_.is_published(page) && entry.state == State::kCached)
    return broken("PAGE", ordinal(page), "cached, not published");
  return {};
}

Status PageManager::check_integrity(std::optional<int64_t> table_entries) const {
  int64_t units = 0;
  int64_t vacant = 0;
  int64_t cached = 0;
  int64_t entries = 0;
  for (int32_t id = 0; id < count(); ++id) {
    PS_RETURN_IF_ERROR(check_page(PageId{id}));
    const Page& page = at(PageId{id});
    units += page.state == State::kUnit ? 1 : 0;
    vacant += page.state == State::kVacant ? 1 : 0;
    cached += page.state == State::kCached ? 1 : 0;
    entries += page.state == State::kUsed ? page.references : 0;
  }
  PS_RETURN_IF_ERROR(expect_count("units", units, unit_count_));
  PS_RETURN_IF_ERROR(expect_count("vacant PAGEs", vacant, vacant_.size()));
  PS_RETURN_IF_ERROR(expect_count("cached PAGEs", cached, cached_count_));
  PS_RETURN_IF_ERROR(expect_count("references", entries, entry_count_));
  PS_RETURN_IF_ERROR(expect_count("references", entries, table_entries.value_or(entries)));
  int64_t linked = 0;
  int32_t older = kNone;
  for (int32_t id = oldest_; id != kNone && linked <= cached; id = at(PageId{id}).newer) {
    if (at(PageId{id}).state != State::kCached || at(PageId{id}).older != older) return broken("PAGE", id, "misplaced");
    older = id;
    ++linked;
  }
  PS_RETURN_IF_ERROR(expect_count("PAGEs in the order of freeing", linked, cached));
  if (newest_ != older) return broken("PAGE", older, "not the newest");
  return index_.check_integrity();
}

}  // namespace ps::cache
