// pagestate devices: what this machine offers to run a model on.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/commands/commands.h"
#include "apps/units.h"
#include "base/cpu_info.h"
#include "base/json.h"
#include "base/macros.h"
#ifdef PAGESTATE_HAS_CUDA
#include "cuda/device_info.h"
#endif

namespace ps::apps {
namespace {

struct Device {
  int32_t ordinal = 0;
  std::string name;
  std::string compute_capability;
  int32_t multiprocessors = 0;
  int64_t memory_bytes = 0;
  bool is_supported = false;
};

struct Machine {
  CpuInfo cpu;
  bool is_cuda_built = false;
  std::vector<Device> devices;
};

Result<Machine> look() {
  Machine machine;
  machine.cpu = cpu_info();
#ifdef PAGESTATE_HAS_CUDA
  machine.is_cuda_built = true;
  PS_TRY(const std::vector<cuda::DeviceInfo> devices, cuda::visible_devices());
  for (const cuda::DeviceInfo& device : devices) {
    machine.devices.push_back({device.ordinal, device.name,
                               fmt::format("{}.{}", device.compute_major, device.compute_minor), device.multiprocessors,
                               device.memory_bytes, device.is_supported});
  }
#endif
  return machine;
}

std::vector<std::pair<const char*, bool>> instruction_sets(const CpuInfo& cpu) {
  return {{"avx2", cpu.has_avx2},
          {"fma", cpu.has_fma},
          {"avx512", cpu.has_avx512},
          {"avx512_vnni", cpu.has_avx512_vnni},
          {"avx512_bf16", cpu.has_avx512_bf16},
          {"amx_bf16", cpu.has_amx_bf16},
          {"amx_int8", cpu.has_amx_int8}};
}

std::string to_text(const Machine& machine) {
  const CpuInfo& cpu = machine.cpu;
  std::string present;
  for (const auto& [name, is_present] : instruction_sets(cpu)) {
    if (is_present) present += (present.empty() ? "" : " ") + std::string(name);
  }
  std::string text = fmt::format("processor      {}\n", cpu.name);
  text += fmt::format("instructions   {}\n", present.empty() ? "none that pagestate uses" : present);
  text += fmt::format("cores          {} physical, {} logical\n", cpu.physical_cores, cpu.logical_cores);
  text += fmt::format("NUMA nodes     {}\n", cpu.numa_nodes);
  text += fmt::format("memory         {}, {} available\n", human_bytes(cpu.memory_bytes),
                      human_bytes(cpu.available_memory_bytes));
  if (!machine.is_cuda_built) {
    text += "GPUs           not looked for: this build has no CUDA component\n";
  } else if (machine.devices.empty()) {
    text += "GPUs           none\n";
  }
  for (const Device& device : machine.devices) {
    text += fmt::format("GPU {:<11}{}, compute capability {}, {} multiprocessors, {}{}\n", device.ordinal, device.name,
                        device.compute_capability, device.multiprocessors, human_bytes(device.memory_bytes),
                        device.is_supported ? "" : " (not supported: kernels are built for 9.0)");
  }
  return text;
}

std::string to_json(const Machine& machine) {
  const CpuInfo& cpu = machine.cpu;
  JsonWriter json;
  json.begin_object().key("cpu").begin_object();
  json.key("name").string(cpu.name).key("instructions").begin_object();
  for (const auto& [name, is_present] : instruction_sets(cpu)) json.key(name).boolean(is_present);
  json.end_object();
  json.key("physical_cores").integer(cpu.physical_cores).key("logical_cores").integer(cpu.logical_cores);
  json.key("numa_nodes").integer(cpu.numa_nodes).key("memory_bytes").integer(cpu.memory_bytes);
  json.key("available_memory_bytes").integer(cpu.available_memory_bytes).end_object();
  json.key("cuda_built").boolean(machine.is_cuda_built).key("gpus").begin_array();
  for (const Device& device : machine.devices) {
    json.begin_object().key("ordinal").integer(device.ordinal).key("name").string(device.name);
    json.key("compute_capability").string(device.compute_capability);
    json.key("multiprocessors").integer(device.multiprocessors).key("memory_bytes").integer(device.memory_bytes);
    json.key("supported").boolean(device.is_supported).end_object();
  }
  json.end_array().end_object();
  return std::move(json).text() + "\n";
}

}  // namespace

void add_devices(CLI::App& program, Work& chosen) {
  auto is_json = std::make_shared<bool>(false);
  CLI::App* command = program.add_subcommand("devices", "The processor, memory and GPUs of this machine");
  command->add_flag("--json", *is_json, "One JSON object instead of text");
  command->callback([is_json, &chosen] {
    chosen = [is_json]() -> Status {
      PS_TRY(const Machine machine, look());
      fmt::print("{}", *is_json ? to_json(machine) : to_text(machine));
      return {};
    };
  });
}

}  // namespace ps::apps
