// NumPy's default generator: SeedSequence and PCG64 (model.md 3.5), bit for bit. Engram multipliers and synthetic
// weights come from it. A generator is a value; one thread uses it at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace ps {

using uint128 = unsigned __int128;

// NumPy's SeedSequence(seed) for one non-negative integer.
class SeedSequence {
 public:
  explicit SeedSequence(uint64_t seed) noexcept;
  [[nodiscard]] const std::array<uint32_t, 4>& pool() const noexcept { return pool_; }
  // generate_state(words.size()).
  template <std::size_t kWords>
  [[nodiscard]] std::array<uint32_t, kWords> generate() const noexcept {
    std::array<uint32_t, kWords> words;
    generate(words.data(), kWords);
    return words;
  }

 private:
  void generate(uint32_t* words, std::size_t count) const noexcept;
  std::array<uint32_t, 4> pool_;
};

// numpy.random.default_rng(seed).
class Pcg64 {
 public:
  explicit Pcg64(uint64_t seed) noexcept;

  uint64_t next64() noexcept;
  // Low half of a fresh next64(); the high half serves the following call.
  uint32_t next32() noexcept;
  // Uniform in [0, 1), 53 bits: Generator.random().
  double uniform() noexcept { return static_cast<double>(next64() >> 11) * 0x1p-53; }
  // Generator.integers(low, high, dtype=int64), high exclusive. REQUIRES: low < high.
  int64_t integer(int64_t low, int64_t high) noexcept;

  [[nodiscard]] uint128 state() const noexcept { return state_; }
  [[nodiscard]] uint128 increment() const noexcept { return increment_; }

 private:
  uint128 state_ = 0;
  uint128 increment_ = 0;
  uint32_t spare_ = 0;
  bool has_spare_ = false;
};

}  // namespace ps
