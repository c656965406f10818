// Where the weights lie while a model runs, and how they come there before the first request needs them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>

#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "engine/planner.h"

namespace ps::apps {

enum class WeightMode : uint8_t {
  kMap,   // in the page cache, shared with every other process that maps the files
  kCopy,  // in anonymous memory: huge pages, and on several memory nodes each part near the threads that read it
};

struct Machine;

// When a forward needs a tensor: 0 the embedding, then layer by layer, the head last. Negative for what a step reads a
// few rows of (Engram tables) or does not read (vision, drafts): it stays on the disk.
[[nodiscard]] int load_stage(std::string_view tensor) noexcept;

// Opens a checkpoint. With copies it refuses what does not fit beside what runs (exhausted, with required and available
// bytes) and gives the weights their places; REQUIRES: load_weights() before a step.
[[nodiscard]] Result<checkpoint::Checkpoint> open_checkpoint(const std::filesystem::path& folder,
                                                             const Machine& machine);

// Brings the weights in, with a bar on a terminal, otherwise with a line in the log every few seconds. Mapped ones that
// the page cache holds are left alone: a step touches those that it needs. Where the mapped ones exceed the memory
// that is left beside `reserved_bytes` (cache and scratch), the experts stay on the disk until they are used.
// cancelled once `is_stopped`, asked every now and then, says so.
[[nodiscard]] Status load_weights(const checkpoint::Checkpoint& checkpoint, const Machine& machine,
                                  int64_t reserved_bytes, const std::function<bool()>& is_stopped = {});
// The same for an engine; then the log tells what the process takes beside mapped files: cache, scratch, copies, and
// all the rest that is there before the first request.
[[nodiscard]] Status load_weights(const checkpoint::Checkpoint& checkpoint, const Machine& machine,
                                  const engine::MemoryPlan& plan, const std::function<bool()>& is_stopped = {});

}  // namespace ps::apps
