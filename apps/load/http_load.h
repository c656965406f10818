// A load against a `pagestate serve` at an address: POST /v1/completions with streams, a connection for each request
// that is under way.
//
// What only the server knows (steps, their time, prompt rows, its processor time) is read from its /metrics before and
// after: other clients of the server at the same time count as well. Times are those that this client sees. A character
// of several tokens arrives with the last of them, and counts once between tokens.
#pragma once

#include <string>

#include "apps/load/workload.h"

namespace ps::apps {

// Ends at the first request that fails; the message says which and why.
[[nodiscard]] Result<LoadResult> run_http_load(const std::string& url, const std::string& key,
                                               const LoadOptions& options);

}  // namespace ps::apps
