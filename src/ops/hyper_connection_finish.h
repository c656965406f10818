// The end of hc_mix, for every backend that runs on the host: coefficients from the mixes of a row
// (hyper_connection.h).
#pragma once

#include "ops/hyper_connection.h"

namespace ps::ops {

// Row t of pre, post and combine from its kMixes mixes z. REQUIRES: runs inside ThreadPool::parallel_for.
void finish_mixes(const HcMixArgs& args, int64_t t, const float* z) noexcept;

}  // namespace ps::ops
