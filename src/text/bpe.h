// Byte-pair merging of one piece (encoding.md 1.2 item 5): the pair of lowest rank first, the leftmost on ties.
//
// Three ways that give the same ids: pieces that are known to merge into one token come from a table, short pieces are
// merged by scanning, long ones with a heap over a linked list in O(n log n).
// Threading: immutable after construction; encode may run on any number of threads.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace ps::text {

using TokenId = int32_t;

// The merge `left` + `right` -> `result`; its rank is its position in the list.
struct Merge {
  TokenId left = 0;
  TokenId right = 0;
  TokenId result = 0;
};

class Bpe {
 public:
  static constexpr size_t kMaxMerges = 1 << 22;
  static constexpr size_t kScanLimit = 128;  // bytes; longer pieces use the heap

  // byte_ids[b] is the token of byte b. token_bytes[id] holds the bytes of every token that merging can make.
  // REQUIRES: no pair occurs twice; fewer than kMaxMerges merges.
  Bpe(std::span<const Merge> merges, const std::array<TokenId, 256>& byte_ids,
      std::span<const std::string_view> token_bytes);

  // Appends the ids of one piece. REQUIRES: piece.size() < 2^31.
  void encode(std::string_view piece, std::vector<TokenId>& out) const;

  // The two ways of merging. REQUIRES for the scan: 0 < piece.size() <= kScanLimit.
  void encode_by_scan(std::string_view piece, std::vector<TokenId>& out) const;
  void encode_by_heap(std::string_view piece, std::vector<TokenId>& out) const;

 private:
  static constexpr uint32_t kNoRank = UINT32_MAX;

  struct Pair {
    uint32_t rank = kNoRank;
    TokenId result = 0;
  };
  struct PairSlot {
    uint64_t key = 0;
    Pair pair;
  };
  struct PieceSlot {
    uint32_t tag = 0;
    uint32_t offset = 0;
    uint32_t length = 0;  // 0: empty slot
    TokenId id = 0;
  };
  struct Node;

  [[nodiscard]] Pair find_pair(TokenId left, TokenId right) const noexcept;
  [[nodiscard]] TokenId find_piece(std::string_view piece) const noexcept;
  void insert_pair(uint64_t key, Pair pair);
  void build_pieces(std::span<const std::string_view> token_bytes);
  [[nodiscard]] Pair byte_pair(const char* bytes) const noexcept {
    return byte_pairs_[static_cast<uint8_t>(bytes[0]) * size_t{256} + static_cast<uint8_t>(bytes[1])];
  }

  std::array<TokenId, 256> byte_ids_;
  std::vector<Pair> byte_pairs_;   // [256 * 256] by bytes: every merge starts there
  std::vector<PairSlot> pairs_;    // open addressing, a power of two, at most half full
  std::vector<uint16_t> tags_;     // of the slots, 0 where empty: most pairs do not merge, and stop at this small table
  std::vector<PieceSlot> pieces_;  // tokens that their own bytes merge into; open addressing as well
  std::vector<char> piece_bytes_;
  size_t longest_piece_ = 0;
};

}  // namespace ps::text
