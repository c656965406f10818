#include "apps/weights.h"

#include <string_view>

#include "apps/progress.h"

namespace ps::apps {

Status load_weights(const checkpoint::Checkpoint& checkpoint) {
  ProgressBar bar("loading", "GB", 1e9);
  // Engram tables stay on disk: a token reads a few rows of them.
  const auto wanted = [](std::string_view name) {
    return name.find(".engram.embed.") == std::string_view::npos && !name.starts_with("vision.") &&
           !name.starts_with("mtp.");
  };
  return checkpoint.prefault(wanted, [&](int64_t done, int64_t total) {
    bar.update(done, total);
    return true;
  });
}

}  // namespace ps::apps
