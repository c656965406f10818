#include "checkpoint/checkpoint.h"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>

#include "base/json.h"
#include "base/macros.h"
#include "checkpoint/schema.h"

namespace ps::checkpoint {
namespace {

constexpr int64_t kConfigLimitBytes = 1 << 20;
constexpr int64_t kIndexLimitBytes = 64 << 20;
constexpr size_t kListedProblems = 20;

// Collects mismatches; keeps the text of the first ones and counts all.
class Mismatches {
 public:
  void add(std::string text) {
    if (count_++ < kListedProblems) listed_.push_back(std::move(text));
  }
  [[nodiscard]] Status status(std::string_view headline) const {
    if (count_ == 0) return {};
    std::string text =
        std::string(headline) + ": " + std::to_string(count_) + (count_ == 1 ? " mismatch" : " mismatches");
    for (const std::string& item : listed_) text += "; " + item;
    if (count_ > listed_.size()) text += "; and " + std::to_string(count_ - listed_.size()) + " more";
    return Status::corrupt(std::move(text));
  }

 private:
  size_t count_ = 0;
  std::vector<std::string> listed_;
};

std::string stored_form(DType dtype, const Shape& shape) {
  return std::string(dtype_name(dtype)) + " " + shape.to_string();
}

struct ShardIndex {
  std::vector<std::string> files;                         // sorted
  std::unordered_map<std::string, std::string> shard_of;  // tensor -> file
};

// A shard is a plain name inside the folder: an index must not reach elsewhere.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

Result<ShardIndex> parse_index(std::string_view text) {
  PS_TRY(const JsonValue root, JsonValue::parse(text, {.bytes = kIndexLimitBytes, .depth = 8}));
  const JsonValue* map = root.find("weight_map");
  if (map == nullptr || !map->is_object()) return Status::corrupt("weight_map is missing or no object");
  if (const std::string* twice = map->duplicate_key()) return Status::corrupt(*twice + " occurs twice");
  ShardIndex index;
  std::set<std::string> files;
  for (const auto& [tensor, file] : map->members()) {
    if (!file.is_string() || !is_plain_name(file.text())) {
      return Status::corrupt(tensor + ": its shard is no file name of this folder");
    }
    files.insert(file.text());
    index.shard_of.emplace(tensor, file.text());
  }
  index.files.assign(files.begin(), files.end());
  return index;
}

// The format of the weight `spec` as found, when that is one of the legal ones.
std::optional<WeightFormat> stored_format(const TensorSpec& spec, const TensorView& view, bool allows_quantized) {
  if (view.dtype == spec.dtype && view.shape == spec.shape && allows_quantized) {
    if (spec.form == Form::kFp4Weight) return WeightFormat::kFp4Row;
    return spec.form == Form::kTableWeight ? WeightFormat::kFp8Row : WeightFormat::kFp8Block;
  }
  if (view.shape != spec.logical_shape) return std::nullopt;
  if (view.dtype == DType::kBF16) return WeightFormat::kBf16;
  if (view.dtype == DType::kF32) return WeightFormat::kF32;
  return std::nullopt;
}

// Walks the schema beside the tensors of the files.
class SchemaCheck {
 public:
  SchemaCheck(const Config& config, const std::function<const TensorView*(std::string_view)>& find)
      : allows_quantized_(config.quantization_config.has_value()), find_(find) {}

  void visit(const TensorSpec& spec) {
    if (is_scale(spec.form)) return visit_scale(spec);
    const TensorView* view = find_(spec.name);
    last_is_quantized_ = false;
    if (view == nullptr) {
      // Without its weight a scale can only be counted as present or not.
      last_is_quantized_ = is_quantized_weight(spec.form) && allows_quantized_;
      return mismatches.add(spec.name + " is missing");
    }
    ++matched;
    if (is_quantized_weight(spec.form)) return visit_weight(spec, *view);
    // An unquantized export may widen the official BF16 tensors too.
    const bool is_widened = !allows_quantized_ && spec.dtype == DType::kBF16 && view->dtype == DType::kF32;
    if ((view->dtype != spec.dtype && !is_widened) || view->shape != spec.shape) {
      mismatches.add(spec.name + " is " + stored_form(view->dtype, view->shape) + ", expected " +
                     stored_form(spec.dtype, spec.shape));
    }
  }

  Mismatches mismatches;
  int64_t matched = 0;  // tensors of the files that the schema knows

