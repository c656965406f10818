// The subcommands of the pagestate program. Each add_*() declares its options on `program`; parsing the command line
// then leaves the work of the chosen one in `chosen`, and main() runs it and turns its Status into an exit code.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "base/status.h"

namespace ps::apps {

using Work = std::function<Status()>;

void add_inspect(CLI::App& program, Work& chosen);
void add_devices(CLI::App& program, Work& chosen);
void add_generate(CLI::App& program, Work& chosen);
void add_chat(CLI::App& program, Work& chosen);
void add_tokenize(CLI::App& program, Work& chosen);  // tokenize and detokenize
void add_prompt(CLI::App& program, Work& chosen);
void add_parse(CLI::App& program, Work& chosen);
void add_make_checkpoint(CLI::App& program, Work& chosen);
void add_validate(CLI::App& program, Work& chosen);
void add_eval(CLI::App& program, Work& chosen);
void add_bench(CLI::App& program, Work& chosen);  // bench serve, decode and prefill
// One of the two latter, below `bench`.
void add_bench_steps(CLI::App& bench, bool is_decode, Work& chosen);
void add_serve(CLI::App& program, Work& chosen);

}  // namespace ps::apps
