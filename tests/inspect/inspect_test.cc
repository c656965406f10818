// The numbers that `pagestate inspect` must print for the published config.json, read back from its JSON.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/testing.h"

namespace ps {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Outcome {
  int exit_code = -1;
  std::string output;
  std::string errors;
};

std::string shell_word(const std::filesystem::path& path) { return "'" + path.string() + "'"; }

// Runs `pagestate inspect <arguments>`.
Outcome inspect(const std::string& arguments) {
  const test::TemporaryFolder folder;
  const std::filesystem::path errors = folder.path() / "errors";
  const std::string command = shell_word(PAGESTATE_PROGRAM) + " inspect " + arguments + " 2>" + shell_word(errors);
  Outcome run;
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return run;
  char piece[4096];
  for (size_t count; (count = std::fread(piece, 1, sizeof piece, pipe)) > 0;) run.output.append(piece, count);
  const int status = pclose(pipe);
  run.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  run.errors = read_file(errors, 1 << 20).value();
  return run;
}

JsonValue parsed(const std::string& text) {
  Result<JsonValue> value = JsonValue::parse(text);
  EXPECT_TRUE(value.ok()) << value.status().to_string() << "\n" << text;
  return value.ok() ? std::move(value).value() : JsonValue();
}

// at(json, "cache.formats.0.page_bytes"): nullptr when there is no such thing.
const JsonValue* at(const JsonValue& root, std::string_view path) {
  const JsonValue* value = &root;
  while (!path.empty() && value != nullptr) {
    const size_t dot = path.find('.');
    const std::string key(path.substr(0, dot));
    path = dot == std::string_view::npos ? "" : path.substr(dot + 1);
    if (value->is_array()) {
      const size_t index = std::stoul(key);
      value = index < value->items().size() ? &value->items()[index] : nullptr;
    } else {
      value = value->find(key);
    }
  }
  return value;
}

int64_t number(const JsonValue& root, std::string_view path) {
  const JsonValue* value = at(root, path);
  if (value == nullptr || !value->integer().ok()) {
    ADD_FAILURE() << path << " is no integer";
    return -1;
  }
  return value->integer().value();
}

std::string text(const JsonValue& root, std::string_view path) {
  const JsonValue* value = at(root, path);
  if (value == nullptr || !value->is_string()) {
    ADD_FAILURE() << path << " is no string";
    return "";
  }
  return value->text();
}

// The published config in a folder of its own, so that nothing lies beside it.
class Published : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::copy_file(test::data_path("config.json"), folder_.path() / "config.json");
    const Outcome run = inspect("--json " + shell_word(folder_.path()));
    ASSERT_EQ(run.exit_code, 0) << run.errors;
    EXPECT_EQ(run.errors, "");
    json_ = parsed(run.output);
  }
  const test::TemporaryFolder folder_;
  JsonValue json_;
};

