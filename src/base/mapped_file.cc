#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
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
  [[nodiscard]] int release() noexcept { return std::exchange(value_, -1); }

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

// What cachestat(2) takes and gives; Linux 6.5 has it.
constexpr long kCachestat = 451;
struct CacheRange {
  uint64_t offset;
  uint64_t size;
};
struct CacheStatistics {
  uint64_t cached;
  uint64_t dirty;
  uint64_t written_back;
  uint64_t evicted;
  uint64_t recently_evicted;
};

constexpr int kPopulateRead = 22;  // MADV_POPULATE_READ, Linux 5.14
constexpr int64_t kPage = 4096;

// mincore(2) tells everybody else that all is there.
bool may_ask_mincore(int descriptor) noexcept {
  struct stat info{};
  const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
  return fstat(descriptor, &info) == 0 &&
         (geteuid() == 0 || info.st_uid == geteuid() || access(path.c_str(), W_OK) == 0);
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  PS_TRY(const size_t size, regular_size(path, file.get()));
  if (size == 0) return MappedFile(nullptr, 0, -1, path.string());
  void* data = mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) return system_error(path, "cannot map");
  return MappedFile(static_cast<const std::byte*>(data), size, file.release(), path.string());
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      name_(std::move(other.name_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(name_, other.name_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
  if (descriptor_ >= 0) close(descriptor_);
}

std::optional<MappedFile::CachedPages> MappedFile::cached_pages(int64_t offset, int64_t size_bytes) const noexcept {
  if (size_bytes <= 0) return CachedPages{};
  const int64_t begin = offset / kPage * kPage;
  const int64_t end = offset + size_bytes;
  CachedPages pages{0, (end - begin + kPage - 1) / kPage};
  const CacheRange range{static_cast<uint64_t>(begin), static_cast<uint64_t>(end - begin)};
  CacheStatistics statistics{};
  if (syscall(kCachestat, descriptor_, &range, &statistics, 0) == 0) {
    pages.cached = static_cast<int64_t>(statistics.cached);
    return pages;
  }
  if (errno != ENOSYS || !may_ask_mincore(descriptor_)) return std::nullopt;
  std::array<unsigned char, 4096> present;
  constexpr auto kStep = static_cast<int64_t>(present.size());
  for (int64_t page = 0; page < pages.all; page += kStep) {
    const int64_t count = std::min(kStep, pages.all - page);
    void* at = const_cast<std::byte*>(data_ + begin + page * kPage);
    if (mincore(at, static_cast<size_t>(count * kPage), present.data()) != 0) return std::nullopt;
    pages.cached +=
        std::count_if(present.begin(), present.begin() + count, [](unsigned char p) { return (p & 1) != 0; });
  }
  return pages;
}

void MappedFile::read_ahead(int64_t offset, int64_t size_bytes) const noexcept {
  const int64_t begin = offset / kPage * kPage;
  if (size_bytes <= 0) return;
  (void)madvise(const_cast<std::byte*>(data_ + begin), static_cast<size_t>(offset + size_bytes - begin), MADV_WILLNEED);
}

Status MappedFile::populate(int64_t offset, int64_t size_bytes) const {
  if (size_bytes <= 0) return {};
  const int64_t begin = offset / kPage * kPage;
  const int64_t end = offset + size_bytes;
  while (madvise(const_cast<std::byte*>(data_ + begin), static_cast<size_t>(end - begin), kPopulateRead) != 0) {
    if (errno == EINTR || errno == EAGAIN) continue;
    if (errno != EINVAL) return Status::unavailable(name_ + ": cannot read: " + std::strerror(errno));
    // An older system: touch each page, which does the same where the disk is well.
    for (int64_t at = begin; at < end; at += kPage) (void)*static_cast<const volatile std::byte*>(data_ + at);
    break;
  }
  return {};
}

Status MappedFile::copy(int64_t offset, std::span<std::byte> destination) const {
  size_t done = 0;
  while (done < destination.size()) {
    const ssize_t count =
        ::pread(descriptor_, destination.data() + done, destination.size() - done, offset + static_cast<int64_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Status::unavailable(name_ + ": cannot read: " + std::strerror(errno));
    if (count == 0) return Status::corrupt(name_ + ": shrank while being read");
    done += static_cast<size_t>(count);
  }
  return {};
}

void MappedFile::forget(int64_t offset, int64_t size_bytes) const noexcept {
  if (size_bytes > 0) (void)posix_fadvise(descriptor_, offset, size_bytes, POSIX_FADV_DONTNEED);
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
