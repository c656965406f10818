#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "base/macros.h"

namespace ps {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int value) noexcept : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const noexcept { return value_; }

 private:
  int value_;
};

Status system_error(const std::filesystem::path& path, const char* action) {
  const int error = errno;
  std::string message = path.string() + ": " + action + ": " + std::strerror(error);
  if (error == ENOENT || error == ENOTDIR) return Status::not_found(std::move(message));
  if (error == ENOSPC || error == EDQUOT || error == ENOMEM) return Status::exhausted(std::move(message));
  return Status::invalid(std::move(message));
}

// Opens for reading and gives the size of a regular file.
Result<size_t> regular_size(const std::filesystem::path& path, int descriptor) {
  struct stat info{};
  if (descriptor < 0) return system_error(path, "cannot open");
  if (fstat(descriptor, &info) != 0) return system_error(path, "cannot stat");
  if (!S_ISREG(info.st_mode)) return Status::invalid(path.string() + ": not a regular file");
  return static_cast<size_t>(info.st_size);
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  PS_TRY(const size_t size, regular_size(path, file.get()));
  if (size == 0) return MappedFile(nullptr, 0);
  void* data = mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) return system_error(path, "cannot map");
  return MappedFile(static_cast<const std::byte*>(data), size);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

Result<std::string> read_file(const std::filesystem::path& path, int64_t limit_bytes) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  PS_TRY(const size_t size, regular_size(path, file.get()));
  if (static_cast<int64_t>(size) > limit_bytes) {
    return Status::invalid(path.string() + ": " + std::to_string(size) + " bytes, at most " +
                           std::to_string(limit_bytes) + " are read");
  }
  std::string content(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t count = ::read(file.get(), content.data() + done, size - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_error(path, "cannot read");
    if (count == 0) return Status::corrupt(path.string() + ": shrank while being read");
    done += static_cast<size_t>(count);
  }
  return content;
}

Status write_file(const std::filesystem::path& path, std::string_view content) {
  const std::filesystem::path temporary = path.string() + ".partial." + std::to_string(getpid());
  const auto fail = [&](const char* action) {
    Status status = system_error(path, action);
    unlink(temporary.c_str());
    return status;
  };
  {
    const Descriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (file.get() < 0) return system_error(path, "cannot create");
    size_t done = 0;
    while (done < content.size()) {
      const ssize_t count = ::write(file.get(), content.data() + done, content.size() - done);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return fail("cannot write");
      done += static_cast<size_t>(count);
    }
    if (fsync(file.get()) != 0) return fail("cannot sync");
  }
  if (rename(temporary.c_str(), path.c_str()) != 0) return fail("cannot rename");
  return {};
}

}  // namespace ps
