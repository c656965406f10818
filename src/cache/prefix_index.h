// PrefixIndex: which PAGE holds the rows of which tokens (runtime.md 2.6).
//
// A full PAGE is named by a chained hash: over the hash of the PAGE before it (8 bytes, little-endian), then its token
// ids (int32, little-endian). The first PAGE follows the root, which stands for the byte layout and a namespace. Equal
// hashes are never believed: a PAGE counts as a hit only when its token ids and the hash before it agree too.
// Several PAGEs may hold the same content, since two requests can compute it at the same time. The first one is
// published; the others stand by in the order of their coming, and take its place when it goes. Other content under the
// same hash has no place. The token id of an image position must stand for the image's content, or two images would
// share rows.
// Everything is sized at construction: one entry per PAGE, chains through the entries. Threading: one thread at a time;
// const members from any thread while nothing writes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cache/ids.h"

namespace ps::cache {

// XXH3-64 of (previous, tokens).
[[nodiscard]] ChainHash chain_hash(ChainHash previous, std::span<const int32_t> tokens) noexcept;
// What the first PAGE's hash is chained to. Both texts enter with their lengths.
[[nodiscard]] ChainHash root_hash(std::string_view layout_id, std::string_view name_space) noexcept;

using ChainHashFunction = ChainHash (*)(ChainHash previous, std::span<const int32_t> tokens) noexcept;

class PrefixIndex {
 public:
  // A `hash_function` other than chain_hash is for tests that force collisions.
  PrefixIndex(int32_t pages, int64_t page_tokens, ChainHash root, ChainHashFunction hash_function);

  [[nodiscard]] int64_t page_tokens() const noexcept { return page_tokens_; }
  [[nodiscard]] ChainHash root() const noexcept { return root_; }
  // Published PAGEs: distinct hashes.
  [[nodiscard]] int32_t published() const noexcept { return published_; }

  // REQUIRES: tokens.size() == page_tokens.
  [[nodiscard]] ChainHash hash(ChainHash previous, std::span<const int32_t> tokens) const noexcept {
    return hash_(previous, tokens);
  }

  // The PAGE published under `hash`.
  [[nodiscard]] std::optional<PageId> find(ChainHash hash) const noexcept;
  // Published or standing by.
  [[nodiscard]] bool is_named(PageId page) const noexcept { return entry(page).is_named; }
  [[nodiscard]] bool is_published(PageId page) const noexcept {
    return is_named(page) && find(entry(page).hash) == page;
  }
  // REQUIRES: is_named(page).
  [[nodiscard]] ChainHash hash_of(PageId page) const;
  // Whether a named PAGE holds exactly these tokens after exactly that hash.
  [[nodiscard]] bool holds(PageId page, ChainHash previous, std::span<const int32_t> tokens) const noexcept;

  // Publishes `page`, or lets it stand by when its content is published already.
  // REQUIRES: !is_named(page), hash == this->hash(previous, tokens), nothing or the same content is published under it.
  void insert(PageId page, ChainHash hash, ChainHash previous, std::span<const int32_t> tokens);
  // REQUIRES: is_named(page).
  void erase(PageId page);

  // internal, with the PAGE, when an entry cannot be found by its hash or its tokens do not give it.
  [[nodiscard]] Status check_integrity() const;

 private:
  struct Entry {
    ChainHash hash = {};
    ChainHash previous = {};
    int32_t next = kNone;  // in the bucket; PAGEs that stand by follow the published one
    bool is_named = false;
  };
  static constexpr int32_t kNone = -1;

  [[nodiscard]] const Entry& entry(PageId page) const noexcept { return entries_[static_cast<size_t>(ordinal(page))]; }
  [[nodiscard]] size_t bucket(ChainHash hash) const noexcept {
    return static_cast<uint64_t>(hash) & (buckets_.size() - 1);
  }
  [[nodiscard]] std::span<const int32_t> tokens_of(PageId page) const noexcept {
    return {tokens_.get() + ordinal(page) * page_tokens_, static_cast<size_t>(page_tokens_)};
  }

  int64_t page_tokens_ = 0;
  ChainHash root_ = {};
  ChainHashFunction hash_ = nullptr;
  int32_t published_ = 0;
  std::vector<Entry> entries_;         // [pages]
  std::vector<int32_t> buckets_;       // a power of two: the first PAGE of each chain, or kNone
  std::unique_ptr<int32_t[]> tokens_;  // [pages, page_tokens]; untouched until a PAGE is named
};

}  // namespace ps::cache
