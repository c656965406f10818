// Answers from an engine in this process. Encodes as the hosted API does, so that an earlier turn, its reasoning
// included, is a prefix of the next prompt and comes from the prefix cache.
#pragma once

#include <memory>

#include "apps/chat/backend.h"
#include "apps/open_model.h"

namespace ps::apps::chat {

[[nodiscard]] std::unique_ptr<Backend> make_local_backend(std::unique_ptr<OpenModel> model);

}  // namespace ps::apps::chat
