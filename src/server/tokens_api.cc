#include "server/tokens_api.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

namespace ps::server {

std::variant<std::string, ApiError> tokenize_reply(const JsonValue& body, const text::Tokenizer& tokenizer,
                                                   int64_t max_context) {
  RequestFields fields(body);
  const bool adds_special = fields.boolean("add_special_tokens", true);
  const bool wants_strings = fields.boolean("return_token_strs", false);
  if (fields.find("prompt") == nullptr) fields.fail(ApiError::invalid("prompt is missing", "prompt"));
  const std::string prompt = fields.string("prompt");
  if (fields.error()) return *fields.error();
  std::vector<int32_t> ids;
  if (adds_special && !prompt.starts_with(tokenizer.token_bytes(tokenizer.bos()))) ids.push_back(tokenizer.bos());
  tokenizer.encode(prompt, text::AddedTokens::kParse, ids);

  JsonWriter json(JsonWriter::Style::kCompact);
  json.begin_object().key("count").integer(std::ssize(ids)).key("max_model_len").integer(max_context);
  json.key("tokens").begin_array();
  for (const int32_t id : ids) json.integer(id);
  json.end_array().key("token_strs");
  if (wants_strings) {
    json.begin_array();
    for (const int32_t id : ids) json.string(tokenizer.token_spelling(id));
    json.end_array();
  } else {
    json.null();
  }
  json.end_object();
  return std::move(json).text();
}

std::variant<std::string, ApiError> detokenize_reply(const JsonValue& body, const text::Tokenizer& tokenizer) {
  RequestFields fields(body);
  const JsonValue* tokens = fields.find("tokens");
  if (tokens == nullptr || !tokens->is_array())
    return ApiError::invalid("tokens must be an array of token ids", "tokens");
  std::vector<int32_t> ids;
  for (const JsonValue& item : tokens->items()) {
    const auto id = item.is_number() ? item.integer() : Result<int64_t>(Status::invalid("no number"));
    if (!id.ok() || id.value() < 0 || id.value() >= tokenizer.vocab_size()) {
      return ApiError::invalid(
          fmt::format("tokens has {} in the place of a token id; legal values are 0 to {}",
                      item.is_number() ? item.text() : item.kind_name(), tokenizer.vocab_size() - 1),
          "tokens");
    }
    ids.push_back(static_cast<int32_t>(id.value()));
  }
  JsonWriter json(JsonWriter::Style::kCompact);
  json.begin_object().key("prompt").string(tokenizer.decode(ids)).end_object();
  return std::move(json).text();
}

void add_tokens_routes(Router& router, ApiContext& context) {
  const auto with_model = [&context](auto make) {
    return [&context, make](const JsonValue& body) -> std::variant<std::string, ApiError> {
      RequestFields fields(body);
      const std::string model = fields.string("model");
      if (fields.error()) return *fields.error();
      if (auto error = check_model(context, model)) return *error;
      return make(body);
    };
  };
  const auto send = [](std::string reply, const std::shared_ptr<Responder>& responder) {
    responder->reply(json_reply(std::move(reply)));
  };
  router.add("POST", "/tokenize",
             json_route<std::string>(context, with_model([&context](const JsonValue& body) {
                                       return tokenize_reply(body, *context.tokenizer, context.model.max_context);
                                     }),
                                     send));
  router.add("POST", "/detokenize",
             json_route<std::string>(context, with_model([&context](const JsonValue& body) {
                                       return detokenize_reply(body, *context.tokenizer);
                                     }),
                                     send));
}

}  // namespace ps::server
