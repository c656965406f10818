// What the check_integrity functions of this module share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace ps::cache {

[[nodiscard]] inline Status expect_count(std::string_view what, int64_t found, int64_t counted) {
  if (found == counted) return {};
  return Status::internal(std::string(what) + ": " + std::to_string(found) + ", counted " + std::to_string(counted));
}

[[nodiscard]] inline Status broken(std::string_view kind, int32_t id, std::string_view what) {
  return Status::internal(std::string(kind) + " " + std::to_string(id) + ": " + std::string(what));
}

}  // namespace ps::cache
