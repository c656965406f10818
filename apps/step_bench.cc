#include "apps/step_bench.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>

#include "apps/op_profile.h"
#include "apps/roofline.h"
#include "apps/run_clock.h"
#include "base/macros.h"
#include "base/pcg64.h"
#include "cache/pool.h"
#include "engine/setup.h"
#include "engine/step_plan.h"
#include "ops/cache_rows.h"

namespace ps::apps {
namespace {

constexpr double kSecondsBetweenSamples = 0.25;  // of the ceilings, at least

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Which experts the rows of a run use, per layer; wherever a forward shows something its clock may pause.
class ExpertCounter final : public model::Observer {
 public:
  explicit ExpertCounter(size_t layers) : used_(layers) {}
  void set_clock(RunClock<>* clock) { clock_ = clock; }
  void activations(std::string_view, int, const ops::ConstActivations&) override { may_pause(); }
  void floats(std::string_view, int, const float*, int64_t, int64_t) override { may_pause(); }
  void ids(std::string_view point, int layer, const int32_t* value, int64_t rows, int64_t columns) override {
    may_pause();
    if (point != "moe.experts") return;
    std::vector<int32_t>& used = used_[static_cast<size_t>(layer)];
    for (int64_t i = 0; i < rows * columns; ++i) {
      if (std::find(used.begin(), used.end(), value[i]) == used.end()) used.push_back(value[i]);
    }
  }
  void clear() {
    for (std::vector<int32_t>& used : used_) used.clear();
  }
  [[nodiscard]] size_t count(size_t layer) const { return used_[layer].size(); }
  [[nodiscard]] size_t layers() const { return used_.size(); }

 private:
  void may_pause() {
    if (clock_ != nullptr) clock_->may_pause();
  }

  std::vector<std::vector<int32_t>> used_;
  RunClock<>* clock_ = nullptr;
};

class NoSink final : public model::LogitSink {
 public:
  void logits(int32_t, int32_t, const float*) override {}
};

Status check(const StepBenchOptions& options, const checkpoint::TextConfig& text) {
  const auto range = [](const char* name, int64_t value, int64_t low, int64_t high) -> Status {
    if (value >= low && value <= high) return {};
    return Status::invalid(std::string(name) + " is " + std::to_string(value) + "; legal values are " +
                           std::to_string(low) + " to " + std::to_string(high));
  };
  PS_RETURN_IF_ERROR(range("context", options.context, 1, text.max_position_embeddings - options.repeats - 1));
  PS_RETURN_IF_ERROR(range("batch", options.batch, 1, 4096));
  PS_RETURN_IF_ERROR(range("chunk", options.chunk, options.batch, 65536));
  PS_RETURN_IF_ERROR(range("threads", options.threads, 1, 1024));
  return range("repeats", options.repeats, 1, 1000);
}

// One model with B sequences of equal length.
class Sequences {
 public:
  static Result<std::unique_ptr<Sequences>> create(const checkpoint::Checkpoint& checkpoint,
                                                   const std::vector<int32_t>& token_classes, const ops::OpTable& table,
                                                   const StepBenchOptions& options, int64_t most_rows);

  void fill_context(int64_t tokens);
  // Appends `count` random tokens to every sequence in one forward.
  void forward(int64_t count, engine::LogitRows logits);
  void restart() {
    length_ = 0;
    for (int64_t s = 0; s < options_.batch; ++s) pool_.zero_slot(slot(s));
  }

  [[nodiscard]] const model::Model& model() const { return *model_; }
  [[nodiscard]] const cache::CacheGeometry& geometry() const { return pool_.geometry(); }
  [[nodiscard]] int64_t length() const { return length_; }
  [[nodiscard]] ThreadPool& threads() { return threads_; }
  [[nodiscard]] ExpertCounter& experts() { return experts_; }

 private:
  Sequences(cache::CachePool pool, HostBuffer scratch, std::unique_ptr<model::Model> model,
            const StepBenchOptions& options)
      : options_(options),
        pool_(std::move(pool)),
        scratch_(std::move(scratch)),
        model_(std::move(model)),
        threads_(options.threads, options.pin_threads ? Pinning::kCores : Pinning::kNone),
        experts_(model_->weights().layers.size()) {}

