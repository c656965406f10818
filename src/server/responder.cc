#include "server/responder.h"

namespace ps::server {

std::string data_event(std::string_view json) {
  std::string event = "data: ";
  event.append(json).append("\n\n");
  return event;
}

std::string named_event(std::string_view name, std::string_view json) {
  std::string event = "event: ";
  event.append(name).append("\ndata: ").append(json).append("\n\n");
  return event;
}

}  // namespace ps::server
