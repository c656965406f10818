#include "engine/runner.h"

#include <algorithm>

#include "base/macros.h"
#include "engine/setup.h"

namespace ps::engine {
namespace {

constexpr int32_t kLogitBlockRows = 32;

// Hands blocks of logits to a caller until it says stop.
class BlockSink final : public model::LogitSink {
 public:
  BlockSink(const Runner::LogitSink& sink, int64_t first_position, int32_t vocabulary)
      : sink_(sink), first_position_(first_position), vocabulary_(vocabulary) {}

  void logits(int32_t first, int32_t rows, const float* values) override {
    if (stopped_ || !sink_) return;
    stopped_ = !sink_(first_position_ + first, {values, static_cast<size_t>(rows) * static_cast<size_t>(vocabulary_)});
  }
  [[nodiscard]] bool stopped() const noexcept { return stopped_; }

 private:
  const Runner::LogitSink& sink_;
  int64_t first_position_;
  int32_t vocabulary_;
  bool stopped_ = false;
};

Status check(const RunnerOptions& options, const checkpoint::TextConfig& text) {
  if (options.max_tokens < 1 || options.max_tokens > text.max_position_embeddings) {
    return Status::invalid("a context of " + std::to_string(options.max_tokens) + " tokens; legal values are 1 to " +
                           std::to_string(text.max_position_embeddings));
  }
  if (options.prefill_chunk < 1 || options.prefill_chunk > 65536) {
    return Status::invalid("prefill-chunk is " + std::to_string(options.prefill_chunk) +
                           "; legal values are 1 to 65536");
  }
  if (options.threads < 1 || options.threads > 1024) {
    return Status::invalid("threads is " + std::to_string(options.threads) + "; legal values are 1 to 1024");
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Runner>> Runner::create(const checkpoint::Checkpoint& checkpoint,
                                               std::vector<int32_t> token_classes, const ops::OpTable& table,
                                               const RunnerOptions& options) {
  const checkpoint::TextConfig& text = checkpoint.config().text_config;
  PS_RETURN_IF_ERROR(check(options, text));
  PS_TRY(PlanShape shape, make_plan_shape(checkpoint.config(), token_classes));
  PS_TRY(const cache::CacheGeometry geometry,
         cache::CacheGeometry::create(text, checkpoint.topology(), {options.format, options.page_tokens, 0}));
  const int64_t page_count = std::max<int64_t>(geometry.pages_for(options.max_tokens), 1);
  PS_TRY(cache::CachePool pool, cache::CachePool::allocate(geometry, page_count, 1));

  auto model = std::make_unique<model::Model>(checkpoint, table, model::ModelOptions{options.compute});
  const int64_t chunk = std::min(options.prefill_chunk, options.max_tokens);
  PS_TRY(HostBuffer scratch, HostBuffer::allocate(model::forward_scratch_bytes(model->dims(), table, options.compute,
                                                                               chunk, chunk, options.threads)));
  std::unique_ptr<Runner> runner(new Runner(std::move(pool), std::move(scratch), options));
  runner->model_ = std::move(model);
  runner->views_ = make_views(runner->pool_, checkpoint.topology());
  runner->shape_ = std::move(shape);
  runner->token_classes_ = std::move(token_classes);
  runner->logits_.resize(static_cast<size_t>(kLogitBlockRows) * static_cast<size_t>(text.vocab_size));
  // Any order of PAGEs must do; handing them out from the end makes an identity table impossible to rely on.
  for (int64_t page = page_count; page-- > 0;) runner->pages_.push_back(cache::PageId{static_cast<int32_t>(page)});
  runner->reset();
  return runner;
}

Runner::Runner(cache::CachePool pool, HostBuffer scratch, const RunnerOptions& options)
    : options_(options),
      pool_(std::move(pool)),
      scratch_(std::move(scratch)),
      threads_(options.threads, options.pin_threads ? Pinning::kCores : Pinning::kNone) {}

void Runner::reset() {
  pool_.zero_slot(cache::SlotId{0});
  tokens_.clear();
  const size_t history = shape_.engram.empty() ? 0 : static_cast<size_t>(shape_.engram.front().max_ngram) - 1;
  classes_.assign(history, checkpoint::kEngramDead);
}

Status Runner::check_ids(std::span<const int32_t> ids) const {
  if (position() + static_cast<int64_t>(ids.size()) > options_.max_tokens) {
    return Status::exhausted(std::to_string(position() + static_cast<int64_t>(ids.size())) +
                             " tokens do not fit into a context of " + std::to_string(options_.max_tokens));
  }
  for (const int32_t id : ids) {
    if (id < 0 || id >= shape_.vocabulary) {
      return Status::invalid("token id " + std::to_string(id) + "; legal values are 0 to " +
                             std::to_string(shape_.vocabulary - 1));
    }
  }
  return {};
}

Status Runner::feed(std::span<const int32_t> ids, LogitRows which, const LogitSink& sink,
                    const std::function<bool(int64_t, int64_t)>& progress) {
  PS_RETURN_IF_ERROR(check_ids(ids));
  const auto total = static_cast<int64_t>(ids.size());
  for (int64_t done = 0; done < total;) {
    const int64_t count = std::min(options_.prefill_chunk, total - done);
    const bool is_last = done + count == total;
    const LogitRows wanted = which == LogitRows::kLast && !is_last ? LogitRows::kNone : which;
    BlockSink blocks(sink, wanted == LogitRows::kAll ? position() : position() + count - 1, shape_.vocabulary);
    forward(ids.subspan(static_cast<size_t>(done), static_cast<size_t>(count)), wanted, blocks);
    done += count;
    if (blocks.stopped()) return Status::cancelled("stopped by the caller");
    if (progress && !progress(done, total)) return Status::cancelled("stopped by the caller");
  }
  return {};
}

void Runner::forward(std::span<const int32_t> ids, LogitRows which, model::LogitSink& sink) {
  const auto start = static_cast<int32_t>(position());
  const size_t history = classes_.size() - tokens_.size();
  tokens_.insert(tokens_.end(), ids.begin(), ids.end());
  SequenceRows rows;
  if (!shape_.engram.empty()) {
    for (const int32_t id : ids) classes_.push_back(token_classes_[static_cast<size_t>(id)]);
    rows.classes = std::span(classes_).subspan(classes_.size() - ids.size() - history);
  }
  rows.start = start;
  rows.ids = ids;
  rows.pages = std::span(pages_).first(
      static_cast<size_t>(pool_.geometry().pages_for(start + static_cast<int64_t>(ids.size()))));
  rows.logits = which;
  plan_.build(shape_, std::span(&rows, 1));
  ops::Exec exec{threads_, scratch_};
  model_->forward(plan_.forward_plan(logits_.data(), kLogitBlockRows, &sink), views_, exec, observer_);
  pool_.position(cache::SlotId{0}) = position();
}

}  // namespace ps::engine
