#include "engine/view.h"

#include <algorithm>
#include <string_view>

namespace ps::engine {
namespace {

// The letters from the least to the most telling.
constexpr std::string_view kLetters = "fciu";

size_t rank(cache::PageState state) {
  switch (state) {
    case cache::PageState::kVacant: return 0;
    case cache::PageState::kCached: return 1;
    case cache::PageState::kUnit: return 2;
    case cache::PageState::kUsed: return 3;
  }
  return 0;
}

}  // namespace

PageMap draw_pages(const cache::PageManager& pages, int64_t max_cells) {
  PageMap map;
  const int64_t count = pages.count();
  map.pages_per_cell = std::max<int64_t>(1, (count + max_cells - 1) / max_cells);
  for (int64_t first = 0; first < count; first += map.pages_per_cell) {
    size_t most = 0;
    for (int64_t page = first; page < std::min(count, first + map.pages_per_cell); ++page) {
      most = std::max(most, rank(pages.state(cache::PageId{static_cast<int32_t>(page)})));
    }
    map.cells += kLetters[most];
  }
  return map;
}

}  // namespace ps::engine
