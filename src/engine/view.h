// A look at the engine from outside, for people who watch it: which PAGEs hold what, and who runs.
//
// Plain data, made between two steps; costs one pass over the PAGEs and allocates. Threading: values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cache/page_manager.h"
#include "engine/request.h"

namespace ps::engine {

// One letter per cell, for `pages_per_cell` PAGEs in the order of their ids (the last cell may have fewer): 'u' one of
// them is used, else 'i' one holds a part of a STATE image, else 'c' one is cached, else 'f' all are free.
struct PageMap {
  int64_t pages_per_cell = 1;
  std::string cells;
};
inline constexpr int64_t kMaxPageCells = 2048;
[[nodiscard]] PageMap draw_pages(const cache::PageManager& pages, int64_t max_cells = kMaxPageCells);

struct SequenceView {
  SequenceId id{};
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;    // of the prompt, found at admission
  int64_t computed_tokens = 0;  // of the prompt, that have their rows in the cache, found ones included
  int64_t answer_tokens = 0;
};

struct EngineView {
  PageMap pages;
  std::vector<SequenceView> running;  // the oldest first
};

}  // namespace ps::engine
