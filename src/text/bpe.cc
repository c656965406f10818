#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

#include "base/macros.h"

namespace ps::text {
namespace {

constexpr uint64_t kMix = 0x9E3779B97F4A7C15u;

uint64_t pair_key(TokenId left, TokenId right) noexcept {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

uint64_t fold(uint64_t a, uint64_t b) noexcept {
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint64_t hash_pair(uint64_t key) noexcept { return fold(key ^ 0xA0761D6478BD642Fu, kMix); }

// Bits of a hash that do not choose the slot; never 0.
uint16_t tag_of(uint64_t hash) noexcept { return static_cast<uint16_t>(hash >> 48 | 1); }

uint64_t load64(const char* bytes) noexcept {
  uint64_t value;
  std::memcpy(&value, bytes, 8);
  return value;
}

uint64_t load32(const char* bytes) noexcept {
  uint32_t value;
  std::memcpy(&value, bytes, 4);
  return value;
}

// REQUIRES: bytes.size() >= 2
uint64_t hash_bytes(std::string_view bytes) noexcept {
  const char* data = bytes.data();
  const size_t size = bytes.size();
  uint64_t hash = size * kMix;
  if (size < 4) {
    const auto byte = [data](size_t index) { return static_cast<uint64_t>(static_cast<uint8_t>(data[index])); };
    return fold(hash ^ (byte(0) | byte(1) << 8 | byte(size - 1) << 16), 0xE7037ED1A0B428DBu);
  }
  if (size < 8) return fold(hash ^ (load32(data) << 32 | load32(data + size - 4)), 0xE7037ED1A0B428DBu);
  for (size_t at = 0; at + 8 < size; at += 8) hash = fold(hash ^ load64(data + at), 0xE7037ED1A0B428DBu);
  return fold(hash ^ load64(data + size - 8), 0x8EBC6AF09C88C6E3u);
}

constexpr uint32_t kNoKey = UINT32_MAX;

// REQUIRES: keys is 32-byte aligned, count a positive multiple of 8.
uint32_t smallest(const uint32_t* keys, size_t count) noexcept {
  using Lanes = uint32_t __attribute__((vector_size(32), may_alias));
  Lanes lowest = *reinterpret_cast<const Lanes*>(keys);
  for (size_t i = 8; i < count; i += 8) {
    const Lanes lanes = *reinterpret_cast<const Lanes*>(keys + i);
    lowest = lanes < lowest ? lanes : lowest;
  }
  uint32_t result = lowest[0];
  for (size_t lane = 1; lane < 8; ++lane) result = std::min<uint32_t>(result, lowest[lane]);
  return result;
}

// A power of two of at least twice `count` slots.
size_t slots_for(size_t count) noexcept { return std::bit_ceil(std::max<size_t>(2 * count, 16)); }

}  // namespace

Bpe::Bpe(std::span<const Merge> merges, const std::array<TokenId, 256>& byte_ids,
         std::span<const std::string_view> token_bytes)
    : byte_ids_(byte_ids), byte_pairs_(256 * 256), pairs_(slots_for(merges.size())), tags_(pairs_.size()) {
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const Merge& merge = merges[rank];
    insert_pair(pair_key(merge.left, merge.right), {static_cast<uint32_t>(rank), merge.result});
  }
  for (size_t left = 0; left < 256; ++left) {
    for (size_t right = 0; right < 256; ++right) {
      byte_pairs_[left * 256 + right] = find_pair(byte_ids_[left], byte_ids_[right]);
    }
  }
  build_pieces(token_bytes);
}

void Bpe::insert_pair(uint64_t key, Pair pair) {
  const size_t mask = pairs_.size() - 1;
  const uint64_t hash = hash_pair(key);
  size_t at = hash & mask;
  while (tags_[at] != 0) at = (at + 1) & mask;
  pairs_[at] = {key, pair};
  tags_[at] = tag_of(hash);
}

Bpe::Pair Bpe::find_pair(TokenId left, TokenId right) const noexcept {
  const uint64_t key = pair_key(left, right);
  const size_t mask = pairs_.size() - 1;
  const uint64_t hash = hash_pair(key);
  const uint16_t tag = tag_of(hash);
  for (size_t at = hash & mask; tags_[at] != 0; at = (at + 1) & mask) {
    if (tags_[at] == tag && pairs_[at].key == key) return pairs_[at].pair;
  }
  return {};
}

void Bpe::build_pieces(std::span<const std::string_view> token_bytes) {
  std::vector<TokenId> ids;
  std::vector<TokenId> whole;
  for (size_t id = 0; id < token_bytes.size(); ++id) {
    if (token_bytes[id].size() < 2) continue;
    ids.clear();
    encode(token_bytes[id], ids);  // the piece table is still empty: this merges
    if (ids.size() == 1 && ids[0] == static_cast<TokenId>(id)) whole.push_back(ids[0]);
  }
  pieces_.resize(slots_for(whole.size()));
  const size_t mask = pieces_.size() - 1;
  for (const TokenId id : whole) {
    const std::string_view bytes = token_bytes[static_cast<size_t>(id)];
    const uint64_t hash = hash_bytes(bytes);
    size_t at = hash & mask;
    while (pieces_[at].length != 0) at = (at + 1) & mask;
    pieces_[at] = {static_cast<uint32_t>(hash >> 32), static_cast<uint32_t>(piece_bytes_.size()),
                   static_cast<uint32_t>(bytes.size()), id};
    piece_bytes_.insert(piece_bytes_.end(), bytes.begin(), bytes.end());
    longest_piece_ = std::max(longest_piece_, bytes.size());
  }
}

// The token that the piece merges into, or -1 when there is no such single token.
TokenId Bpe::find_piece(std::string_view piece) const noexcept {
  const uint64_t hash = hash_bytes(piece);
  const auto tag = static_cast<uint32_t>(hash >> 32);
  const size_t mask = pieces_.size() - 1;
  for (size_t at = hash & mask; pieces_[at].length != 0; at = (at + 1) & mask) {
    const PieceSlot& slot = pieces_[at];
    if (slot.tag == tag && slot.length == piece.size() &&
        std::memcmp(piece_bytes_.data() + slot.offset, piece.data(), piece.size()) == 0) {
      return slot.id;
    }
  }
  return -1;
}

void Bpe::encode(std::string_view piece, std::vector<TokenId>& out) const {
  if (piece.size() == 1) {
    out.push_back(byte_ids_[static_cast<uint8_t>(piece[0])]);
    return;
  }
  if (piece.size() <= longest_piece_ && !piece.empty()) {
    if (const TokenId id = find_piece(piece); id >= 0) {
      out.push_back(id);
      return;
    }
  }
  if (piece.size() > kScanLimit) return encode_by_heap(piece, out);
  if (!piece.empty()) encode_by_scan(piece, out);
}

void Bpe::encode_by_scan(std::string_view piece, std::vector<TokenId>& out) const {
  static_assert(kScanLimit <= 256 && kMaxMerges <= 1 << 24);
  const size_t count = piece.size();
  const size_t padded = (count + 7) / 8 * 8;
  alignas(32) uint32_t keys[kScanLimit];  // rank << 8 | position of each pair; kNoKey where nothing merges
  std::fill(keys, keys + padded, kNoKey);
  TokenId ids[kScanLimit];
  TokenId results[kScanLimit];
  uint8_t next[kScanLimit];  // of the living tokens; the last one's is beyond the end
  uint8_t previous[kScanLimit];
  const auto set_pair = [&](size_t at, const Pair& pair) {
    keys[at] = pair.rank == kNoRank ? kNoKey : pair.rank << 8 | static_cast<uint32_t>(at);
    results[at] = pair.result;
  };
  for (size_t i = 0; i < count; ++i) {
    ids[i] = byte_ids_[static_cast<uint8_t>(piece[i])];
    next[i] = static_cast<uint8_t>(i + 1);
    previous[i] = static_cast<uint8_t>(i - 1);
    set_pair(i, i + 1 < count ? byte_pair(piece.data() + i) : Pair{});
  }
  for (uint32_t best = smallest(keys, padded); best != kNoKey; best = smallest(keys, padded)) {
    const size_t left = best & 0xFF;
    const size_t right = next[left];
    const size_t behind = next[right];
    ids[left] = results[left];
    keys[right] = kNoKey;
    next[left] = static_cast<uint8_t>(behind);
    if (behind < count) previous[behind] = static_cast<uint8_t>(left);
    set_pair(left, behind < count ? find_pair(ids[left], ids[behind]) : Pair{});
    if (left > 0) set_pair(previous[left], find_pair(ids[previous[left]], ids[left]));
  }
  for (size_t i = 0; i < count; i = next[i]) out.push_back(ids[i]);
}

// A token of the piece while it is being merged; dead ones have id -1.
struct Bpe::Node {
  TokenId id;
  uint32_t previous;
  uint32_t next;
  Pair pair;  // with the next node
};

void Bpe::encode_by_heap(std::string_view piece, std::vector<TokenId>& out) const {
  PS_CHECK(piece.size() < INT32_MAX, piece.size());
  constexpr uint32_t kNone = UINT32_MAX;
  const auto count = static_cast<uint32_t>(piece.size());
  std::vector<Node> nodes(count);
  std::vector<uint64_t> heap;  // rank << 32 | node: the smallest is the next merge
  heap.reserve(count);
  const auto entry = [&nodes](uint32_t node) { return static_cast<uint64_t>(nodes[node].pair.rank) << 32 | node; };
  for (uint32_t i = 0; i < count; ++i) {
    const auto byte = static_cast<uint8_t>(piece[i]);
    nodes[i] = {byte_ids_[byte], i == 0 ? kNone : i - 1, i + 1 == count ? kNone : i + 1, {}};
    if (i + 1 < count) nodes[i].pair = byte_pair(piece.data() + i);
    if (nodes[i].pair.rank != kNoRank) heap.push_back(entry(i));
  }
  const std::greater<uint64_t> later;
  std::make_heap(heap.begin(), heap.end(), later);
  const auto update = [&](uint32_t index) {
    Node& node = nodes[index];
    node.pair = node.next == kNone ? Pair{} : find_pair(node.id, nodes[node.next].id);
    if (node.pair.rank == kNoRank) return;
    heap.push_back(entry(index));
    std::push_heap(heap.begin(), heap.end(), later);
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const uint64_t top = heap.back();
    heap.pop_back();
    const auto index = static_cast<uint32_t>(top);
    Node& node = nodes[index];
    if (node.id < 0 || entry(index) != top) continue;  // the pair has changed since it was queued
    Node& right = nodes[node.next];
    node.id = node.pair.result;
    right.id = -1;
    node.next = right.next;
    if (node.next != kNone) nodes[node.next].previous = index;
    update(index);
    if (node.previous != kNone) update(node.previous);
  }
  for (uint32_t i = 0; i != kNone && count != 0; i = nodes[i].next) out.push_back(nodes[i].id);
}

}  // namespace ps::text
