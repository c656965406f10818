#include "checkpoint/synthetic.h"

#include <unistd.h>

#include <algorithm>
#include <map>

#include "base/json.h"
#include "base/macros.h"
#include "base/mapped_file.h"
#include "base/thread_pool.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/synthetic_weights.h"

namespace ps::checkpoint {
namespace {

namespace fs = std::filesystem;

// A folder that is removed unless it is kept.
class DraftFolder {
 public:
  explicit DraftFolder(fs::path path) : path_(std::move(path)) {}
  ~DraftFolder() {
    std::error_code ignored;
    if (!is_kept_) fs::remove_all(path_, ignored);
  }
  DraftFolder(const DraftFolder&) = delete;
  DraftFolder& operator=(const DraftFolder&) = delete;
  [[nodiscard]] const fs::path& path() const noexcept { return path_; }
  void keep() noexcept { is_kept_ = true; }

 private:
  fs::path path_;
  bool is_kept_ = false;
};

Status file_error(const fs::path& path, const char* action, const std::error_code& error) {
  return Status::invalid(path.string() + ": " + action + ": " + error.message());
}

bool is_checkpoint_file(const fs::path& name) {
  return name.extension() == ".safetensors" || name == "config.json" || name == "model.safetensors.index.json" ||
         name == "tokenizer.json" || name == "tokenizer_config.json";
}

// Whether `folder` may be created or replaced; other people's files are never removed.
Status check_target(const fs::path& folder, bool overwrite) {
  std::error_code error;
  if (!fs::exists(folder, error)) return {};
  if (!fs::is_directory(folder, error)) return Status::invalid(folder.string() + " exists and is no folder");
  fs::directory_iterator entries(folder, error);
  if (error) return file_error(folder, "cannot read", error);
  for (const fs::directory_entry& entry : entries) {
    if (!overwrite) return Status::invalid(folder.string() + " is not empty; --force replaces the checkpoint in it");
    if (!is_checkpoint_file(entry.path().filename()) || !entry.is_regular_file(error)) {
      return Status::invalid(folder.string() + " holds " + entry.path().filename().string() +
                             ", which belongs to no checkpoint: it is not replaced");
    }
  }
  return {};
}

// Puts the finished folder in place. Between the two renames of a replacement no folder has the name.
Status install(const fs::path& draft, const fs::path& folder) {
  std::error_code error;
  const fs::path replaced = folder.string() + ".replaced." + std::to_string(getpid());
  const bool replaces = fs::exists(folder, error) && !fs::is_empty(folder, error);
  if (replaces) {
    fs::rename(folder, replaced, error);
    if (error) return file_error(folder, "cannot be replaced", error);
  }
  fs::rename(draft, folder, error);
  if (error) {
    const Status status = file_error(folder, "cannot be created", error);
    if (replaces) fs::rename(replaced, folder, error);
    return Status(status.code(), std::string(status.message()));
  }
  if (replaces) fs::remove_all(replaced, error);
  return {};
}

Status check_room(const fs::path& parent, int64_t bytes) {
  std::error_code error;
  const fs::space_info space = fs::space(parent, error);
  if (error || space.available >= static_cast<uintmax_t>(bytes)) return {};
  return Status::exhausted(parent.string() + " has room for " + std::to_string(space.available) +
                           " bytes, the checkpoint needs " + std::to_string(bytes));
}

class ShardWriter {
 public:
  ShardWriter(const Config& config, const SyntheticOutput& output, int64_t total_bytes)
      : output_(output),
        weights_(config, announced_storage(config), output.seed),
        pool_(std::max(1, output.threads)),
        total_bytes_(total_bytes) {}

  Status write(const fs::path& path, std::vector<const TensorSpec*> tensors) {
    // Wider elements first keep every tensor aligned without holes.
    std::stable_sort(tensors.begin(), tensors.end(), [](const TensorSpec* a, const TensorSpec* b) {
      return dtype_bytes(a->dtype) > dtype_bytes(b->dtype);
    });
    std::vector<SafetensorsWriter::Declaration> declarations;
    declarations.reserve(tensors.size());
    for (const TensorSpec* spec : tensors) declarations.push_back({spec->name, spec->dtype, spec->shape});
    PS_TRY(SafetensorsWriter file, SafetensorsWriter::create(path, declarations));
    for (const TensorSpec* spec : tensors) PS_RETURN_IF_ERROR(write_tensor(file, *spec));
    return file.finish();
  }

