#include "base/sha256.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace ps {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

// The examples of FIPS 180-4 and its validation suite.
TEST(Sha256, StandardVectors) {
  EXPECT_EQ(sha256_hex(bytes_of("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex(bytes_of("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex(bytes_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(
      sha256_hex(bytes_of("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqr"
                          "lmnopqrsmnopqrstnopqrstu")),
      "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  EXPECT_EQ(sha256_hex(bytes_of(std::string(1'000'000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesDoNotMatter) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>(i * 7 + 3);
  for (size_t length : {55, 56, 63, 64, 65, 119, 120, 128, 300}) {
    const auto whole = bytes_of(std::string_view(text).substr(0, length));
    const std::string expected = sha256_hex(whole);
    for (size_t piece : {1, 3, 63, 64, 65}) {
      Sha256 hash;
      for (size_t at = 0; at < length; at += piece) hash.update(whole.subspan(at, std::min(piece, length - at)));
      EXPECT_EQ(to_hex(hash.finish()), expected) << length << " in pieces of " << piece;
    }
  }
}

}  // namespace
}  // namespace ps
