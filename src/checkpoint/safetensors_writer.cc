// The writing half of safetensors.h.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/json.h"
#include "base/macros.h"
#include "checkpoint/safetensors.h"

namespace ps::checkpoint {
namespace {

constexpr size_t kHeaderAlignment = 8;

std::string header_text(const std::vector<SafetensorsWriter::Declaration>& tensors, int64_t& payload) {
  JsonWriter json(JsonWriter::Style::kCompact);
  json.begin_object();
  for (const auto& tensor : tensors) {
    const int64_t begin = payload;
    payload += tensor.shape.elements() * dtype_bytes(tensor.dtype);
    json.key(tensor.name).begin_object();
    json.key("dtype").string(dtype_name(tensor.dtype));
    json.key("shape").begin_array();
    for (int axis = 0; axis < tensor.shape.rank; ++axis) json.integer(tensor.shape[axis]);
    json.end_array();
    json.key("data_offsets").begin_array().integer(begin).integer(payload).end_array();
    json.end_object();
  }
  json.end_object();
  std::string text = std::move(json).text();
  text.append((kHeaderAlignment - text.size() % kHeaderAlignment) % kHeaderAlignment, ' ');
  return text;
}

}  // namespace

struct SafetensorsWriter::State {
  std::filesystem::path path;
  std::filesystem::path temporary;
  int file = -1;
  int64_t missing_bytes = 0;

  ~State() {
    if (file < 0) return;
    ::close(file);
    ::unlink(temporary.c_str());
  }
  [[nodiscard]] Status fail(const char* action) const {
    const int error = errno;
    const std::string text = path.string() + ": " + action + ": " + std::strerror(error);
    return error == ENOSPC || error == EDQUOT ? Status::exhausted(text) : Status::invalid(text);
  }
  [[nodiscard]] Status write(const char* data, size_t size) const {
    while (size > 0) {
      const ssize_t count = ::write(file, data, size);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return fail("cannot write");
      data += count;
      size -= static_cast<size_t>(count);
    }
    return {};
  }
};

SafetensorsWriter::SafetensorsWriter(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
SafetensorsWriter::SafetensorsWriter(SafetensorsWriter&&) noexcept = default;
SafetensorsWriter& SafetensorsWriter::operator=(SafetensorsWriter&&) noexcept = default;
SafetensorsWriter::~SafetensorsWriter() = default;

Result<SafetensorsWriter> SafetensorsWriter::create(const std::filesystem::path& path,
                                                    const std::vector<Declaration>& tensors) {
  auto state = std::make_unique<State>();
  state->path = path;
  state->temporary = path.string() + ".partial." + std::to_string(getpid());
  int64_t payload = 0;
  const std::string header = header_text(tensors, payload);
  state->missing_bytes = payload;
  state->file = ::open(state->temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (state->file < 0) return state->fail("cannot create");
  char length[8];
  for (size_t i = 0; i < sizeof length; ++i) length[i] = static_cast<char>(uint64_t{header.size()} >> (8 * i) & 255);
  PS_RETURN_IF_ERROR(state->write(length, sizeof length));
  PS_RETURN_IF_ERROR(state->write(header.data(), header.size()));
  return SafetensorsWriter(std::move(state));
}

Status SafetensorsWriter::append(std::span<const std::byte> bytes) {
  state_->missing_bytes -= static_cast<int64_t>(bytes.size());
  PS_CHECK(state_->missing_bytes >= 0, state_->path.string(), "gets more bytes than declared");
  return state_->write(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

Status SafetensorsWriter::finish() {
  const std::unique_ptr<State> state = std::move(state_);
  if (state->missing_bytes != 0) {
    return Status::invalid(state->path.string() + ": " + std::to_string(state->missing_bytes) +
                           " declared bytes were not written");
  }
  if (::fsync(state->file) != 0) return state->fail("cannot sync");
  const int file = std::exchange(state->file, -1);
  if (::close(file) != 0 || ::rename(state->temporary.c_str(), state->path.c_str()) != 0) {
    const Status status = state->fail("cannot rename");
    ::unlink(state->temporary.c_str());
    return Status(status.code(), std::string(status.message()));
  }
  return {};
}

}  // namespace ps::checkpoint
