#include "server/models_api.h"

#include <utility>

namespace ps::server {
namespace {

void write_model(JsonWriter& json, const ModelInfo& model, const std::string& name) {
  json.begin_object().key("id").string(name).key("object").string("model").key("created").integer(model.created);
  json.key("owned_by").string("pagestate").key("root").string(model.names.front());
  json.key("max_model_len").integer(model.max_context).key("vocab_size").integer(model.vocabulary).end_object();
}

}  // namespace

void add_models_routes(Router& router, ApiContext& context) {
  router.add("GET", "/v1/models", [&context](const RoutedRequest&, const std::shared_ptr<Responder>& responder) {
    JsonWriter json(JsonWriter::Style::kCompact);
    json.begin_object().key("object").string("list").key("data").begin_array();
    for (const std::string& name : context.model.names) write_model(json, context.model, name);
    json.end_array().end_object();
    responder->reply(json_reply(std::move(json).text()));
  });
  router.add("GET", "/v1/models/{id}",
             [&context](const RoutedRequest& request, const std::shared_ptr<Responder>& responder) {
               if (const auto error = check_model(context, request.rest)) return responder->reply(error_reply(*error));
               JsonWriter json(JsonWriter::Style::kCompact);
               write_model(json, context.model, request.rest);
               responder->reply(json_reply(std::move(json).text()));
             });
}

}  // namespace ps::server