  static cache::SlotId slot(int64_t sequence) { return cache::SlotId{static_cast<int32_t>(sequence)}; }
  [[nodiscard]] std::span<const cache::PageId> pages(int64_t sequence, int64_t tokens) const {
    return std::span(pages_).subspan(static_cast<size_t>(sequence * pages_each_),
                                     static_cast<size_t>(pool_.geometry().pages_for(tokens)));
  }
  void fill_sequence(int64_t sequence, int64_t tokens);

  StepBenchOptions options_;
  cache::CachePool pool_;
  Arena scratch_;
  std::unique_ptr<model::Model> model_;
  ThreadPool threads_;
  ExpertCounter experts_;
  model::CacheViews views_;
  engine::PlanShape shape_;
  engine::StepPlan plan_;
  std::vector<int32_t> token_classes_;
  std::vector<cache::PageId> pages_;
  int64_t pages_each_ = 0;
  std::vector<float> logits_;
  Pcg64 random_{1};
  int64_t length_ = 0;
};

Result<std::unique_ptr<Sequences>> Sequences::create(const checkpoint::Checkpoint& checkpoint,
                                                     const std::vector<int32_t>& token_classes,
                                                     const ops::OpTable& table, const StepBenchOptions& options,
                                                     int64_t most_rows) {
  const checkpoint::TextConfig& text = checkpoint.config().text_config;
  PS_TRY(engine::PlanShape shape, engine::make_plan_shape(checkpoint.config(), token_classes));
  PS_TRY(const cache::CacheGeometry geometry,
         cache::CacheGeometry::create(text, checkpoint.topology(), {options.format, options.page_tokens, 0}));
  const int64_t pages_each = std::max<int64_t>(geometry.pages_for(options.context + options.repeats + 1), 1);
  PS_TRY(cache::CachePool pool, cache::CachePool::allocate(geometry, pages_each * options.batch, options.batch));
  auto model = std::make_unique<model::Model>(checkpoint, table, model::ModelOptions{});
  PS_TRY(HostBuffer scratch, HostBuffer::allocate(model::forward_scratch_bytes(
                                 model->dims(), table, DType::kBF16, most_rows, options.batch, options.threads)));
  std::unique_ptr<Sequences> sequences(new Sequences(std::move(pool), std::move(scratch), std::move(model), options));
  sequences->views_ = engine::make_views(sequences->pool_, checkpoint.topology());
  sequences->shape_ = std::move(shape);
  sequences->token_classes_ = token_classes;
  sequences->pages_each_ = pages_each;
  for (int64_t page = pages_each * options.batch; page-- > 0;) {
    sequences->pages_.push_back(cache::PageId{static_cast<int32_t>(page)});
  }
  sequences->logits_.resize(static_cast<size_t>(options.batch * text.vocab_size));
  sequences->restart();
  return sequences;
}

// Uniform values: rows are drawn from a few hundred, index keys are all different, so that scores rarely tie.
void Sequences::fill_sequence(int64_t sequence, int64_t tokens) {
  constexpr int64_t kRows = 512;
  const auto draw = [&] { return static_cast<float>(2 * random_.uniform() - 1); };
  const int64_t dim = geometry().head_dim;
  std::vector<float> rows(static_cast<size_t>(kRows * dim));
  std::generate(rows.begin(), rows.end(), draw);
  const auto row = [&] { return rows.data() + random_.integer(0, kRows) * dim; };
  for (const ops::WindowRing& ring : views_.windows) {
    for (int64_t position = std::max<int64_t>(0, tokens - ring.ring_slots); position < tokens; ++position) {
      ops::encode_row(ring.format, row(), dim,
                      ring.row(static_cast<int32_t>(sequence), static_cast<int32_t>(position)));
    }
  }
  std::vector<int32_t> table;
  for (const cache::PageId page : pages(sequence, tokens)) table.push_back(static_cast<int32_t>(page));
  std::vector<float> key(static_cast<size_t>(geometry().index_dim));
  for (size_t owner = 0; owner < views_.main.size(); ++owner) {
    const ops::MainPlane& main = views_.main[owner];
    for (int64_t index = 0; index < tokens / main.ratio; ++index) {
      ops::encode_row(main.format, row(), dim, main.row(table.data(), index));
      std::generate(key.begin(), key.end(), draw);
      ops::encode_index_key(views_.index[owner], views_.index[owner].flat_row(table.data(), index), key.data());
    }
  }
}

void Sequences::fill_context(int64_t tokens) {
  const FlushSubnormals flush;
  for (int64_t s = 0; s < options_.batch; ++s) fill_sequence(s, tokens);
  length_ = tokens;
}

void Sequences::forward(int64_t count, engine::LogitRows logits) {
  const size_t history = shape_.engram.empty() ? 0 : static_cast<size_t>(shape_.engram.front().max_ngram) - 1;
  std::vector<int32_t> ids(static_cast<size_t>(options_.batch * count));
  for (int32_t& id : ids) id = static_cast<int32_t>(random_.integer(0, shape_.vocabulary));
  // What came before is random too, which costs the same table reads as a text.
  std::vector<int32_t> classes(static_cast<size_t>(options_.batch) * (static_cast<size_t>(count) + history));
  if (!shape_.engram.empty()) {
    for (int32_t& c : classes) c = token_classes_[static_cast<size_t>(random_.integer(0, shape_.vocabulary))];
  }
  std::vector<engine::SequenceRows> rows(static_cast<size_t>(options_.batch));
  for (int64_t s = 0; s < options_.batch; ++s) {
    engine::SequenceRows& row = rows[static_cast<size_t>(s)];
    row.start = static_cast<int32_t>(length_);
    row.ids = std::span(ids).subspan(static_cast<size_t>(s * count), static_cast<size_t>(count));
    const size_t width = static_cast<size_t>(count) + history;
    if (!shape_.engram.empty()) row.classes = std::span(classes).subspan(static_cast<size_t>(s) * width, width);
    row.pages = pages(s, length_ + count);
    row.slot = slot(s);
    row.logits = logits;
  }
  plan_.build(shape_, rows);
  ops::Exec exec{threads_, scratch_};
  NoSink sink;
  model_->forward(plan_.forward_plan(logits_.data(), static_cast<int32_t>(options_.batch), &sink), views_, exec,
                  &experts_);
  length_ += count;
}

// The unit that the backend multiplies on; the reference is compiled for AVX2.
cpu::Isa isa_of(const ops::OpTable& table) {
  for (const cpu::Isa each : cpu::kIsas) {
    if (cpu::isa_name(each) == table.name) return each;
  }
  return cpu::Isa::kAvx2;
}

std::string unit_name(cpu::Isa isa) {
  return isa == cpu::Isa::kAmx ? "AMX BF16" : isa == cpu::Isa::kAvx512 ? "AVX-512 FMA" : "AVX2 FMA";
}

// Calls `warm_up`, then `repeats` times `prepare` and, measured, `run`; `needed()` tells the work of the run that just
// ended.
template <typename WarmUp, typename Prepare, typename Run, typename Needed>
void measure(Sequences& sequences, const StepBenchOptions& options, cpu::Isa isa, OpProfile* profile,
             const WarmUp& warm_up, const Prepare& prepare, const Run& run, const Needed& needed,
             StepBenchResult& result) {
  CeilingMeter meter({false, options.threads}, sequences.threads());
  RunClock clock(meter, isa, kSecondsBetweenSamples);
  std::vector<double> floors;
  std::vector<double> ratios;
  std::vector<double> bandwidths;
  std::vector<double> peaks;
  warm_up();
  if (profile != nullptr) profile->clear();
  sequences.experts().set_clock(&clock);
  for (int64_t i = 0; i < options.repeats; ++i) {
    sequences.experts().clear();
    prepare();
    clock.start();
    run();
    clock.stop();
    const Ceilings ceilings = clock.ceilings();
    bandwidths.push_back(1e9 * ceilings.read_gbs);
    peaks.push_back(1e9 * ceilings.peak_gflops);
    result.all_seconds.push_back(clock.seconds());
    Work work = needed();
    const Roofline roofline(sequences.model(), sequences.geometry());
    for (size_t layer = 0; layer < sequences.experts().layers(); ++layer) {
      const auto used = static_cast<double>(sequences.experts().count(layer));
      work.bytes += used * roofline.expert_bytes(layer);
      result.distinct_experts += used / static_cast<double>(sequences.experts().layers() * options.repeats);
    }
    result.needed_bytes += work.bytes / static_cast<double>(options.repeats);
    result.needed_flops += work.flops / static_cast<double>(options.repeats);
    floors.push_back(work.floor_seconds(bandwidths.back(), peaks.back()));
    ratios.push_back(floors.back() / clock.seconds());
  }
  sequences.experts().set_clock(nullptr);
  result.peak_unit = unit_name(isa);
  result.read_bytes_per_second = median(bandwidths);
  result.flops_per_second = median(peaks);
  result.seconds = median(result.all_seconds);
  result.floor_seconds = median(floors);
  result.ratio = median(ratios);
  if (profile != nullptr) result.op_table = profile->to_string();
}

}  // namespace

Result<StepBenchResult> bench_decode(const checkpoint::Checkpoint& checkpoint,
                                     const std::vector<int32_t>& token_classes, const ops::OpTable& table,
                                     const StepBenchOptions& options) {
  PS_RETURN_IF_ERROR(check(options, checkpoint.config().text_config));
  std::optional<OpProfile> profile;
  if (options.profile_ops) profile.emplace(table);
  const ops::OpTable& timed = profile ? profile->table() : table;
  PS_TRY(const auto sequences, Sequences::create(checkpoint, token_classes, timed, options, options.batch));
  StepBenchResult result;
  result.tokens = static_cast<double>(options.batch);
  sequences->fill_context(options.context);
  const Roofline roofline(sequences->model(), sequences->geometry());
  const auto step = [&] { sequences->forward(1, engine::LogitRows::kLast); };
  measure(
      *sequences, options, isa_of(table), profile ? &*profile : nullptr, step, [] {}, step,
      [&] {
        Work work{roofline.dense_bytes(true), 0};
        for (int64_t s = 0; s < options.batch; ++s) work += roofline.row(sequences->length() - 1, true);
        return work;
      },
      result);
  return result;
}

Result<StepBenchResult> bench_prefill(const checkpoint::Checkpoint& checkpoint,
                                      const std::vector<int32_t>& token_classes, const ops::OpTable& table,
                                      const StepBenchOptions& options) {
  PS_RETURN_IF_ERROR(check(options, checkpoint.config().text_config));
  std::optional<OpProfile> profile;
  if (options.profile_ops) profile.emplace(table);
  const ops::OpTable& timed = profile ? profile->table() : table;
  const int64_t rows_each = std::min(options.chunk / options.batch, options.context);
  PS_TRY(const auto sequences, Sequences::create(checkpoint, token_classes, timed, options, rows_each * options.batch));
  StepBenchResult result;
  result.tokens = static_cast<double>(options.batch * options.context);
  const Roofline roofline(sequences->model(), sequences->geometry());
  const auto prompt = [&](int64_t tokens) {
    while (sequences->length() < tokens) {
      const int64_t count = std::min(rows_each, tokens - sequences->length());
      const bool is_last = sequences->length() + count == tokens;
      sequences->forward(count, is_last ? engine::LogitRows::kLast : engine::LogitRows::kNone);
    }
  };
  measure(
      *sequences, options, isa_of(table), profile ? &*profile : nullptr, [&] { prompt(rows_each); },
      [&] { sequences->restart(); }, [&] { prompt(options.context); },
      [&] {
        Work work{roofline.dense_bytes(true), 0};
        for (int64_t position = 0; position < options.context; ++position) {
          const bool is_last = position + 1 == options.context;
          for (int64_t s = 0; s < options.batch; ++s) work += roofline.row(position, is_last);
        }
        return work;
      },
      result);
  return result;
}

}  // namespace ps::apps
