// Numbers as people write and read them: thousands separators, binary sizes, counts in billions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace ps::apps {

// "739,840".
[[nodiscard]] std::string grouped(int64_t value);
// "475.24 GiB": the largest binary unit that leaves at least 1, two digits after the point; below 1 KiB "17 B".
[[nodiscard]] std::string human_bytes(int64_t bytes);
// "763.21 B", "1.06 M", "512": counts with decimal units.
[[nodiscard]] std::string human_count(int64_t count);

// "64GiB", "64 GiB", "1.5TB", "1000000": a number, then nothing (bytes) or B, K, M, G, T, KiB.., KB..; K and KiB are
// 1024, KB is 1000; letter case does not matter. invalid names the legal forms.
[[nodiscard]] Result<int64_t> parse_bytes(std::string_view text);

}  // namespace ps::apps
