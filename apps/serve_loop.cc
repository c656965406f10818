#include "apps/serve_loop.h"

#include <fmt/format.h>
#include <pthread.h>

#include <cstdio>
#include <ctime>
#include <string>

#include "base/log.h"

namespace ps::apps {
namespace {

constexpr double kFaultSeconds = 1;

}  // namespace

Signals::Signals() {
  sigemptyset(&set_);
  sigaddset(&set_, SIGTERM);
  sigaddset(&set_, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set_, nullptr);
}

bool Signals::wait() const {
  const timespec time{0, 200'000'000};
  return sigtimedwait(&set_, nullptr, &time) > 0;
}

bool Signals::is_pending() const {
  sigset_t pending{};
  sigpending(&pending);
  return sigismember(&pending, SIGTERM) == 1 || sigismember(&pending, SIGINT) == 1;
}

Status serve_until_signal(server::Server& server, const Signals& signals, double drain_seconds) {
  server.start();
  fmt::print("pagestate: ready at {}\n", server.address());
  std::fflush(stdout);
  bool is_told = false;
  while (!is_told && server.fault().empty()) is_told = signals.wait();
  // After a fault nothing runs any more: the clients only hear why.
  const double seconds = is_told ? drain_seconds : kFaultSeconds;
  log_info(fmt::format("event=drain seconds={}", seconds));
  server.drain(seconds);
  while (!server.has_ended()) {
    if (signals.wait()) server.drain(0);
  }
  log_info("event=stopped");
  const std::string fault = server.fault();
  return fault.empty() ? Status() : Status::internal("the engine failed: " + fault);
}

}  // namespace ps::apps
