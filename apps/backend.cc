#include "apps/backend.h"

#include "cpu/table.h"

namespace ps::apps {
namespace {

// The values of --isa that this machine can run.
std::string legal_sets() {
  std::string names = "auto";
  for (const cpu::Isa isa : cpu::kIsas) {
    if (cpu::supported(isa).ok()) names += ", " + std::string(cpu::isa_name(isa));
  }
  return names;
}

Result<const ops::OpTable*> pick_set(const std::string& name) {
  if (name == "auto") return &cpu::table();
  for (const cpu::Isa isa : cpu::kIsas) {
    if (name != cpu::isa_name(isa)) continue;
    const Status status = cpu::supported(isa);
    if (status.ok()) return cpu::table_for(isa);
    return Status::unsupported("--isa is " + name + ": " + std::string(status.message()) + "; legal values here are " +
                               legal_sets());
  }
  return Status::invalid("--isa is " + name + "; legal values here are " + legal_sets());
}

}  // namespace

void declare_backend_options(CLI::App& command, BackendArguments& arguments) {
  command
      .add_option("--backend", arguments.backend,
                  "auto, cpu, or ref (the scalar reference, for comparisons); all give the same bits")
      ->capture_default_str();
  command
      .add_option("--isa", arguments.isa,
                  "Instruction set of the CPU backend: auto (the widest), avx2, avx512 or amx; all give the same bits")
      ->capture_default_str();
}

Result<const ops::OpTable*> pick_backend(const BackendArguments& arguments) {
  if (arguments.backend == "auto" || arguments.backend == "cpu") return pick_set(arguments.isa);
  if (arguments.backend != "ref") {
    return Status::invalid("--backend is " + arguments.backend + "; legal values are auto, cpu, ref");
  }
  if (arguments.isa != "auto") {
    return Status::invalid("--isa " + arguments.isa + " chooses among the CPU backend's instruction sets, and " +
                           "--backend ref has none; with it the only legal value is auto");
  }
  return &ops::reference_table();
}

}  // namespace ps::apps
