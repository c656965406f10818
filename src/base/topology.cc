#include "base/topology.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "base/macros.h"

namespace ps {
namespace {

// The ABI of mbind(2) and set_mempolicy(2); libnuma would add a package for these two calls.
constexpr int kPreferred = 1;
constexpr int kInterleave = 3;
constexpr int kMaxNodes = 1024;
constexpr int kWordBits = 64;
using NodeMask = std::array<uint64_t, kMaxNodes / kWordBits>;
constexpr unsigned long kMaskBits = kMaxNodes + 1;  // the kernel reads one bit less

NodeMask mask_of(std::span<const int> nodes) noexcept {
  NodeMask mask{};
  for (const int node : nodes) {
    if (node >= 0 && node < kMaxNodes) {
      mask[static_cast<size_t>(node / kWordBits)] |= uint64_t{1} << (node % kWordBits);
    }
  }
  return mask;
}

int read_number(const std::filesystem::path& path, int otherwise) {
  int value = otherwise;
  std::ifstream(path) >> value;
  return value;
}

// /sys/devices/system/cpu/cpuN has a link named after its node.
int node_of(const std::filesystem::path& cpu_folder) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(cpu_folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("node") && name.size() > 4 && name.find_first_not_of("0123456789", 4) == std::string::npos) {
      return std::stoi(name.substr(4));
    }
  }
  return 0;
}

// Of the CPU set; asked for once, since placing calls need it often and nodes do not come and go.
const std::vector<int>& memory_nodes() {
  static const std::vector<int> kNodes = [] {
    std::set<int> nodes;
    for (const CpuPlace& core : physical_core_places()) nodes.insert(core.node);
    return std::vector<int>(nodes.begin(), nodes.end());
  }();
  return kNodes;
}

void set_policy(void* data, int64_t size_bytes, int mode, const NodeMask& mask) noexcept {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<uintptr_t>(data) + page - 1) / page * page;
  const auto end = (reinterpret_cast<uintptr_t>(data) + static_cast<uintptr_t>(size_bytes)) / page * page;
  if (begin < end) (void)syscall(SYS_mbind, begin, end - begin, mode, mask.data(), kMaskBits, 0);
}

}  // namespace

std::vector<CpuPlace> one_per_core(std::vector<CpuPlace> cpus) {
  std::sort(cpus.begin(), cpus.end(), [](const CpuPlace& a, const CpuPlace& b) { return a.cpu < b.cpu; });
  std::set<std::pair<int, int>> seen;
  std::erase_if(cpus, [&](const CpuPlace& cpu) { return !seen.emplace(cpu.package, cpu.core).second; });
  std::stable_sort(cpus.begin(), cpus.end(), [](const CpuPlace& a, const CpuPlace& b) { return a.node < b.node; });
  return cpus;
}

std::vector<CpuPlace> physical_core_places() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return {};
  std::vector<CpuPlace> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(static_cast<size_t>(cpu), &set)) continue;
    const std::filesystem::path folder = "/sys/devices/system/cpu/cpu" + std::to_string(cpu);
    // Where /sys is hidden every CPU counts as a core.
    cpus.push_back({cpu, read_number(folder / "topology/physical_package_id", 0),
                    read_number(folder / "topology/core_id", -1 - cpu), node_of(folder)});
  }
  return one_per_core(std::move(cpus));
}

std::vector<CpuPlace> place_workers(const std::vector<CpuPlace>& cores, int threads) {
  PS_CHECK(!cores.empty() && threads >= 1, threads);
  std::vector<CpuPlace> workers;
  const auto total = static_cast<int64_t>(cores.size());
  for (int64_t begin = 0; begin < total;) {
    int64_t end = begin;
    while (end < total && cores[static_cast<size_t>(end)].node == cores[static_cast<size_t>(begin)].node) ++end;
    // Cut at rounded places, so that the nodes' numbers add up to `threads`.
    const int64_t first = (threads * begin + total - 1) / total;
    const int64_t last = (threads * end + total - 1) / total;
    for (int64_t worker = first; worker < last; ++worker) {
      workers.push_back(cores[static_cast<size_t>(begin + (worker - first) % (end - begin))]);
    }
    begin = end;
  }
  return workers;
}

int physical_cores() {
  const auto count = static_cast<int>(physical_core_places().size());
  return count > 0 ? count : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

std::vector<NodeShare> node_shares(const std::vector<CpuPlace>& workers) {
  std::vector<NodeShare> shares;
  const auto total = static_cast<double>(workers.size());
  for (size_t worker = 0; worker < workers.size(); ++worker) {
    if (shares.empty() || shares.back().node != workers[worker].node) {
      shares.push_back({workers[worker].node, static_cast<double>(worker) / total, 0});
    }
    shares.back().end = static_cast<double>(worker + 1) / total;
  }
  return shares;
}

void interleave_memory(void* data, int64_t size_bytes) noexcept {
  if (memory_nodes().size() > 1) set_policy(data, size_bytes, kInterleave, mask_of(memory_nodes()));
}

void split_memory(void* data, int64_t size_bytes, std::span<const NodeShare> shares) noexcept {
  if (shares.size() < 2) return;
  const auto place = [&](double share) { return std::llround(share * static_cast<double>(size_bytes)); };
  for (const NodeShare& share : shares) {
    const int64_t begin = place(share.begin);
    set_policy(static_cast<std::byte*>(data) + begin, place(share.end) - begin, kPreferred,
               mask_of(std::span(&share.node, 1)));
  }
}

void interleave_this_thread() noexcept {
  if (memory_nodes().size() < 2) return;
  const NodeMask mask = mask_of(memory_nodes());
  (void)syscall(SYS_set_mempolicy, kInterleave, mask.data(), kMaskBits);
}

}  // namespace ps
