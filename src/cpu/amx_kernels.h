// What the AMX files give each other: the contracts of kernels.h, on tiles where the inputs are BF16.
#pragma once

#include "cpu/kernels.h"

namespace ps::cpu {

void amx_multiply(const MultiplyArgs& args);  // of packed rows as amx.cc lays them
void amx_multiply_store(const MultiplyArgs& args, const StoreArgs& out);
[[nodiscard]] int64_t amx_attend_bytes(int64_t heads, int64_t dim);
void amx_attend(const AttendArgs& args);
void amx_score_keys(const ScoreKeysArgs& args);

}  // namespace ps::cpu
