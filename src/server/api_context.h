// What the surfaces share. Threading: the members say; the context itself is built once and then read.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "server/engine_service.h"
#include "server/executor.h"
#include "server/metrics.h"
#include "server/request_fields.h"
#include "server/router.h"
#include "text/tokenizer.h"

namespace ps::server {

struct ModelInfo {
  std::vector<std::string> names;  // it answers to; the first is its id
  int64_t created = 0;             // seconds since 1970
  int64_t max_context = 0;         // tokens of prompt and answer
  int32_t vocabulary = 0;          // legal ids are below
  std::string fingerprint;         // of the model and this program
};

struct ApiContext {
  std::shared_ptr<const text::Tokenizer> tokenizer;
  ModelInfo model;
  EngineService& engine;
  Executor& workers;
  Executor& io;
};

// The 404 for a model of another name; an absent one (empty) is this one.
[[nodiscard]] std::optional<ApiError> check_model(const ApiContext& context, const std::string& name);

// Parses a request off the I/O thread, and carries on upon it.
//   parse: on a worker; reads the body's object. Its Parsed, or an error that becomes the reply.
//   then: on the I/O thread, when the client is still there.
template <typename Parsed>
using BodyParser = std::function<std::variant<Parsed, ApiError>(const JsonValue& body)>;
template <typename Parsed>
using BodyHandler = std::function<void(Parsed parsed, std::shared_ptr<Responder> responder)>;

using ErrorReply = HttpReply (*)(const ApiError& error);

// The checks that come before a body is read: its media type.
[[nodiscard]] std::optional<ApiError> check_json_request(const HttpRequest& request);

// `refuse` gives an error the shape of the surface.
template <typename Parsed>
RouteHandler json_route(ApiContext& context, BodyParser<Parsed> parse, BodyHandler<Parsed> then,
                        ErrorReply refuse = error_reply) {
  return [&context, refuse, parse = std::move(parse), then = std::move(then)](
             const RoutedRequest& request, const std::shared_ptr<Responder>& responder) {
    if (const auto error = check_json_request(*request.http)) return responder->reply(refuse(*error));
    responder->on_stop([refuse, weak = std::weak_ptr(responder)](const ApiError& error) {
      if (const auto waiting = weak.lock()) waiting->reply(refuse(error));
    });
    const auto text = std::make_shared<std::string>(std::move(request.http->body));
    context.workers.post([&context, refuse, parse, then, text, responder] {
      const auto outcome = std::make_shared<std::variant<Parsed, ApiError>>(ApiError::internal("not parsed"));
      try {
        JsonValue body;
        if (auto error = parse_object(*text, body)) {
          *outcome = std::move(*error);
        } else {
          *outcome = parse(body);
        }
      } catch (const std::exception& error) {  // memory
        *outcome = ApiError::internal(std::string("the request could not be read: ") + error.what());
      }
      context.io.post([refuse, then, outcome, responder] {
        if (auto* error = std::get_if<ApiError>(outcome.get())) return responder->reply(refuse(*error));
        then(std::move(std::get<Parsed>(*outcome)), responder);
      });
    });
  };
}

}  // namespace ps::server
