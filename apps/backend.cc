#include "apps/backend.h"

#include <cstdlib>

#include "cpu/table.h"

namespace ps::apps {
namespace {

// The names that this machine can run.
std::string legal_names() {
  std::string names = "auto, ref";
  for (const cpu::Isa isa : cpu::kIsas) {
    if (cpu::supported(isa).ok()) names += ", " + std::string(cpu::isa_name(isa));
  }
  return names;
}

Result<const ops::OpTable*> pick(const std::string& source, const std::string& name) {
  if (name == "ref") return &ops::reference_table();
  for (const cpu::Isa isa : cpu::kIsas) {
    if (name != cpu::isa_name(isa)) continue;
    const Status status = cpu::supported(isa);
    if (status.ok()) return cpu::table_for(isa);
    return Status::unsupported(source + " is " + name + ": " + std::string(status.message()) +
                               "; legal values here are " + legal_names());
  }
  return Status::invalid(source + " is " + name + "; legal values here are " + legal_names());
}

}  // namespace

void declare_backend_option(CLI::App& command, std::string& name) {
  command
      .add_option("--backend", name,
                  "auto (the widest instruction set), ref, avx2, avx512 or amx; all give the same text")
      ->capture_default_str();
}

Result<const ops::OpTable*> pick_backend(const std::string& name) {
  if (name != "auto") return pick("--backend", name);
  const char* forced = std::getenv("PS_FORCE_ISA");
  if (forced != nullptr && *forced != '\0' && std::string(forced) != "auto") return pick("PS_FORCE_ISA", forced);
  return &cpu::table();
}

}  // namespace ps::apps
