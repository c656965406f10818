#include "text/servable.h"

#include <string>

namespace ps::text {

Status check_servable(const ChatRequest& request, const Prompt& prompt) {
  if (request.tool_choice.kind == ToolChoice::Kind::kRequired && request.tools.empty()) {
    return Status::invalid("tool_choice: \"required\" needs at least one tool in tools");
  }
  if (request.response_format.kind == ResponseFormat::Kind::kJsonSchema) {
    return Status::invalid("response_format: \"json_schema\" is not supported; legal values are text and json_object");
  }
  if (!prompt.images.empty()) {
    const PromptImage& image = prompt.images.front();
    return Status::invalid(request.messages[image.message].content[image.part].path +
                           ": images are not supported by this version; only text is legal here");
  }
  return {};
}

}  // namespace ps::text