 private:
  void visit_weight(const TensorSpec& spec, const TensorView& view) {
    const std::optional<WeightFormat> format = stored_format(spec, view, allows_quantized_);
    last_is_quantized_ = view.dtype == spec.dtype;
    if (!format.has_value()) {
      std::string expected = allows_quantized_ ? stored_form(spec.dtype, spec.shape) + " or " : "";
      expected += "BF16 or F32 " + spec.logical_shape.to_string();
      if (!allows_quantized_) expected += " (config.json has no quantization_config)";
      return mismatches.add(spec.name + " is " + stored_form(view.dtype, view.shape) + ", expected " + expected);
    }
    if (spec.expert_layer < 0) return;
    if (spec.expert_layer != expert_layer_) {
      expert_layer_ = spec.expert_layer;
      expert_format_ = *format;
    } else if (*format != expert_format_) {
      mismatches.add(spec.name + " is " + std::string(weight_format_name(*format)) +
                     ", the first expert of its layer " + std::string(weight_format_name(expert_format_)) +
                     ": one layer's experts share a format");
    }
  }

  // A scale follows its weight in the schema; it exists exactly when the weight is quantized.
  void visit_scale(const TensorSpec& spec) {
    const TensorView* view = find_(spec.name);
    if (view != nullptr) ++matched;
    if (last_is_quantized_ && view == nullptr) return mismatches.add(spec.name + " is missing");
    if (view == nullptr) return;
    if (!last_is_quantized_) return mismatches.add(spec.name + " belongs to a weight that is not quantized");
    if (view->dtype != spec.dtype || view->shape != spec.shape) {
      mismatches.add(spec.name + " is " + stored_form(view->dtype, view->shape) + ", expected " +
                     stored_form(spec.dtype, spec.shape));
    }
  }

  const bool allows_quantized_;
  const std::function<const TensorView*(std::string_view)>& find_;
  bool last_is_quantized_ = false;
  int expert_layer_ = -1;
  WeightFormat expert_format_ = WeightFormat::kFp4Row;
};

}  // namespace

std::string_view weight_format_name(WeightFormat format) noexcept {
  switch (format) {
    case WeightFormat::kFp8Block: return "FP8 32x32";
    case WeightFormat::kFp4Row: return "FP4 1x32";
    case WeightFormat::kFp8Row: return "FP8 1x32";
    case WeightFormat::kBf16: return "BF16";
    case WeightFormat::kF32: return "F32";
  }
  return "?";
}

Result<Checkpoint> Checkpoint::open(const std::filesystem::path& folder) {
  Checkpoint checkpoint;
  checkpoint.folder_ = folder;
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) return Status::not_found(folder.string() + " is no folder");
  PS_TRY(const std::string text, read_file(folder / "config.json", kConfigLimitBytes));
  PS_TRY(checkpoint.config_, parse_config(text).with(folder.string()));
  checkpoint.topology_ = layer_topology(checkpoint.config_.text_config);
  PS_RETURN_IF_ERROR(checkpoint.map_shards().with(folder.string()));
  PS_RETURN_IF_ERROR(checkpoint.check_schema().with(folder.string()));
  return checkpoint;
}

Status Checkpoint::map_shards() {
  const std::filesystem::path index_path = folder_ / "model.safetensors.index.json";
  ShardIndex index;
  std::error_code error;
  const bool has_index = std::filesystem::exists(index_path, error);
  if (has_index) {
    PS_TRY(const std::string text, read_file(index_path, kIndexLimitBytes));
    PS_TRY(index, parse_index(text).with("model.safetensors.index.json"));
  } else {
    index.files = {"model.safetensors"};
  }
  Mismatches mismatches;
  for (const std::string& name : index.files) {
    if (!std::filesystem::exists(folder_ / name, error)) {
      mismatches.add("shard " + name + " is missing");
      continue;
    }
    PS_TRY(SafetensorsFile shard, SafetensorsFile::open(folder_ / name));
    for (const SafetensorsEntry& entry : shard.entries()) {
      if (has_index) {
        const auto indexed = index.shard_of.find(entry.name);
        if (indexed == index.shard_of.end()) {
          mismatches.add(entry.name + " in " + name + " is not in the index");
        } else if (indexed->second != name) {
          mismatches.add(entry.name + " is in " + name + ", the index says " + indexed->second);
        }
      }
      const TensorView view = shard.view(entry);
      const Stored stored{view, shards_.size(), view.data - shard.bytes().data()};
      if (!tensors_.emplace(entry.name, stored).second) mismatches.add(entry.name + " is in two shards");
      payload_bytes_ += entry.end - entry.begin;
    }
    shards_.push_back(std::move(shard));
  }
  PS_RETURN_IF_ERROR(mismatches.status("shards"));
  std::vector<std::string> absent;
  for (const auto& [name, file] : index.shard_of) {
    if (tensors_.contains(name)) continue;
    absent.push_back(name);
    absent.back().append(" is in the index, but not in ").append(file);
  }
  std::sort(absent.begin(), absent.end());
  for (std::string& text : absent) mismatches.add(std::move(text));
  return mismatches.status("shards");
}

