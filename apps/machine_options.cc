#include "apps/machine_options.h"

#include "base/macros.h"
#include "base/topology.h"

namespace ps::apps {

void declare_machine_options(CLI::App& command, MachineArguments& arguments) {
  declare_backend_options(command, arguments.backend);
  command.add_option("--threads", arguments.threads, "0: one per physical core of the CPU set")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command
      .add_option("--pin-threads", arguments.pin_threads,
                  "Bind each thread to a physical core: on, off, or auto: where there is one thread for every core")
      ->capture_default_str();
  command
      .add_option("--weights", arguments.weights,
                  "map: use the files where the page cache holds them; copy: into memory of our own, in huge pages")
      ->capture_default_str();
}

Result<Machine> pick_machine(const MachineArguments& arguments) {
  Machine machine;
  PS_TRY(machine.table, pick_backend(arguments.backend));
  const int cores = physical_cores();
  machine.threads = arguments.threads > 0 ? arguments.threads : cores;
  machine.pin_threads = arguments.pin_threads == "on" || (arguments.pin_threads == "auto" && machine.threads == cores);
  if (!machine.pin_threads && arguments.pin_threads != "off" && arguments.pin_threads != "auto") {
    return Status::invalid("--pin-threads is " + arguments.pin_threads + "; legal values are auto, on, off");
  }
  machine.weights = arguments.weights == "copy" ? WeightMode::kCopy : WeightMode::kMap;
  if (machine.weights == WeightMode::kMap && arguments.weights != "map") {
    return Status::invalid("--weights is " + arguments.weights + "; legal values are map, copy");
  }
  return machine;
}

}  // namespace ps::apps
