#include "apps/warm_up.h"

#include <algorithm>
#include <thread>

#include "base/macros.h"

namespace ps::apps {

namespace {

Status answer_once(engine::Engine& engine, int64_t vocabulary) {
  constexpr int64_t kAnswerTokens = 2;  // the second comes from a step of one row
  constexpr int64_t kRows = 64;
  // Shorter than a PAGE: only whole ones are published.
  const int64_t page_tokens = engine.memory().geometry.options.page_tokens;
  const int64_t rows = std::min({kRows, page_tokens - 1 - kAnswerTokens, engine.memory().max_context - kAnswerTokens});
  if (rows < 1) return {};  // no room for an answer
  engine::Request request;
  // Different ids, so that their experts differ too.
  for (int64_t i = 0; i < rows; ++i) request.prompt.push_back(static_cast<int32_t>((i * 7919 + 3) % vocabulary));
  request.max_tokens = kAnswerTokens;
  request.ignore_eos = true;
  PS_RETURN_IF_ERROR(engine.add(std::move(request)).status());
  while (engine.has_work()) (void)engine.step();
  return {};
}

}  // namespace

Status warm_up(engine::Engine& engine, int64_t vocabulary) {
  Status status;
  // The first step may bind its thread to a core, and threads started later inherit that.
  std::thread([&] { status = answer_once(engine, vocabulary); }).join();
  return status;
}

}  // namespace ps::apps
