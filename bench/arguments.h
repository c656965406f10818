// The arguments that the benchmark programs of the CPU backend share; the rest goes to Google Benchmark.
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "apps/machine_peak.h"
#include "base/topology.h"

namespace ps::bench {

// --processor_time, --threads=N (default: physical cores).
inline apps::Stopwatch take_arguments(int argc, char** argv) {
  apps::Stopwatch watch{false, physical_cores()};
  std::vector<char*> rest;
  for (int i = 0; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--processor_time") watch.is_processor_time = true;
    else if (argument.starts_with("--threads=")) watch.threads = std::max(1, std::atoi(argv[i] + 10));
    else rest.push_back(argv[i]);
  }
  int count = static_cast<int>(rest.size());
  benchmark::Initialize(&count, rest.data());
  return watch;
}

}  // namespace ps::bench
