// Three ways of merging against the definition, carried out literally.
#include "text/bpe.h"

#include <map>

#include "text/test_data.h"
#include "text/tokenizer_file.h"
#include "text/byte_alphabet.h"

namespace ps::text {
namespace {

using Ids = std::vector<TokenId>;

class Model {
 public:
  explicit Model(const TokenizerFile& file) : bytes_(file.base.size()) {
    std::vector<std::string_view> views(file.base.size());
    for (size_t id = 0; id < file.base.size(); ++id) {
      bytes_[id] = unspell_bytes(file.base[id]).value_or("");
      views[id] = bytes_[id];
      if (bytes_[id].size() == 1) byte_ids_[static_cast<uint8_t>(bytes_[id][0])] = static_cast<TokenId>(id);
    }
    for (size_t rank = 0; rank < file.merges.size(); ++rank) {
      const Merge& merge = file.merges[rank];
      rank_[{merge.left, merge.right}] = {rank, merge.result};
    }
    bpe_ = std::make_unique<Bpe>(file.merges, byte_ids_, views);
  }

  [[nodiscard]] Ids by_definition(std::string_view piece) const {
    Ids ids;
    for (const char byte : piece) ids.push_back(byte_ids_[static_cast<uint8_t>(byte)]);
    for (;;) {
      size_t best_rank = SIZE_MAX;
      size_t best = 0;
      TokenId result = 0;
      for (size_t i = 0; i + 1 < ids.size(); ++i) {
        const auto found = rank_.find({ids[i], ids[i + 1]});
        if (found == rank_.end() || found->second.first >= best_rank) continue;
        best_rank = found->second.first;
        best = i;
        result = found->second.second;
      }
      if (best_rank == SIZE_MAX) return ids;
      ids[best] = result;
      ids.erase(ids.begin() + static_cast<ptrdiff_t>(best) + 1);
    }
  }

  void expect_agreement(std::string_view piece) const {
    const Ids expected = by_definition(piece);
    Ids direct, scanned, heaped;
    bpe_->encode(piece, direct);
    bpe_->encode_by_heap(piece, heaped);
    ASSERT_EQ(direct, expected) << testing::PrintToString(piece);
    if (!piece.empty() && piece.size() <= Bpe::kScanLimit) {
      bpe_->encode_by_scan(piece, scanned);
      ASSERT_EQ(scanned, expected) << testing::PrintToString(piece);
    }
    ASSERT_EQ(heaped, expected) << testing::PrintToString(piece);
  }

 private:
  std::vector<std::string> bytes_;
  std::array<TokenId, 256> byte_ids_{};
  std::map<std::pair<TokenId, TokenId>, std::pair<size_t, TokenId>> rank_;
  std::unique_ptr<Bpe> bpe_;
};

const Model& released_model() {
  static const Model model(parse_tokenizer_file(test::released_json()).value());
  return model;
}

TEST(Bpe, AllWaysAgreeOnRandomPieces) {
  test::TextSource source(17);
  for (int round = 0; round < 4000; ++round) {
    std::string piece = source.text(1 + source.below(20));
    released_model().expect_agreement(piece);
    if (HasFatalFailure()) return;
  }
  constexpr std::string_view kLetters = "etaoin shrdlu";
  for (int round = 0; round < 4000; ++round) {
    std::string piece;
    for (uint32_t i = 1 + source.below(70); i > 0; --i) piece += kLetters[source.below(kLetters.size())];
    released_model().expect_agreement(piece);
    if (HasFatalFailure()) return;
  }
}

TEST(Bpe, AllWaysAgreeOnRunsOfEveryLength) {
  for (const std::string_view unit : {"a", " ", "=", "-", "\n", "ab", "\xFF", "漢", "the"}) {
    std::string piece;
    for (int i = 0; i < 130; ++i) {
      piece += unit;
      released_model().expect_agreement(piece);
      if (HasFatalFailure()) return;
    }
  }
  released_model().expect_agreement("");
}

TEST(Bpe, EveryTokenIsReachedOrSplitAsDefined) {
  const TokenizerFile file = parse_tokenizer_file(test::released_json()).value();
  for (size_t id = 300; id < 128000; id += 7) {
    if (const auto bytes = unspell_bytes(file.base[id])) released_model().expect_agreement(*bytes);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace ps::text
