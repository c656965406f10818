#include "server/chat_reply.h"

namespace ps::server {

void CollectedOutput::add(const text::ParserEvent& event) {
  using Kind = text::ParserEvent::Kind;
  switch (event.kind) {
    case Kind::kReasoning: reasoning += event.text; break;
    case Kind::kContent: content += event.text; break;
    case Kind::kCallStart: calls.push_back({event.text, {}}); break;
    case Kind::kArguments:
      if (!calls.empty()) calls.back().arguments += event.text;
      break;
    case Kind::kCallEnd:
    case Kind::kStop: break;
  }
}

std::string call_id_text(std::string_view prefix, std::string_view id, size_t choice, int32_t call) {
  std::string text(prefix);
  text += id;
  if (choice > 0) text += 'c' + std::to_string(choice);
  return text + '_' + std::to_string(call);
}

}  // namespace ps::server
