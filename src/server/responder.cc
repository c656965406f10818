#include "server/responder.h"

namespace ps::server {

void append_data_event(std::string& events, std::string_view json) {
  events.append("data: ").append(json).append("\n\n");
}

std::string data_event(std::string_view json) {
  std::string event;
  append_data_event(event, json);
  return event;
}

std::string named_event(std::string_view name, std::string_view json) {
  std::string event = "event: ";
  event.append(name).append("\ndata: ").append(json).append("\n\n");
  return event;
}

}  // namespace ps::server
