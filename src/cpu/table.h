// The op tables of the CPU backend, one per instruction set. Every table gives the bits of reference_table(): the
// canonical orders hold on all of them. An op without an implementation of its own is the reference's.
#pragma once

#include <array>
#include <string_view>

#include "base/status.h"
#include "ops/table.h"

namespace ps::cpu {

enum class Isa : uint8_t { kAvx2, kAvx512, kAmx };
inline constexpr std::array<Isa, 3> kIsas = {Isa::kAvx2, Isa::kAvx512, Isa::kAmx};

// "avx2", "avx512", "amx": also the name of the table.
[[nodiscard]] std::string_view isa_name(Isa isa) noexcept;

// Why this machine cannot run `isa`; ok if it can. Asks the system for the tile registers on the first call.
[[nodiscard]] Status supported(Isa isa);

// unsupported, with the reason, where the machine lacks it. Tables live for ever.
[[nodiscard]] Result<const ops::OpTable*> table_for(Isa isa);

// The widest set that this machine has. REQUIRES: AVX2, which the whole program assumes.
[[nodiscard]] const ops::OpTable& table();

}  // namespace ps::cpu
