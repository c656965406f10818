// What the host offers: instruction sets that both the processor and the system support, cores, NUMA nodes, memory.
// Facts only; who uses what is decided elsewhere. Reads /proc, /sys and CPUID on each call; any thread.
#pragma once

#include <cstdint>
#include <string>

namespace ps {

struct CpuInfo {
  std::string name;
  // The baseline x86-64-v3: every function of this project may use it.
  bool has_avx2 = false;
  bool has_fma = false;
  // F, BW, DQ and VL together: the set that the AVX-512 code paths assume.
  bool has_avx512 = false;
  bool has_avx512_vnni = false;
  bool has_avx512_bf16 = false;
  // Tile registers. NOTE: a process asks the kernel for them once before use (arch_prctl).
  bool has_amx_bf16 = false;
  bool has_amx_int8 = false;

  int32_t logical_cores = 0;           // in this process's CPU set
  int32_t physical_cores = 0;          // of those, hyper-threads counted once
  int32_t numa_nodes = 0;              // online nodes with processors of the set
  int64_t memory_bytes = 0;            // of the machine, or the control group's limit where that is lower
  int64_t available_memory_bytes = 0;  // what can be had without swapping, by the kernel's estimate and that limit
};

[[nodiscard]] CpuInfo cpu_info();

}  // namespace ps
