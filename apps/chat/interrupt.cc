#include "apps/chat/interrupt.h"

namespace ps::apps::chat {
namespace {
// Written by a signal handler.
volatile std::sig_atomic_t is_interrupted = 0;
}  // namespace

InterruptFlag::InterruptFlag() {
  is_interrupted = 0;
  struct sigaction action = {};
  action.sa_handler = [](int) { is_interrupted = 1; };
  sigemptyset(&action.sa_mask);
  action.sa_flags = 0;  // no SA_RESTART: a read that waits for the user comes back
  sigaction(SIGINT, &action, &former_);
}

InterruptFlag::~InterruptFlag() { sigaction(SIGINT, &former_, nullptr); }

bool InterruptFlag::is_set() const noexcept { return is_interrupted != 0; }

void InterruptFlag::clear() noexcept { is_interrupted = 0; }

}  // namespace ps::apps::chat
