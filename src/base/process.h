// What the kernel says of this process. Threading: any thread.
#pragma once

#include <cstdint>

namespace ps {

// Time of all its threads on processors, in user and kernel mode, ended threads included.
[[nodiscard]] double processor_seconds() noexcept;

// Memory that it holds at present, shared and file pages included; 0 where the kernel does not say.
[[nodiscard]] int64_t resident_bytes();

// The same without what it maps from files.
[[nodiscard]] int64_t anonymous_bytes();

// Names the calling thread for tools that show threads, such as top and perf. REQUIRES: at most 15 characters.
void name_thread(const char* name) noexcept;

}  // namespace ps
