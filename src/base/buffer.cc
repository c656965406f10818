#include "base/buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/macros.h"
#include "base/topology.h"

namespace ps {

Result<HostBuffer> HostBuffer::allocate(int64_t size_bytes) {
  PS_CHECK(size_bytes >= 0, size_bytes);
  if (size_bytes == 0) return HostBuffer();
  void* data = mmap(nullptr, static_cast<size_t>(size_bytes), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) return Status::exhausted("cannot allocate " + std::to_string(size_bytes) + " bytes");
  madvise(data, static_cast<size_t>(size_bytes), MADV_HUGEPAGE);  // advice only
  interleave_memory(data, size_bytes);
  return HostBuffer(static_cast<std::byte*>(data), size_bytes);
}

HostBuffer::HostBuffer(HostBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

HostBuffer& HostBuffer::operator=(HostBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

HostBuffer::~HostBuffer() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(size_));
}

std::byte* Arena::take_bytes(int64_t size_bytes) {
  const int64_t left = buffer_.size_bytes() - used_;
  PS_CHECK(size_bytes >= 0 && size_bytes <= left, "arena of", buffer_.size_bytes(), "bytes, left", left, "wanted",
           size_bytes);
  const int64_t rounded = std::min((size_bytes + kAlignment - 1) / kAlignment * kAlignment, left);
  std::byte* piece = buffer_.data() + used_;
  used_ += rounded;
  peak_ = std::max(peak_, used_);
  return piece;
}

}  // namespace ps
