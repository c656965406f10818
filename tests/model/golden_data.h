// Reading tests/golden: a checkpoint folder with its recorded values (tests/oracle/README.md names every tensor).
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"
#include "engine/runner.h"
#include "ops/table.h"
#include "text/token_map.h"
#include "text/tokenizer.h"

namespace ps::tests {

// A recorded tensor, widened: floats of BF16 or F32, or integers.
struct Recorded {
  checkpoint::Shape shape;
  DType dtype = DType::kF32;
  std::vector<float> floats;
  std::vector<int64_t> integers;

  [[nodiscard]] int64_t row_size() const { return shape.rank == 0 ? 1 : shape.elements() / shape[0]; }
};

class Golden {
 public:
  // `name` below tests/golden, e.g. "oracle/short".
  explicit Golden(const std::string& name) : folder_(std::string(PAGESTATE_TEST_DATA) + "/golden/" + name) {
    auto opened = checkpoint::Checkpoint::open(folder_);
    auto file = checkpoint::SafetensorsFile::open(folder_ + "/golden.safetensors");
    auto tokenizer = text::Tokenizer::load(folder_ + "/tokenizer.json");
    EXPECT_TRUE(opened.ok()) << opened.status().to_string();
    EXPECT_TRUE(file.ok()) << file.status().to_string();
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
    if (!opened.ok() || !file.ok() || !tokenizer.ok()) return;
    checkpoint_.emplace(std::move(opened).value());
    file_.emplace(std::move(file).value());
    token_classes_ = text::engram_token_map(*tokenizer.value()).class_of;
    for (const int64_t id : get("ids").integers) ids_.push_back(static_cast<int32_t>(id));
  }

  [[nodiscard]] bool ok() const { return file_.has_value(); }
  [[nodiscard]] const checkpoint::Checkpoint& checkpoint() const { return *checkpoint_; }
  [[nodiscard]] const std::vector<int32_t>& ids() const { return ids_; }
  [[nodiscard]] const std::vector<int32_t>& token_classes() const { return token_classes_; }

  [[nodiscard]] bool has(const std::string& name) const { return find(name) != nullptr; }

  [[nodiscard]] Recorded get(const std::string& name) const {
    const checkpoint::SafetensorsEntry* entry = find(name);
    if (entry == nullptr) {
      ADD_FAILURE() << folder_ << " has no tensor " << name;
      return {};
    }
    const checkpoint::TensorView view = file_->view(*entry);
    Recorded out{view.shape, view.dtype, {}, {}};
    const int64_t count = view.shape.elements();
    const auto element = [&](auto sample, int64_t i) {
      std::memcpy(&sample, view.data + i * static_cast<int64_t>(sizeof sample), sizeof sample);
      return sample;
    };
    for (int64_t i = 0; i < count; ++i) {
      switch (view.dtype) {
        case DType::kF32: out.floats.push_back(element(float{}, i)); break;
        case DType::kBF16: out.floats.push_back(to_float(element(bf16{}, i))); break;
        case DType::kI32: out.integers.push_back(element(int32_t{}, i)); break;
        case DType::kI64: out.integers.push_back(element(int64_t{}, i)); break;
        default: ADD_FAILURE() << name << " has an unexpected dtype"; return out;
      }
    }
    return out;
  }

  [[nodiscard]] std::unique_ptr<engine::Runner> runner(engine::RunnerOptions options,
                                                       const ops::OpTable& table = ops::reference_table()) const {
    if (options.max_tokens == 0) options.max_tokens = static_cast<int64_t>(ids_.size());
    auto made = engine::Runner::create(*checkpoint_, token_classes_, table, options);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return made.ok() ? std::move(made).value() : nullptr;
  }

 private:
  [[nodiscard]] const checkpoint::SafetensorsEntry* find(const std::string& name) const {
    for (const checkpoint::SafetensorsEntry& entry : file_->entries()) {
      if (entry.name == name) return &entry;
    }
    return nullptr;
  }

  std::string folder_;
  std::optional<checkpoint::Checkpoint> checkpoint_;
  std::optional<checkpoint::SafetensorsFile> file_;
  std::vector<int32_t> ids_;
  std::vector<int32_t> token_classes_;
};

// Keeps a copy of every observed value, by "L<layer>.<point>".
class Recorder : public model::Observer {
 public:
  std::map<std::string, std::vector<float>> values;
  std::map<std::string, std::vector<int32_t>> integers;

  static std::string key(std::string_view point, int layer) {
    return layer < 0 ? std::string(point) : "L" + std::to_string(layer) + "." + std::string(point);
  }
  void activations(std::string_view point, int layer, const ops::ConstActivations& value) override {
    auto& out = values[key(point, layer)];
    for (int64_t row = 0; row < value.rows; ++row) {
      for (int64_t k = 0; k < value.columns; ++k) out.push_back(ops::load(value, row, k));
    }
  }
  void floats(std::string_view point, int layer, const float* value, int64_t rows, int64_t columns) override {
    auto& out = values[key(point, layer)];
    out.insert(out.end(), value, value + rows * columns);
  }
  void ids(std::string_view point, int layer, const int32_t* value, int64_t rows, int64_t columns) override {
    auto& out = integers[key(point, layer)];
    out.insert(out.end(), value, value + rows * columns);
  }
};

// All logits of the golden's prompt, fed with the given options.
inline std::vector<float> all_logits(engine::Runner& runner, std::span<const int32_t> ids) {
  std::vector<float> all;
  const Status status = runner.feed(ids, engine::LogitRows::kAll, [&](int64_t, std::span<const float> logits) {
    all.insert(all.end(), logits.begin(), logits.end());
    return true;
  });
  EXPECT_TRUE(status.ok()) << status.to_string();
  return all;
}

}  // namespace ps::tests
