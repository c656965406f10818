#include "checkpoint/loading.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/macros.h"
#include "base/topology.h"

namespace ps::checkpoint {
namespace {

constexpr int64_t kPieceBytes = 8 << 20;
constexpr size_t kAheadPieces = 8;  // that the disk works on while earlier ones are waited for
constexpr std::chrono::milliseconds kReport{100};

struct Piece {
  LoadRange range;
  bool is_cached = false;  // whole
  bool is_absent = false;  // no page of it is cached
};

// What is left to do, and what of it the page cache holds.
std::vector<Piece> pieces_of(const std::vector<LoadRange>& ranges, LoadFigures& figures) {
  std::vector<Piece> pieces;
  for (const LoadRange& range : ranges) {
    figures.total_bytes += range.size_bytes;
    for (int64_t at = 0; at < range.size_bytes; at += kPieceBytes) {
      Piece piece{range};
      piece.range.offset += at;
      piece.range.size_bytes = std::min(kPieceBytes, range.size_bytes - at);
      if (piece.range.copy != nullptr) piece.range.copy += at;
      const auto cached = range.file->cached_pages(piece.range.offset, piece.range.size_bytes);
      piece.is_cached = cached && cached->cached == cached->all;
      piece.is_absent = cached && cached->cached == 0;
      if (cached && cached->all > 0) figures.cached_bytes += piece.range.size_bytes * cached->cached / cached->all;
      if (!piece.is_cached || piece.range.copy != nullptr) pieces.push_back(piece);
    }
  }
  return pieces;
}

class Readers {
 public:
  Readers(const std::vector<Piece>& pieces, int threads) : pieces_(pieces) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { read(); });
  }
  ~Readers() {
    is_stopped_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  Readers(const Readers&) = delete;
  Readers& operator=(const Readers&) = delete;

  // Reports until all is done or something fails.
  Status wait(const LoadProgress& progress, int64_t total) {
    std::unique_lock lock(mutex_);
    while (true) {
      const bool is_over = over_.wait_for(lock, kReport, [&] { return !failure_.ok() || finished_ == pieces_.size(); });
      if (!failure_.ok()) return std::move(failure_);
      const int64_t done = done_bytes_;
      lock.unlock();
      if (progress && !progress(done, total)) return Status::cancelled("loading was stopped");
      if (is_over) return {};
      lock.lock();
    }
  }

 private:
  void read() {
    interleave_this_thread();
    while (!is_stopped_) {
      const size_t at = next_.fetch_add(1);
      if (at >= pieces_.size()) return;
      announce(std::min(at + kAheadPieces, pieces_.size()));
      Status status = bring(pieces_[at]);
      const std::lock_guard lock(mutex_);
      if (status.ok()) {
        ++finished_;
        done_bytes_ += pieces_[at].range.size_bytes;
      } else if (failure_.ok()) {
        failure_ = std::move(status);
        is_stopped_ = true;
      }
      if (finished_ == pieces_.size() || !failure_.ok()) over_.notify_one();
    }
  }

  // Tells the system of every piece before `end` once, in order.
  void announce(size_t end) {
    size_t first = announced_.load();
    while (first < end && !announced_.compare_exchange_weak(first, end)) {
    }
    for (; first < end; ++first) {
      const Piece& piece = pieces_[first];
      if (!piece.is_cached) piece.range.file->read_ahead(piece.range.offset, piece.range.size_bytes);
    }
  }

  static Status bring(const Piece& piece) {
    const LoadRange& range = piece.range;
    if (range.copy == nullptr) return range.file->populate(range.offset, range.size_bytes);
    PS_RETURN_IF_ERROR(range.file->copy(range.offset, {range.copy, static_cast<size_t>(range.size_bytes)}));
    if (piece.is_absent) range.file->forget(range.offset, range.size_bytes);
    return {};
  }

  const std::vector<Piece>& pieces_;
  std::atomic<size_t> next_{0};
  std::atomic<size_t> announced_{0};
  std::atomic<bool> is_stopped_{false};
  std::mutex mutex_;
  std::condition_variable over_;
  size_t finished_ = 0;
  int64_t done_bytes_ = 0;
  Status failure_;
  std::vector<std::thread> threads_;  // last: they use all the rest
};

}  // namespace

Result<LoadFigures> load(const std::vector<LoadRange>& ranges, int threads, const LoadProgress& progress) {
  PS_CHECK(threads >= 1, threads);
  LoadFigures figures;
  const std::vector<Piece> pieces = pieces_of(ranges, figures);
  int64_t total = 0;
  for (const Piece& piece : pieces) total += piece.range.size_bytes;
  if (progress && !progress(0, total)) return Status::cancelled("loading was stopped");
  if (pieces.empty()) return figures;
  Readers readers(pieces, static_cast<int>(std::min<size_t>(static_cast<size_t>(threads), pieces.size())));
  PS_RETURN_IF_ERROR(readers.wait(progress, total));
  return figures;
}

}  // namespace ps::checkpoint
