#include "base/sha256.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace ps {
namespace {

// The first 32 fraction bits of the cube roots of the first 64 primes.
constexpr std::array<uint32_t, 64> kRound = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t load_big_endian(const std::byte* bytes) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | std::to_integer<uint32_t>(bytes[i]);
  return value;
}

std::array<uint32_t, 64> message_schedule(const std::byte* block) {
  std::array<uint32_t, 64> words;
  for (size_t i = 0; i < 16; ++i) words[i] = load_big_endian(block + 4 * i);
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t a = words[i - 15];
    const uint32_t b = words[i - 2];
    words[i] = words[i - 16] + words[i - 7] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) +
               (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
  }
  return words;
}

}  // namespace

void Sha256::add_block(const std::byte* block) noexcept {
  const std::array<uint32_t, 64> words = message_schedule(block);
  auto [a, b, c, d, e, f, g, h] = state_;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t choice = (e & f) ^ (~e & g);
    const uint32_t majority = (a & b) ^ (a & c) ^ (b & c);
    const uint32_t first = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + choice + kRound[i] + words[i];
    const uint32_t second = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + majority;
    h = g;
    g = f;
    f = e;
    e = d + first;
    d = c;
    c = b;
    b = a;
    a = first + second;
  }
  const std::array<uint32_t, 8> added = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) state_[i] += added[i];
}

void Sha256::update(std::span<const std::byte> bytes) noexcept {
  total_bytes_ += bytes.size();
  while (!bytes.empty()) {
    if (pending_bytes_ == 0 && bytes.size() >= kBlockBytes) {
      add_block(bytes.data());
      bytes = bytes.subspan(kBlockBytes);
      continue;
    }
    const size_t taken = std::min(kBlockBytes - pending_bytes_, bytes.size());
    std::memcpy(pending_.data() + pending_bytes_, bytes.data(), taken);
    pending_bytes_ += taken;
    bytes = bytes.subspan(taken);
    if (pending_bytes_ == kBlockBytes) {
      add_block(pending_.data());
      pending_bytes_ = 0;
    }
  }
}

Sha256::Digest Sha256::finish() noexcept {
  const uint64_t bits = total_bytes_ * 8;
  pending_[pending_bytes_++] = std::byte{0x80};
  if (pending_bytes_ > kBlockBytes - 8) {
    std::fill(pending_.begin() + static_cast<std::ptrdiff_t>(pending_bytes_), pending_.end(), std::byte{0});
    add_block(pending_.data());
    pending_bytes_ = 0;
  }
  std::fill(pending_.begin() + static_cast<std::ptrdiff_t>(pending_bytes_), pending_.end(), std::byte{0});
  for (size_t i = 0; i < 8; ++i) pending_[kBlockBytes - 1 - i] = static_cast<std::byte>(bits >> 8 * i & 0xFF);
  add_block(pending_.data());
  Digest digest;
  for (size_t i = 0; i < digest.size(); ++i)
    digest[i] = static_cast<uint8_t>(state_[i / 4] >> (24 - 8 * (i % 4)) & 0xFF);
  return digest;
}

std::string to_hex(const Sha256::Digest& digest) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::string sha256_hex(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return to_hex(hash.finish());
}

}  // namespace ps
