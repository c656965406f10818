// SHA-256 (FIPS 180-4): the fingerprint of files and tables whose every byte counts.
//
// update() takes pieces of any size; the digest depends on their concatenation alone.
// Threading: a Sha256 belongs to one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace ps {

class Sha256 {
 public:
  using Digest = std::array<uint8_t, 32>;

  void update(std::span<const std::byte> bytes) noexcept;
  // Of everything given so far; the object must not be used afterwards.
  [[nodiscard]] Digest finish() noexcept;

 private:
  static constexpr size_t kBlockBytes = 64;
  void add_block(const std::byte* block) noexcept;

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, kBlockBytes> pending_ = {};
  size_t pending_bytes_ = 0;
  uint64_t total_bytes_ = 0;
};

// 64 lower-case hexadecimal digits.
[[nodiscard]] std::string sha256_hex(std::span<const std::byte> bytes);
[[nodiscard]] std::string to_hex(const Sha256::Digest& digest);

}  // namespace ps
