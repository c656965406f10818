// Bodies of chat-completions requests from outside: any bytes are refused by name, or give a request that both encoders
// turn into a prompt or refuse. Input: the body.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/json.h"
#include "text/chat_completions_request.h"
#include "text/prompt_encoder.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void check_refusal(const ps::Status& status) {
  require(status.code() == ps::Code::kInvalid && !status.message().empty());
  require(ps::JsonValue::parse(ps::text::openai_error_body(status)).ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  const auto request = ps::text::parse_chat_completions(body);
  if (!request.ok()) {
    check_refusal(request.status());
    return 0;
  }
  for (const auto encoding : {ps::text::ChatEncoding::kRecipe, ps::text::ChatEncoding::kModel}) {
    const auto prompt = ps::text::encode_prompt(request.value().chat, {.encoding = encoding});
    if (!prompt.ok()) check_refusal(prompt.status());
  }
  return 0;
}
