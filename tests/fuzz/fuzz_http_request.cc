// A client's bytes on the way from the socket to the engine and back: any bytes are a request, a refusal with an error
// body, or not yet complete, and that does not depend on how they are cut. Input: one byte that says how, then the
// bytes of a connection. A completion's answer is played back from its own prompt.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "server/api_context.h"
#include "server/completions.h"
#include "server/http_parser.h"
#include "server/router.h"
#include "server/tokens_api.h"
#include "text/synthetic_tokenizer.h"

namespace {

using namespace ps::server;

constexpr int kVocabulary = 512;

void require(bool condition) {
  if (!condition) std::abort();
}

void check_error(const ApiError& error) {
  require(error.status >= 400 && error.status <= 599 && !error.message.empty());
  const auto body = ps::JsonValue::parse(error_body(error));
  require(body.ok() && body.value().find("error") != nullptr);
}

const std::shared_ptr<const ps::text::Tokenizer>& tokenizer() {
  static const auto made = ps::text::Tokenizer::parse(ps::text::make_synthetic_tokenizer(kVocabulary).value()).value();
  return made;
}

const Router& router() {
  static const Router made = [] {
    Router routes;
    const RouteHandler nothing = [](const RoutedRequest&, const std::shared_ptr<Responder>&) {};
    routes.add("POST", "/v1/completions", nothing);
    routes.add("POST", "/tokenize", nothing);
    routes.add("POST", "/detokenize", nothing);
    routes.add("GET", "/v1/models/{id}", nothing);
    return routes;
  }();
  return made;
}

// The prompt's tokens, as if the model had said them.
void play(AnswerRequest& answer) {
  std::vector<Generation> generations;
  for (auto& options : answer.options) generations.emplace_back(*tokenizer(), options);
  std::string events;
  for (size_t i = 0; i < generations.size(); ++i) {
    const std::vector<int32_t>& prompt = answer.requests[i].prompt;
    const std::vector<float> logprobs(prompt.size() - 1, -1.0F);
    for (size_t t = 0; t < prompt.size() && generations[i].end() == AnswerEnd::kNone; ++t) {
      ps::engine::Event event;
      event.token = prompt[t];
      event.prompt_tokens = static_cast<int64_t>(prompt.size());
      if (t == 0 && answer.requests[i].prompt_logprobs) event.prompt_logprobs = logprobs;
      if (t + 1 == prompt.size()) event.finish = ps::engine::FinishReason::kLength;
      TextDelta delta;
      generations[i].take(event, delta);
      answer.format->take(i, generations[i], std::move(delta), answer.is_stream ? &events : nullptr);
    }
  }
  if (answer.is_stream) {
    answer.format->close(generations, events);
    require(events.ends_with("data: [DONE]\n\n"));
  } else {
    require(ps::JsonValue::parse(answer.format->whole(generations).body).ok());
  }
}

void handle(const HttpRequest& request) {
  const Router::Match match = router().find(request);
  if (match.handler == nullptr) return require(match.error.status == 404 || match.error.status == 405);
  if (const auto error = check_json_request(request)) return check_error(*error);
  ps::JsonValue body;
  if (const auto error = parse_object(request.body, body)) return check_error(*error);
  if (match.route == "/v1/completions") {
    auto parsed = parse_completion(body, {tokenizer().get(), 4096, kVocabulary});
    if (const auto* error = std::get_if<ApiError>(&parsed)) return check_error(*error);
    AnswerRequest answer = make_answer(std::move(std::get<CompletionCall>(parsed)), tokenizer(), "m");
    require(answer.requests.size() == answer.options.size() && !answer.requests.empty());
    for (const auto& one : answer.requests) require(ps::engine::check(one.sampling).ok() && !one.prompt.empty());
    play(answer);
    return;
  }
  const auto reply =
      match.route == "/tokenize" ? tokenize_reply(body, *tokenizer(), 4096) : detokenize_reply(body, *tokenizer());
  if (const auto* error = std::get_if<ApiError>(&reply)) return check_error(*error);
  require(ps::JsonValue::parse(std::get<std::string>(reply)).ok());
}

// What came of the bytes, in pieces of at most `size`.
struct Outcome {
  std::string requests;
  bool has_failed = false;
  bool is_in_head = false;  // at the end
};
Outcome outcome_of(std::string_view bytes, size_t size, bool handles) {
  RequestParser parser({.header_bytes = 2048, .target_bytes = 256, .body_bytes = 4096});
  Outcome outcome;
  while (!bytes.empty()) {
    const size_t used = parser.push(bytes.substr(0, size));
    require(used <= std::min(size, bytes.size()));
    bytes.remove_prefix(used);
    if (parser.state() == RequestParser::State::kFailed) {
      check_error(parser.error());
      outcome.has_failed = true;
      return outcome;
    }
    if (parser.state() != RequestParser::State::kDone) {
      require(used > 0);
      continue;
    }
    const HttpRequest request = parser.take();
    outcome.requests += request.method + " " + request.path + " " + request.body + "\n";
    if (handles) handle(request);
  }
  outcome.is_in_head = parser.state() == RequestParser::State::kHeader;
  return outcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Outcome whole = outcome_of(bytes, bytes.size(), true);
  const Outcome cut = outcome_of(bytes, 1 + data[0], false);
  require(whole.requests == cut.requests);
  // A head in pieces is judged when it is complete, so that its faults may show later.
  require(whole.has_failed == cut.has_failed || (whole.has_failed ? cut.is_in_head : whole.is_in_head));
  return 0;
}
