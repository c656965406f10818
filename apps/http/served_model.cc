#include "apps/http/served_model.h"

#include "apps/http/json_number.h"
#include "base/json.h"
#include "base/macros.h"

namespace ps::apps {

Result<std::optional<ServedModel>> first_model(HttpClient& client) {
  PS_TRY(const std::string body, client.get("/v1/models"));
  PS_TRY(const JsonValue reply, JsonValue::parse(body).with(client.url() + "/v1/models"));
  const JsonValue* models = reply.find("data");
  if (models == nullptr || !models->is_array() || models->items().empty()) return std::optional<ServedModel>();
  const JsonValue& model = models->items().front();
  const JsonValue* id = model.find("id");
  if (id == nullptr || !id->is_string() || id->text().empty()) return std::optional<ServedModel>();
  return std::optional(
      ServedModel{id->text(), json_number(&model, "vocab_size"), json_number(&model, "max_model_len")});
}

}  // namespace ps::apps
