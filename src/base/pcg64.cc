#include "base/pcg64.h"

#include <bit>

namespace ps {
namespace {

constexpr uint128 kMultiplier = (static_cast<uint128>(0x2360ed051fc65da4ull) << 64) | 0x4385df649fccf645ull;

uint32_t mix(uint32_t x, uint32_t y) noexcept {
  const uint32_t r = 0xca01f9ddu * x - 0x4973f715u * y;
  return r ^ (r >> 16);
}

}  // namespace

SeedSequence::SeedSequence(uint64_t seed) noexcept {
  uint32_t a = 0x43b0d7e5u;
  const auto hash = [&a](uint32_t value) {
    value ^= a;
    a *= 0x931e8875u;
    value *= a;
    return value ^ (value >> 16);
  };
  const std::array<uint32_t, 4> words = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), 0, 0};
  for (std::size_t i = 0; i < 4; ++i) pool_[i] = hash(words[i]);
  for (std::size_t source = 0; source < 4; ++source) {
    for (std::size_t target = 0; target < 4; ++target) {
      if (source != target) pool_[target] = mix(pool_[target], hash(pool_[source]));
    }
  }
}

void SeedSequence::generate(uint32_t* words, std::size_t count) const noexcept {
  uint32_t b = 0x8b51f9ddu;
  for (std::size_t i = 0; i < count; ++i) {
    uint32_t value = pool_[i % 4] ^ b;
    b *= 0x58f38dedu;
    value *= b;
    words[i] = value ^ (value >> 16);
  }
}

Pcg64::Pcg64(uint64_t seed) noexcept {
  const auto words = SeedSequence(seed).generate<8>();
  const auto limb = [&words](std::size_t i) { return words[2 * i] | (static_cast<uint64_t>(words[2 * i + 1]) << 32); };
  const uint128 initial_state = (static_cast<uint128>(limb(0)) << 64) | limb(1);
  const uint128 sequence = (static_cast<uint128>(limb(2)) << 64) | limb(3);
  increment_ = (sequence << 1) | 1u;
  state_ = increment_;  // state 0 advanced once
  state_ += initial_state;
  state_ = state_ * kMultiplier + increment_;
}

uint64_t Pcg64::next64() noexcept {
  state_ = state_ * kMultiplier + increment_;
  const uint64_t folded = static_cast<uint64_t>(state_ >> 64) ^ static_cast<uint64_t>(state_);
  return std::rotr(folded, static_cast<int>(state_ >> 122));
}

uint32_t Pcg64::next32() noexcept {
  if (has_spare_) {
    has_spare_ = false;
    return spare_;
  }
  const uint64_t value = next64();
  spare_ = static_cast<uint32_t>(value >> 32);
  has_spare_ = true;
  return static_cast<uint32_t>(value);
}

int64_t Pcg64::integer(int64_t low, int64_t high) noexcept {
  const uint64_t range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low) - 1;
  const auto shifted = [low](uint64_t offset) { return static_cast<int64_t>(static_cast<uint64_t>(low) + offset); };
  if (range == 0) return low;
  if (range == 0xFFFFFFFFull) return shifted(next32());
  if (range < 0xFFFFFFFFull) {  // Lemire on 32 bits
    const uint64_t span = range + 1;
    uint64_t product = next32() * span;
    if (static_cast<uint32_t>(product) < span) {
      const uint64_t threshold = (0x100000000ull - span) % span;
      while (static_cast<uint32_t>(product) < threshold) product = next32() * span;
    }
    return shifted(product >> 32);
  }
  if (range == ~0ull) return shifted(next64());
  const uint64_t span = range + 1;
  uint128 product = static_cast<uint128>(next64()) * span;
  if (static_cast<uint64_t>(product) < span) {
    const uint64_t threshold = (0 - span) % span;
    while (static_cast<uint64_t>(product) < threshold) product = static_cast<uint128>(next64()) * span;
  }
  return shifted(static_cast<uint64_t>(product >> 64));
}

}  // namespace ps
