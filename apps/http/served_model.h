// What a server says of the model that it serves.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "apps/http/http_client.h"
#include "base/status.h"

namespace ps::apps {

struct ServedModel {
  std::string name;         // never empty
  int64_t vocabulary = 0;   // 0: not said
  int64_t max_context = 0;  // 0: not said
};

// The first of /v1/models; nothing where it lists none.
[[nodiscard]] Result<std::optional<ServedModel>> first_model(HttpClient& client);

}  // namespace ps::apps
