// Entry point: declares the subcommands, parses the command line, runs the chosen one.
// Exit codes: exit_code.h.
#include <fmt/format.h>

#include <cstdlib>
#include <exception>

#include "apps/commands/commands.h"
#include "apps/exit_code.h"
#include "base/log.h"

namespace {

int run(int argc, char** argv) {
  CLI::App program("pagestate: a native runtime for DeepSeek-V4.1-Flash checkpoints", "pagestate");
  program.set_version_flag("--version", "pagestate " PAGESTATE_VERSION);
  program.require_subcommand(1);
  ps::apps::Work chosen;
  ps::apps::add_inspect(program, chosen);
  ps::apps::add_devices(program, chosen);
  ps::apps::add_generate(program, chosen);
  ps::apps::add_chat(program, chosen);
  ps::apps::add_tokenize(program, chosen);
  ps::apps::add_prompt(program, chosen);
  ps::apps::add_parse(program, chosen);
  ps::apps::add_make_checkpoint(program, chosen);
  ps::apps::add_validate(program, chosen);
  ps::apps::add_eval(program, chosen);
  ps::apps::add_bench(program, chosen);
  ps::apps::add_serve(program, chosen);
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return program.exit(error) == 0 ? 0 : 2;
  }
  const ps::Status status = chosen();
  if (status.ok()) return 0;
  fmt::print(stderr, "pagestate: {}\n", status.to_string());
  return ps::apps::exit_code(status);
}

}  // namespace

int main(int argc, char** argv) {
  if (const char* level = std::getenv("PS_LOG"); level != nullptr && !ps::set_log_level(level)) {
    fmt::print(stderr, "pagestate: PS_LOG={}: legal values are debug, info, warning, error, off\n", level);
    return 2;
  }
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "pagestate: internal: {}\n", error.what());
    return ps::apps::kInternalExit;
  }
}
