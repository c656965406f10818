// What every op runs on: threads and scratch. Nothing else is shared between ops, and no op allocates.
#pragma once

#include "base/buffer.h"
#include "base/thread_pool.h"

namespace ps::ops {

struct Exec {
  ThreadPool& pool;
  // Ops take what they need and give it back before they return; sized by OpTable::scratch_bytes.
  Arena& scratch;
};

// Gives back, at the end of a scope, what an op took from the scratch arena.
class ScratchScope {
 public:
  explicit ScratchScope(Arena& arena) noexcept : arena_(arena), mark_(arena.mark()) {}
  ~ScratchScope() { arena_.release(mark_); }
  ScratchScope(const ScratchScope&) = delete;
  ScratchScope& operator=(const ScratchScope&) = delete;

 private:
  Arena& arena_;
  int64_t mark_;
};

}  // namespace ps::ops
