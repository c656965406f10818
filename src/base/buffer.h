// HostBuffer: the owner of aligned, zero-filled host memory. Everything persistent that a step touches lies in one;
// views (spans, raw pointers in op arguments) refer to it. Memory comes straight from the kernel, so an untouched
// buffer costs no physical page. Pages are huge where the system gives them, and spread over the NUMA nodes of the CPU
// set; split_memory() (topology.h) places parts of an untouched buffer otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"

namespace ps {

class HostBuffer {
 public:
  HostBuffer() noexcept = default;
  // Zero-filled and page-aligned. exhausted when the system refuses.
  static Result<HostBuffer> allocate(int64_t size_bytes);

  HostBuffer(HostBuffer&& other) noexcept;
  HostBuffer& operator=(HostBuffer&& other) noexcept;
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;
  ~HostBuffer();

  [[nodiscard]] std::byte* data() noexcept { return data_; }
  [[nodiscard]] const std::byte* data() const noexcept { return data_; }
  [[nodiscard]] int64_t size_bytes() const noexcept { return size_; }
  template <typename T>
  [[nodiscard]] std::span<T> as() noexcept {
    return {reinterpret_cast<T*>(data_), static_cast<size_t>(size_) / sizeof(T)};
  }

 private:
  HostBuffer(std::byte* data, int64_t size) noexcept : data_(data), size_(size) {}
  std::byte* data_ = nullptr;
  int64_t size_ = 0;
};

// Hands out aligned pieces of one buffer in order, and takes all of them back at once: the scratch of one step.
// REQUIRES: the capacity was computed beforehand; running out is a bug, not a condition.
class Arena {
 public:
  static constexpr int64_t kAlignment = 64;

  explicit Arena(HostBuffer buffer) noexcept : buffer_(std::move(buffer)) {}

  // Uninitialized room for `count` values.
  template <typename T>
  [[nodiscard]] T* take(int64_t count) {
    return reinterpret_cast<T*>(take_bytes(count * static_cast<int64_t>(sizeof(T))));
  }
  [[nodiscard]] std::byte* take_bytes(int64_t size_bytes);

  // A position to come back to: everything taken since is given back.
  [[nodiscard]] int64_t mark() const noexcept { return used_; }
  void release(int64_t mark) noexcept { used_ = mark; }
  void reset() noexcept { used_ = 0; }
  [[nodiscard]] int64_t used_bytes() const noexcept { return used_; }
  [[nodiscard]] int64_t peak_bytes() const noexcept { return peak_; }
  [[nodiscard]] int64_t capacity_bytes() const noexcept { return buffer_.size_bytes(); }

 private:
  HostBuffer buffer_;
  int64_t used_ = 0;
  int64_t peak_ = 0;
};

}  // namespace ps
