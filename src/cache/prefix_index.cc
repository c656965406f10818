#include "cache/prefix_index.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <bit>

#include "base/macros.h"
#include "cache/integrity.h"

namespace ps::cache {
namespace {

static_assert(std::endian::native == std::endian::little, "hashes are over little-endian bytes");

void add(XXH3_state_t& state, const void* bytes, size_t size) noexcept { XXH3_64bits_update(&state, bytes, size); }

void add(XXH3_state_t& state, uint64_t value) noexcept { add(state, &value, sizeof(value)); }

}  // namespace

ChainHash chain_hash(ChainHash previous, std::span<const int32_t> tokens) noexcept {
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  add(state, static_cast<uint64_t>(previous));
  add(state, tokens.data(), tokens.size_bytes());
  return ChainHash{XXH3_64bits_digest(&state)};
}

ChainHash root_hash(std::string_view layout_id, std::string_view name_space) noexcept {
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  for (const std::string_view text : {layout_id, name_space}) {
    add(state, text.size());
    add(state, text.data(), text.size());
  }
  return ChainHash{XXH3_64bits_digest(&state)};
}

PrefixIndex::PrefixIndex(int32_t pages, int64_t page_tokens, ChainHash root, ChainHashFunction hash_function)
    : page_tokens_(page_tokens), root_(root), hash_(hash_function) {
  PS_CHECK(pages >= 0 && page_tokens > 0, pages, page_tokens);
  const auto count = static_cast<size_t>(pages);
  entries_.resize(count);
  buckets_.resize(std::bit_ceil(std::max<size_t>(count, 1)), kNone);
  tokens_ = std::make_unique_for_overwrite<int32_t[]>(count * static_cast<size_t>(page_tokens));
}

std::optional<PageId> PrefixIndex::find(ChainHash hash) const noexcept {
  for (int32_t page = buckets_[bucket(hash)]; page != kNone; page = entry(PageId{page}).next) {
    if (entry(PageId{page}).hash == hash) return PageId{page};
  }
  return std::nullopt;
}

ChainHash PrefixIndex::hash_of(PageId page) const {
  PS_CHECK(is_named(page), "PAGE", ordinal(page), "has no hash");
  return entry(page).hash;
}

bool PrefixIndex::holds(PageId page, ChainHash previous, std::span<const int32_t> tokens) const noexcept {
  return entry(page).is_named && entry(page).previous == previous && std::ranges::equal(tokens_of(page), tokens);
}

void PrefixIndex::insert(PageId page, ChainHash hash, ChainHash previous, std::span<const int32_t> tokens) {
  PS_CHECK(!is_named(page), "PAGE", ordinal(page), "has another hash");
  PS_CHECK(std::ssize(tokens) == page_tokens_, tokens.size(), page_tokens_);
  PS_DCHECK(!find(hash) || holds(*find(hash), previous, tokens));
  // Behind the last PAGE of this hash; a new hash goes to the front.
  int32_t* place = &buckets_[bucket(hash)];
  bool is_new = true;
  for (int32_t id = *place; id != kNone; id = entry(PageId{id}).next) {
    if (entry(PageId{id}).hash != hash) continue;
    place = &entries_[static_cast<size_t>(id)].next;
    is_new = false;
  }
  if (is_new) ++published_;
  entries_[static_cast<size_t>(ordinal(page))] = {hash, previous, *place, true};
  *place = ordinal(page);
  std::ranges::copy(tokens, tokens_.get() + ordinal(page) * page_tokens_);
}

void PrefixIndex::erase(PageId page) {
  const ChainHash hash = hash_of(page);
  int32_t* link = &buckets_[bucket(hash)];
  while (*link != ordinal(page)) link = &entries_[static_cast<size_t>(*link)].next;
  *link = entry(page).next;
  entries_[static_cast<size_t>(ordinal(page))] = {};
  if (!find(hash)) --published_;
}

Status PrefixIndex::check_integrity() const {
  int32_t published = 0;
  for (int32_t id = 0; id < std::ssize(entries_); ++id) {
    const PageId page{id};
    if (!is_named(page)) continue;
    const auto& [hash_value, previous, next, named] = entry(page);
    if (hash(previous, tokens_of(page)) != hash_value) return broken("PAGE", id, "its tokens do not give its hash");
    const std::optional<PageId> holder = find(hash_value);
    if (!holder) return broken("PAGE", id, "not found by its hash");
    if (!holds(*holder, previous, tokens_of(page))) return broken("PAGE", id, "its hash has other content");
    published += holder == page ? 1 : 0;
  }
  return expect_count("published PAGEs", published, published_);
}

}  // namespace ps::cache
