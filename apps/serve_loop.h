// The life of a server as a process: ready line, signals, drain, and the end that an engine's fault brings.
// Threading: the main thread.
#pragma once

#include <signal.h>

#include "base/status.h"
#include "server/server.h"

namespace ps::apps {

// Blocks SIGTERM and SIGINT in this thread and in all that it starts from then on; wait() takes them.
class Signals {
 public:
  Signals();
  // Whether one came within a fifth of a second.
  [[nodiscard]] bool wait() const;
  // Whether one has come that wait() has not taken.
  [[nodiscard]] bool is_pending() const;

 private:
  sigset_t set_{};
};

// Starts the server, prints the ready line, and returns when it has ended: OK after a signal, when requests had
// `drain_seconds` to finish (a second signal ends the wait); internal after a fault of the engine, when everybody who
// waited has heard of it.
[[nodiscard]] Status serve_until_signal(server::Server& server, const Signals& signals, double drain_seconds);

}  // namespace ps::apps