 private:
  // A few pieces per thread at a time: memory does not grow with the tensor.
  Status write_tensor(SafetensorsWriter& file, const TensorSpec& spec) {
    const int64_t pieces = SyntheticWeights::num_pieces(spec);
    const int64_t room = SyntheticWeights::piece_bytes(spec);
    const int64_t batch = std::min<int64_t>(pieces, 4 * pool_.threads());
    buffer_.resize(std::max(buffer_.size(), static_cast<size_t>(batch * room)));
    std::vector<int64_t> sizes(static_cast<size_t>(batch));
    for (int64_t first = 0; first < pieces; first += batch) {
      const int64_t count = std::min(batch, pieces - first);
      const auto body = [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) {
          sizes[static_cast<size_t>(i)] = weights_.fill(spec, first + i, buffer_.data() + i * room);
        }
      };
      pool_.parallel_for(count, 1, body);
      for (int64_t i = 0; i < count; ++i) {
        const auto bytes = static_cast<size_t>(sizes[static_cast<size_t>(i)]);
        PS_RETURN_IF_ERROR(file.append({buffer_.data() + i * room, bytes}));
        done_bytes_ += static_cast<int64_t>(bytes);
      }
      if (output_.progress) output_.progress(done_bytes_, total_bytes_);
    }
    return {};
  }

  const SyntheticOutput& output_;
  const SyntheticWeights weights_;
  ThreadPool pool_;
  std::vector<std::byte> buffer_;
  int64_t done_bytes_ = 0;
  const int64_t total_bytes_;
};

std::string index_text(const std::vector<TensorSpec>& tensors, int shards, int64_t total_bytes) {
  JsonWriter json;
  json.begin_object();
  json.key("metadata").begin_object().key("total_size").integer(total_bytes).end_object();
  json.key("weight_map").begin_object();
  for (const TensorSpec& spec : tensors) json.key(spec.name).string(shard_file_name(spec.shard, shards));
  json.end_object().end_object();
  return std::move(json).text() + "\n";
}

std::string tokenizer_config_text(const Config& config, const SyntheticTokens& tokens) {
  JsonWriter json;
  json.begin_object();
  json.key("tokenizer_class").string("PreTrainedTokenizerFast");
  json.key("bos_token").string(tokens.bos_text);
  json.key("eos_token").string(tokens.eos_text);
  json.key("pad_token").string(tokens.pad_text);
  json.key("clean_up_tokenization_spaces").boolean(false);
  json.key("model_max_length").integer(config.text_config.max_position_embeddings);
  json.end_object();
  return std::move(json).text() + "\n";
}

Status write_files(const Config& config, const SyntheticTokens& tokens, const SyntheticOutput& output,
                   const fs::path& folder) {
  const Storage storage = announced_storage(config);
  const std::vector<TensorSpec> tensors = expected_tensors(config, storage);
  int64_t total_bytes = 0;
  std::map<int, std::vector<const TensorSpec*>> shards;
  for (const TensorSpec& spec : tensors) {
    shards[spec.shard].push_back(&spec);
    total_bytes += spec.size_bytes();
  }
  PS_RETURN_IF_ERROR(check_room(folder, total_bytes));
  ShardWriter writer(config, output, total_bytes);
  const int count = num_shards(config);
  for (auto& [shard, members] : shards) {
    PS_RETURN_IF_ERROR(writer.write(folder / shard_file_name(shard, count), std::move(members)));
  }
  PS_RETURN_IF_ERROR(write_file(folder / "tokenizer.json", tokens.tokenizer_json));
  PS_RETURN_IF_ERROR(write_file(folder / "tokenizer_config.json", tokenizer_config_text(config, tokens)));
  PS_RETURN_IF_ERROR(write_file(folder / "config.json", write_config(config)));
  return write_file(folder / "model.safetensors.index.json", index_text(tensors, count, total_bytes));
}

}  // namespace

Status write_synthetic(const Config& config, const SyntheticTokens& tokens, const SyntheticOutput& output,
                       const fs::path& folder) {
  std::error_code error;
  // A trailing slash would make the sibling folder a child.
  const fs::path target = fs::absolute(folder.has_filename() ? folder : folder.parent_path(), error);
  PS_RETURN_IF_ERROR(check_target(target, output.overwrite));
  fs::create_directories(target.parent_path(), error);
  if (error) return file_error(target.parent_path(), "cannot be created", error);
  DraftFolder draft(target.string() + ".partial." + std::to_string(getpid()));
  if (!fs::create_directory(draft.path(), error)) return file_error(draft.path(), "cannot be created", error);
  PS_RETURN_IF_ERROR(write_files(config, tokens, output, draft.path()));
  PS_RETURN_IF_ERROR(install(draft.path(), target));
  draft.keep();
  return {};
}

}  // namespace ps::checkpoint