TEST_F(Published, Weights) {
  EXPECT_EQ(number(json_, "parameters.total"), 763'205'315'794);
  EXPECT_EQ(number(json_, "parameters.per_token"), 16'792'502'384);
  EXPECT_EQ(number(json_, "checkpoint.tensors"), 96'085);
  EXPECT_EQ(number(json_, "checkpoint.bytes"), 510'286'023'000);
  EXPECT_EQ(number(json_, "checkpoint.shards"), 48);
  EXPECT_TRUE(at(json_, "checkpoint.verified")->is_null());
  struct Group {
    const char* name;
    const char* tier;
    int64_t bytes;
  };
  constexpr Group kGroups[] = {{"backbone", "device", 298'624'579'008},
                               {"engram tables", "host", 202'758'032'400},
                               {"draft", "device, when used", 7'932'874'632},
                               {"vision", "device, when used", 970'536'960}};
  for (size_t i = 0; i < std::size(kGroups); ++i) {
    const std::string group = "checkpoint.groups." + std::to_string(i);
    EXPECT_EQ(text(json_, group + ".group"), kGroups[i].name);
    EXPECT_EQ(text(json_, group + ".tier"), kGroups[i].tier);
    EXPECT_EQ(number(json_, group + ".bytes"), kGroups[i].bytes);
  }
}

TEST_F(Published, ComponentsSumToTheTotals) {
  int64_t tensors = 0, bytes = 0, parameters = 0, per_token = 0;
  for (const JsonValue& component : at(json_, "checkpoint.components")->items()) {
    tensors += number(component, "tensors");
    bytes += number(component, "bytes");
    parameters += number(component, "parameters");
    per_token += number(component, "parameters_per_token");
    if (text(component, "component") == "routed_experts") {
      EXPECT_EQ(number(component, "parameters"), int64_t{40} * 384 * 3 * 2304 * 5120);
      EXPECT_EQ(number(component, "parameters_per_token"), int64_t{40} * 6 * 3 * 2304 * 5120);
    }
  }
  EXPECT_EQ(tensors, 96'085);
  EXPECT_EQ(bytes, 510'286'023'000);
  EXPECT_EQ(parameters, 763'205'315'794);
  EXPECT_EQ(per_token, 16'792'502'384);
}

TEST_F(Published, LayerRoles) {
  EXPECT_EQ(number(json_, "roles.window"), 2);
  EXPECT_EQ(number(json_, "roles.full"), 4);
  EXPECT_EQ(number(json_, "roles.reindex"), 4);
  EXPECT_EQ(number(json_, "roles.reuse"), 30);
  EXPECT_EQ(number(json_, "roles.draft_window"), 3);
  EXPECT_THAT(test::integers<int>(json_, "owners"), ElementsAre(2, 8, 14, 20));
  EXPECT_THAT(test::integers<int>(json_, "index_sources"), ElementsAre(2, 8, 14, 20, 24, 28, 32, 36));
  EXPECT_EQ(number(json_, "candidate_source"), 20);
  const std::vector<JsonValue>& layers = at(json_, "layers")->items();
  ASSERT_EQ(layers.size(), 43u);
  struct Layer {
    size_t at;
    const char* role;
    int64_t ratio, owner, index_source;
    bool is_candidate_source, uses_candidates;
  };
  constexpr Layer kLayers[] = {{2, "FULL", 2, 2, 2, false, false},      {13, "REUSE", 2, 8, 8, false, false},
                               {20, "FULL", 1, 20, 20, true, false},    {23, "REUSE", 1, 20, 20, false, false},
                               {28, "REINDEX", 1, 20, 28, false, true}, {39, "REUSE", 1, 20, 36, false, false}};
  for (const Layer& layer : kLayers) {
    const JsonValue& found = layers[layer.at];
    EXPECT_EQ(text(found, "role"), layer.role) << layer.at;
    EXPECT_EQ(number(found, "ratio"), layer.ratio) << layer.at;
    EXPECT_EQ(number(found, "owner"), layer.owner) << layer.at;
    EXPECT_EQ(number(found, "index_source"), layer.index_source) << layer.at;
    EXPECT_EQ(at(found, "is_candidate_source")->boolean(), layer.is_candidate_source) << layer.at;
    EXPECT_EQ(at(found, "uses_candidates")->boolean(), layer.uses_candidates) << layer.at;
  }
  for (const size_t window : {0u, 1u, 40u, 41u, 42u}) {
    EXPECT_EQ(text(layers[window], "role"), "WINDOW");
    EXPECT_TRUE(at(layers[window], "owner")->is_null());
    EXPECT_EQ(at(layers[window], "is_draft")->boolean(), window >= 40);
  }
  EXPECT_EQ(number(layers[1], "engram"), 0);
  EXPECT_EQ(number(layers[14], "engram"), 1);
  EXPECT_EQ(number(layers[37], "draft_tap"), 0);
}

TEST_F(Published, CacheFormats) {
  struct Format {
    const char* kv;
    const char* index;
    int64_t spec, page, state;
    double per_token;
  };
  constexpr Format kFormats[] = {
      {"bf16", "fp8", 0, 739'840, 5'276'672, 2890}, {"bf16", "fp8", 5, 739'840, 5'971'968, 2890},
      {"bf16", "fp4", 0, 698'880, 5'276'672, 2730}, {"bf16", "fp4", 5, 698'880, 5'971'968, 2730},
      {"fp4", "fp8", 0, 268'800, 2'736'384, 1050},  {"fp4", "fp8", 5, 268'800, 3'134'720, 1050},
      {"fp4", "fp4", 0, 227'840, 2'736'384, 890},   {"fp4", "fp4", 5, 227'840, 3'134'720, 890},
  };
  const std::vector<JsonValue>& found = at(json_, "cache.formats")->items();
  ASSERT_EQ(found.size(), std::size(kFormats));
  const int64_t memory = number(json_, "cache.memory_bytes");
  EXPECT_EQ(memory, int64_t{64} << 30);
  EXPECT_EQ(number(json_, "cache.page_tokens"), 256);
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(text(found[i], "kv_cache_dtype"), kFormats[i].kv);
    EXPECT_EQ(text(found[i], "index_cache_dtype"), kFormats[i].index);
    EXPECT_EQ(number(found[i], "spec_tokens"), kFormats[i].spec);
    EXPECT_EQ(number(found[i], "page_bytes"), kFormats[i].page);
    EXPECT_EQ(number(found[i], "state_bytes"), kFormats[i].state);
    EXPECT_EQ(at(found[i], "bytes_per_token")->real().value(), kFormats[i].per_token);
    EXPECT_EQ(number(found[i], "state_layers"), kFormats[i].spec > 0 ? 43 : 40);
    EXPECT_EQ(number(found[i], "ring_slots"), 128 + kFormats[i].spec);
    EXPECT_EQ(number(found[i], "compressor_ring_slots"), 2 + kFormats[i].spec);
    EXPECT_EQ(number(found[i], "pages_that_fit"), (memory - kFormats[i].state) / kFormats[i].page);
    EXPECT_EQ(number(found[i], "tokens_that_fit"), number(found[i], "pages_that_fit") * 256);
  }
}

TEST_F(Published, EngramAddressing) {
  const JsonValue expected = test::load_json("engram_tables.json");
  EXPECT_EQ(number(json_, "engram.compressed_vocab_size"), 99'092);
  EXPECT_TRUE(at(json_, "engram.token_map")->is_null());
  const std::vector<JsonValue>& layers = at(json_, "engram.layers")->items();
  ASSERT_EQ(layers.size(), 2u);
  for (const JsonValue& layer : layers) {
    const JsonValue& table = *at(expected, "layers." + std::to_string(number(layer, "layer")));
    EXPECT_EQ(test::integers<int64_t>(layer, "multipliers"), test::integers<int64_t>(table, "multipliers"));
    EXPECT_EQ(test::integers<int64_t>(layer, "offsets"), test::integers<int64_t>(table, "offsets"));
    EXPECT_EQ(number(layer, "rows"), number(table, "total_rows"));
    std::vector<int64_t> primes;
    for (const JsonValue& row : at(table, "primes")->items()) {
      for (const JsonValue& prime : row.items()) primes.push_back(prime.integer().value());
    }
    EXPECT_EQ(test::integers<int64_t>(layer, "primes"), primes);
  }
}

TEST_F(Published, TokenClasses) {
  const std::filesystem::path tokenizer = folder_.path() / "tokenizer.json";
  const std::string unpack =
      "gzip -dc " + shell_word(test::data_path("tokenizer_v41.json.gz")) + " >" + shell_word(tokenizer);
  ASSERT_EQ(std::system(unpack.c_str()), 0);
  const Outcome run = inspect("--json " + shell_word(folder_.path() / "config.json"));
  ASSERT_EQ(run.exit_code, 0) << run.errors;
  const JsonValue json = parsed(run.output);
  EXPECT_EQ(number(json, "engram.token_map.tokens"), 129'280);
  EXPECT_EQ(number(json, "engram.token_map.classes"), 99'092);
  EXPECT_EQ(number(json, "engram.token_map.pad_class"), 2);
  EXPECT_EQ(text(json, "engram.token_map.sha256"), "c60a86322ec17b4142bfef3c57a8d81fb428550cdf487f88a4320cb59fe46481");
}

TEST_F(Published, Tables) {
  const Outcome run =
      inspect(shell_word(folder_.path()) + " --memory 1GiB --kv-cache-dtype fp4 --index-cache-dtype fp8");
  ASSERT_EQ(run.exit_code, 0) << run.errors;
  for (const char* part :
       {"Layers: 2 WINDOW, 4 FULL, 4 REINDEX, 30 REUSE, 3 draft WINDOW", "763.21 B parameters",
        "16.79 B used per token", "96,085", "510,286,023,000", "475.24 GiB", "739,840", "5,971,968",
        "tokens in 1.00 GiB", "PAGE with fp4 kv and fp8 index", "was not checked", "within candidates"}) {
    EXPECT_THAT(run.output, HasSubstr(part));
  }
  for (size_t begin = 0, end; (end = run.output.find('\n', begin)) != std::string::npos; begin = end + 1) {
    EXPECT_NE(run.output[end > begin ? end - 1 : end], ' ') << "blank at the end of a line";
  }
}

TEST_F(Published, UnknownFieldsAreReported) {
  std::string config = read_file(test::data_path("config.json"), 1 << 20).value();
  config.insert(config.find("\"vocab_size\""), "\"rope_wobble\": 3, ");
  const std::filesystem::path path = folder_.path() / "other.json";
  ASSERT_TRUE(write_file(path, config).ok());
  const Outcome run = inspect("--json " + shell_word(path));
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_THAT(run.errors, HasSubstr("text_config.rope_wobble"));
  EXPECT_EQ(text(parsed(run.output), "model.unknown_fields.0"), "text_config.rope_wobble");
}

TEST_F(Published, ForeignTokenizerIsRefused) {
  const std::string tokenizer = std::string(PAGESTATE_TEST_DATA) + "/golden/native/native2/tokenizer.json";
  const Outcome run = inspect(shell_word(folder_.path()) + " --tokenizer " + shell_word(tokenizer));
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.errors, HasSubstr("token classes, text_config.engram_compressed_vocab_size is 99092"));
  EXPECT_THAT(run.output, HasSubstr("CONTRADICTS"));
}

TEST(Inspect, RefusesWithLegalValues) {
  const std::string config = shell_word(test::data_path("config.json"));
  struct Case {
    std::string arguments;
    const char* message;
  };
  const Case cases[] = {{"/nowhere", "not found"},
                        {config + " --page-tokens 255", "multiple of 16"},
                        {config + " --kv-cache-dtype fp8", "bf16 or fp4"},
                        {config + " --index-cache-dtype bf16", "fp4 or fp8"},
                        {config + " --memory lots", "as in 64GiB"},
                        {config + " --tokenizer /nowhere", "/nowhere"},
                        {"", "model"}};
  for (const Case& refused : cases) {
    const Outcome run = inspect(refused.arguments);
    EXPECT_EQ(run.exit_code, 2) << refused.arguments;
    EXPECT_THAT(run.errors, HasSubstr(refused.message));
    EXPECT_EQ(run.output, "");
  }
}

TEST(Inspect, VerifiesShards) {
  const test::TemporaryFolder folder;
  const std::filesystem::path golden = std::string(PAGESTATE_TEST_DATA) + "/golden/native/native2";
  std::filesystem::copy(golden, folder.path());
  const Outcome good = inspect("--json --page-tokens 16 " + shell_word(folder.path()));
  ASSERT_EQ(good.exit_code, 0) << good.errors;
  const JsonValue json = parsed(good.output);
  EXPECT_TRUE(at(json, "checkpoint.verified.ok")->boolean());
  EXPECT_EQ(number(json, "checkpoint.verified.tensors"), number(json, "checkpoint.tensors"));
  EXPECT_EQ(number(json, "checkpoint.verified.bytes"), number(json, "checkpoint.bytes"));

  std::filesystem::resize_file(folder.path() / "model.safetensors", 100'000);
  const Outcome bad = inspect("--json --page-tokens 16 " + shell_word(folder.path()));
  EXPECT_EQ(bad.exit_code, 1);
  EXPECT_FALSE(at(parsed(bad.output), "checkpoint.verified.ok")->boolean());
  EXPECT_THAT(bad.errors, HasSubstr("model.safetensors"));
}

}  // namespace
}  // namespace ps