Status Checkpoint::check_schema() {
  const std::function<const TensorView*(std::string_view)> lookup = [this](std::string_view name) {
    return find(name);
  };
  SchemaCheck check(config_, lookup);
  for_each_tensor(config_, Storage::kOfficial, [&](const TensorSpec& spec) { check.visit(spec); });
  if (check.matched != num_tensors()) {
    std::set<std::string_view> extra;
    for (const auto& [name, stored] : tensors_) extra.insert(name);
    for_each_tensor(config_, Storage::kOfficial, [&](const TensorSpec& spec) { extra.erase(spec.name); });
    for (const std::string_view name : extra)
      check.mismatches.add(std::string(name) + " is not a tensor of this model");
  }
  return check.mismatches.status("tensors");
}

const TensorView* Checkpoint::find(std::string_view name) const noexcept {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second.view;
}

const TensorView& Checkpoint::tensor(std::string_view name) const noexcept {
  const TensorView* view = find(name);
  PS_CHECK(view != nullptr, name);
  return *view;
}

MatrixView Checkpoint::matrix(std::string_view prefix) const noexcept {
  const TensorView& weight = tensor(std::string(prefix) + ".weight");
  PS_CHECK(weight.shape.rank == 2, prefix);
  MatrixView view;
  view.rows = weight.shape[0];
  view.columns = weight.shape[1];
  view.data = weight.data;
  if (weight.dtype == DType::kBF16 || weight.dtype == DType::kF32) {
    view.format = weight.dtype == DType::kF32 ? WeightFormat::kF32 : WeightFormat::kBf16;
    return view;
  }
  const TensorView& scale = tensor(std::string(prefix) + ".scale");
  view.scale = reinterpret_cast<const uint8_t*>(scale.data);
  if (weight.dtype == DType::kI8) {
    view.format = WeightFormat::kFp4Row;
    view.columns *= 2;
  } else {
    // Engram tables are the only FP8 matrices whose every row has its own scales; dense ones have N/32 rows of them.
    view.format = scale.shape[0] == weight.shape[0] ? WeightFormat::kFp8Row : WeightFormat::kFp8Block;
  }
  return view;
}

std::vector<const Checkpoint::TensorMap::value_type*> Checkpoint::in_load_order(const LoadStage& stage) const {
  struct Keyed {
    int stage;
    const TensorMap::value_type* tensor;
  };
  std::vector<Keyed> keyed;
  for (const auto& tensor : tensors_) {
    const int at = stage(tensor.first);
    if (at >= 0) keyed.push_back({at, &tensor});
  }
  std::sort(keyed.begin(), keyed.end(), [](const Keyed& a, const Keyed& b) {
    return std::tuple(a.stage, a.tensor->second.shard, a.tensor->second.offset) <
           std::tuple(b.stage, b.tensor->second.shard, b.tensor->second.offset);
  });
  std::vector<const TensorMap::value_type*> tensors;
  tensors.reserve(keyed.size());
  for (const Keyed& each : keyed) tensors.push_back(each.tensor);
  return tensors;
}

int64_t Checkpoint::load_bytes(const LoadStage& stage) const {
  int64_t bytes = 0;
  for (const auto* tensor : in_load_order(stage)) bytes += tensor->second.view.size_bytes;
  return bytes;
}

Status Checkpoint::copy_on_load(const LoadStage& stage, const std::function<bool(std::string_view name)>& splits_rows,
                                std::span<const NodeShare> shares) {
  PS_CHECK(!has_copies(), "copies were made before");
  const auto tensors = in_load_order(stage);
  const auto room_of = [](const TensorView& view) {
    return (view.size_bytes + Arena::kAlignment - 1) / Arena::kAlignment * Arena::kAlignment;
  };
  int64_t total = 0;
  for (const auto* tensor : tensors) total += room_of(tensor->second.view);
  PS_TRY(copies_, HostBuffer::allocate(total));
  std::byte* at = copies_.data();
  for (const auto* tensor : tensors) {
    TensorView& view = tensors_.find(tensor->first)->second.view;
    if (splits_rows(tensor->first)) split_memory(at, view.size_bytes, shares);
    view.data = at;
    at += room_of(view);
  }
  return {};
}

Result<LoadFigures> Checkpoint::load(const LoadStage& stage, int threads, const LoadProgress& progress) const {
  std::vector<LoadRange> ranges;
  for (const auto* tensor : in_load_order(stage)) {
    const Stored& stored = tensor->second;
    LoadRange range{&shards_[stored.shard].file(), stored.offset, stored.view.size_bytes, nullptr};
    if (has_copies()) range.copy = const_cast<std::byte*>(stored.view.data);  // of copies_, which this object owns
    LoadRange* last = ranges.empty() ? nullptr : &ranges.back();
    // Small neighbours are read as one.
    if (last != nullptr && last->file == range.file && last->offset + last->size_bytes == range.offset &&
        (range.copy == nullptr || last->copy + last->size_bytes == range.copy)) {
      last->size_bytes += range.size_bytes;
    } else if (range.size_bytes > 0) {
      ranges.push_back(range);
    }
  }
  return checkpoint::load(ranges, threads, progress);
}

}  // namespace ps::checkpoint
