// Answers from a server that speaks the chat-completions API, `pagestate serve` or another one.
#pragma once

#include <memory>
#include <string>

#include "apps/chat/backend.h"

namespace ps::apps::chat {

// Asks the server for its models at once, so that a wrong address is known before the first question. `model`: its
// name; empty: the first one that the server lists. `key`: of the API; may be empty.
[[nodiscard]] Result<std::unique_ptr<Backend>> make_remote_backend(const std::string& url, std::string model,
                                                                   std::string key);

}  // namespace ps::apps::chat
