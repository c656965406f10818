// What a conversation may ask for and no answer of this program can honour yet, although the encoders can write it.
// The server and `pagestate prompt` refuse the same, so that a prompt that is shown is a prompt that is served.
// Threading: pure functions.
#pragma once

#include "base/status.h"
#include "text/chat.h"
#include "text/prompt_encoder.h"

namespace ps::text {

// invalid, naming the field: an image, a JSON schema for the answer, or a call that is required without any tool.
// `prompt` is what encode_prompt() made of the request.
[[nodiscard]] Status check_servable(const ChatRequest& request, const Prompt& prompt);

}  // namespace ps::text
