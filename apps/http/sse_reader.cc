#include "apps/http/sse_reader.h"

namespace ps::apps {

Status SseReader::feed(std::string_view bytes, std::vector<std::string>& data) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    line_ += bytes.substr(0, end);
    if (line_.size() + data_.size() > kMaxEventBytes) {
      return Status::invalid("the server sent an event of more than " + std::to_string(kMaxEventBytes) + " bytes");
    }
    if (end == std::string_view::npos) return {};
    bytes.remove_prefix(end + 1);
    if (line_.ends_with('\r')) line_.pop_back();
    take_line(line_, data);
    line_.clear();
  }
  return {};
}

void SseReader::take_line(std::string_view line, std::vector<std::string>& data) {
  constexpr std::string_view kField = "data:";
  if (line.empty()) {
    if (has_data_) data.push_back(std::move(data_));
    data_.clear();
    has_data_ = false;
    return;
  }
  if (!line.starts_with(kField)) return;
  line.remove_prefix(kField.size());
  if (line.starts_with(' ')) line.remove_prefix(1);
  if (has_data_) data_ += '\n';
  data_ += line;
  has_data_ = true;
}

}  // namespace ps::apps
