// Where threads and memory lie: the physical cores of this process's CPU set, their NUMA nodes, and the placing of
// memory on nodes. Facts come from /sys on each call, but for the nodes that memory is spread over: the first placing
// call reads them, and must not come from a pinned thread. On a machine with one node placing does nothing.
// Placing is advice: where the system refuses, memory lies where it is first touched, and results are the same.
// Threading: any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ps {

// A logical CPU and where it lies. Hyper-threads of one core share `package` and `core`.
struct CpuPlace {
  int cpu = 0;
  int package = 0;
  int core = 0;
  int node = 0;
};

// One logical CPU per physical core, the lowest of each (pitfalls G7), ordered by node, then CPU.
[[nodiscard]] std::vector<CpuPlace> one_per_core(std::vector<CpuPlace> cpus);

// one_per_core() of this process's CPU set. Empty where the system does not tell.
[[nodiscard]] std::vector<CpuPlace> physical_core_places();

// The cores of `threads` workers: as many on each node as its share of the cores, so that all nodes' memory is read,
// and the workers of one node in a row. More threads than cores go round each node's cores. `cores` as one_per_core()
// gives them; REQUIRES: not empty, threads >= 1.
[[nodiscard]] std::vector<CpuPlace> place_workers(const std::vector<CpuPlace>& cores, int threads);

// Number of physical cores in this process's CPU set; hyper-threads of one core count once (pitfalls G7).
[[nodiscard]] int physical_cores();

// The part [begin, end) of the whole, 0 to 1, that the workers of one node take first: workers before and up to it.
struct NodeShare {
  int node = 0;
  double begin = 0;
  double end = 0;
};
// Of workers in this order, neighbours on one node merged.
[[nodiscard]] std::vector<NodeShare> node_shares(const std::vector<CpuPlace>& workers);

// Spreads pages that nobody touched yet over all nodes of the CPU set.
void interleave_memory(void* data, int64_t size_bytes) noexcept;
// Puts each share of an untouched range on its node, to the page.
void split_memory(void* data, int64_t size_bytes, std::span<const NodeShare> shares) noexcept;
// From here to its end this thread spreads what it allocates or reads into the page cache over all nodes. The policy of
// a mapping does not apply to a file's pages; that of the thread that reads them does.
void interleave_this_thread() noexcept;

}  // namespace ps
