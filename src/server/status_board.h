// Figures that one thread writes and any thread reads, whole and without a lock: a reader that meets a writer reads
// again, the writer never waits.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace ps::server {

// T: a struct of 64-bit words.
template <typename T>
class StatusBoard {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(uint64_t) == 0);
  static constexpr size_t kWords = sizeof(T) / sizeof(uint64_t);

 public:
  // One thread at a time.
  void write(const T& value) noexcept {
    std::array<uint64_t, kWords> words;
    std::memcpy(words.data(), &value, sizeof value);
    const uint64_t version = version_.load(std::memory_order_relaxed);
    version_.store(version + 1, std::memory_order_relaxed);  // odd: being written
    std::atomic_thread_fence(std::memory_order_release);
    for (size_t i = 0; i < kWords; ++i) words_[i].store(words[i], std::memory_order_relaxed);
    version_.store(version + 2, std::memory_order_release);
  }

  [[nodiscard]] T read() const noexcept {
    std::array<uint64_t, kWords> words;
    uint64_t before = 0;
    uint64_t after = 0;
    do {
      before = version_.load(std::memory_order_acquire);
      for (size_t i = 0; i < kWords; ++i) words[i] = words_[i].load(std::memory_order_relaxed);
      std::atomic_thread_fence(std::memory_order_acquire);
      after = version_.load(std::memory_order_relaxed);
    } while (before != after || before % 2 != 0);
    T value;
    std::memcpy(static_cast<void*>(&value), words.data(), sizeof value);
    return value;
  }

 private:
  std::atomic<uint64_t> version_ = 0;
  std::array<std::atomic<uint64_t>, kWords> words_ = {};
};

}  // namespace ps::server
