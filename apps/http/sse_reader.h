// Server-sent events from bytes that arrive in any cuts: the data of each event, nothing else of it.
// Threading: one thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace ps::apps {

// Of one event. A server that sends more is faulty.
inline constexpr size_t kMaxEventBytes = 16 << 20;

class SseReader {
 public:
  // Appends the data of every event that the bytes complete; several data lines of one event are joined by newlines.
  // Comments and other fields are skipped. invalid: an event beyond kMaxEventBytes.
  [[nodiscard]] Status feed(std::string_view bytes, std::vector<std::string>& data);

 private:
  void take_line(std::string_view line, std::vector<std::string>& data);

  std::string line_;  // the unfinished one
  std::string data_;
  bool has_data_ = false;
};

}  // namespace ps::apps
