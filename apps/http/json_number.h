// Integers out of a server's replies, which may be anything.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/json.h"

namespace ps::apps {

// 0 where there is no such integer; `parent` may be null.
[[nodiscard]] inline int64_t json_number(const JsonValue* parent, std::string_view name) {
  const JsonValue* value = parent != nullptr ? parent->find(name) : nullptr;
  if (value == nullptr || !value->is_number()) return 0;
  const auto integer = value->integer();
  return integer.ok() ? integer.value() : 0;
}

}  // namespace ps::apps
