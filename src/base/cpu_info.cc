#include "base/cpu_info.h"

#include <cpuid.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "base/thread_pool.h"

namespace ps {
namespace {

struct Leaf {
  uint32_t a = 0, b = 0, c = 0, d = 0;
};

// All zero where the processor has no such leaf.
Leaf cpuid(uint32_t leaf, uint32_t subleaf) noexcept {
  Leaf out;
  __get_cpuid_count(leaf, subleaf, &out.a, &out.b, &out.c, &out.d);
  return out;
}

constexpr bool bit(uint32_t word, int index) noexcept { return ((word >> index) & 1u) != 0; }

// Registers that the system saves on a context switch (XCR0). REQUIRES: CPUID reports OSXSAVE.
uint32_t saved_registers() noexcept {
  uint32_t low = 0;
  uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

std::string processor_name() {
  std::array<uint32_t, 12> words{};
  for (uint32_t i = 0; i < 3; ++i) {
    const Leaf leaf = cpuid(0x80000002u + i, 0);
    words[4 * i] = leaf.a;
    words[4 * i + 1] = leaf.b;
    words[4 * i + 2] = leaf.c;
    words[4 * i + 3] = leaf.d;
  }
  char text[sizeof words + 1] = {};
  std::memcpy(text, words.data(), sizeof words);
  const std::string name = text;
  const size_t begin = name.find_first_not_of(' ');
  return begin == std::string::npos ? "unknown" : name.substr(begin, name.find_last_not_of(' ') + 1 - begin);
}

void detect_instructions(CpuInfo& info) noexcept {
  const Leaf basic = cpuid(1, 0);
  const bool system_saves = bit(basic.c, 27);
  const uint32_t saved = system_saves ? saved_registers() : 0;
  const bool ymm = (saved & 0x6u) == 0x6u;
  const bool zmm = (saved & 0xE6u) == 0xE6u;
  const bool tiles = (saved & 0x60000u) == 0x60000u;
  const Leaf extended = cpuid(7, 0);
  const Leaf more = cpuid(7, 1);
  info.has_avx2 = ymm && bit(extended.b, 5);
  info.has_fma = ymm && bit(basic.c, 12);
  // F, DQ, BW, VL
  info.has_avx512 = zmm && bit(extended.b, 16) && bit(extended.b, 17) && bit(extended.b, 30) && bit(extended.b, 31);
  info.has_avx512_vnni = info.has_avx512 && bit(extended.c, 11);
  info.has_avx512_bf16 = info.has_avx512 && bit(more.a, 5);
  info.has_amx_bf16 = tiles && bit(extended.d, 24) && bit(extended.d, 22);
  info.has_amx_int8 = tiles && bit(extended.d, 24) && bit(extended.d, 25);
}

// "MemTotal:  123 kB" -> bytes; 0 when there is no such line.
int64_t meminfo_bytes(const std::string& key) {
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::string unit;
  int64_t kilobytes = 0;
  while (file >> name >> kilobytes && std::getline(file, unit)) {
    if (name == key) return kilobytes * 1024;
  }
  return 0;
}

struct GroupMemory {
  int64_t limit = std::numeric_limits<int64_t>::max();
  int64_t left = std::numeric_limits<int64_t>::max();  // before the limit is met
};

// Pages of files that a group is charged for and that the system drops before it refuses memory.
int64_t cached_file_bytes(const std::filesystem::path& group) {
  std::ifstream stat(group / "memory.stat");
  int64_t bytes = 0;
  std::string key;
  int64_t value = 0;
  while (stat >> key >> value) {
    if (key == "inactive_file" || key == "active_file") bytes += value;
  }
  return bytes;
}

// The tightest limit of this process's control group (version 2) and its parents.
GroupMemory control_group_memory() {
  namespace fs = std::filesystem;
  GroupMemory memory;
  std::ifstream groups("/proc/self/cgroup");
  std::string line;
  while (std::getline(groups, line)) {
    if (line.rfind("0::/", 0) != 0) continue;
    const fs::path root = "/sys/fs/cgroup";
    for (fs::path folder = root / line.substr(4);; folder = folder.parent_path()) {
      int64_t limit = 0;
      int64_t used = 0;
      if (std::ifstream(folder / "memory.max") >> limit) {  // "max" is no number
        memory.limit = std::min(memory.limit, limit);
        if (std::ifstream(folder / "memory.current") >> used) {
          const int64_t kept = std::max<int64_t>(0, used - cached_file_bytes(folder));
          memory.left = std::min(memory.left, std::max<int64_t>(0, limit - kept));
        }
      }
      if (folder == root || !folder.has_relative_path()) break;
    }
  }
  return memory;
}

// Counts the NUMA nodes that hold at least one processor of the set.
int32_t numa_nodes(const cpu_set_t& set) {
  namespace fs = std::filesystem;
  int32_t nodes = 0;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/sys/devices/system/node", ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind("node", 0) != 0 || name.size() < 5 || name.find_first_not_of("0123456789", 4) != std::string::npos) {
      continue;
    }
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set) && fs::exists(entry.path() / ("cpu" + std::to_string(cpu)), ignored)) {
        ++nodes;
        break;
      }
    }
  }
  return std::max(nodes, 1);
}

}  // namespace

CpuInfo cpu_info() {
  CpuInfo info;
  info.name = processor_name();
  detect_instructions(info);
  info.physical_cores = physical_cores();
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    info.logical_cores = CPU_COUNT(&set);
    info.numa_nodes = numa_nodes(set);
  } else {  // more processors than a cpu_set_t holds
    info.logical_cores = static_cast<int32_t>(std::thread::hardware_concurrency());
    info.numa_nodes = 1;
  }
  const GroupMemory group = control_group_memory();
  info.memory_bytes = std::min(meminfo_bytes("MemTotal:"), group.limit);
  info.available_memory_bytes = std::min(meminfo_bytes("MemAvailable:"), group.left);
  return info;
}

}  // namespace ps
