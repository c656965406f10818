// config.json: what is read, what is refused and how the refusal reads.
#include "checkpoint/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <ostream>

#include "checkpoint/test_data.h"

namespace ps::checkpoint {
namespace {

using test::published_text;
using testing::HasSubstr;

// The published text with one piece of it replaced.
std::string replaced(std::string_view from, std::string_view to) {
  std::string text = published_text();
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string message_of(const std::string& text) {
  const Result<Config> config = parse_config(text);
  return config.ok() ? "accepted" : std::string(config.status().message());
}

TEST(Config, ReadsThePublishedFile) {
  const Config config = test::config_of_file();
  EXPECT_TRUE(config.unknown_fields.empty());
  EXPECT_EQ(config.image_token_id, 129264);
  EXPECT_EQ(config.text_config.hidden_size, 5120);
  EXPECT_EQ(config.text_config.rms_norm_eps, 1e-20);
  EXPECT_EQ(config.text_config.engram_num_embeddings, (std::vector<int64_t>{384006168, 384016682}));
  EXPECT_EQ(config.text_config.engram_columns(), 24);
  EXPECT_EQ(config.text_config.compress_ratios.size(), 43u);
  EXPECT_EQ(config.text_config.rope_scaling->factor, 16);
  EXPECT_EQ(config.vision_config->min_pixels, 295936);
  EXPECT_FALSE(config.vision_config->max_wh_ratio.has_value());
  EXPECT_EQ(config.quantization_config->weight_block_size, (std::vector<int64_t>{32, 32}));
}

// The built-in copy, from which slices are cut, is the published file.
TEST(Config, BuiltInConfigIsThePublishedFile) {
  EXPECT_EQ(write_config(published_config()), write_config(test::config_of_file()));
}

// Writing keeps every field of the file, with its value.
TEST(Config, WritesEveryFieldOfTheFile) {
  const JsonValue published = ps::test::load_json("config.json");
  const JsonValue written = JsonValue::parse(write_config(test::config_of_file())).value();
  const std::function<void(const JsonValue&, const JsonValue&, std::string)> compare =
      [&](const JsonValue& a, const JsonValue& b, const std::string& path) {
        ASSERT_EQ(a.kind(), b.kind()) << path;
        if (a.is_object()) {
          ASSERT_EQ(a.members().size(), b.members().size()) << path;
          for (size_t i = 0; i < a.members().size(); ++i) {
            EXPECT_EQ(a.members()[i].first, b.members()[i].first);  // in the same order, too
            compare(a.members()[i].second, b.members()[i].second, path + "." + a.members()[i].first);
          }
        } else if (a.is_array()) {
          ASSERT_EQ(a.items().size(), b.items().size()) << path;
          for (size_t i = 0; i < a.items().size(); ++i) compare(a.items()[i], b.items()[i], path + "[]");
        } else if (a.is_number()) {
          EXPECT_EQ(a.real().value(), b.real().value()) << path;
        } else if (a.is_string()) {
          EXPECT_EQ(a.text(), b.text()) << path;
        }
      };
  compare(published, written, "config");
}

TEST(Config, ListsUnknownFieldsWithoutRefusing) {
  const std::string text = replaced("\"hidden_size\": 5120,", "\"hidden_size\": 5120, \"novel\": [1], ");
  const Result<Config> config = parse_config(text);
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config.value().unknown_fields, (std::vector<std::string>{"text_config.novel"}));
}

TEST(Config, AcceptsWhatAnotherModelOfThisKindLeavesOut) {
  EXPECT_TRUE(parse_config(replaced("\"norm_topk_prob\": true,", "")).value().text_config.norm_topk_prob);
  const std::string text = published_text();
  const std::string yarn = text.substr(text.find("\"rope_scaling\": {"),
                                       text.find("\"n_routed_experts\"") - text.find("\"rope_scaling\": {"));
  EXPECT_FALSE(parse_config(replaced(yarn, "\"rope_scaling\": null, ")).value().text_config.rope_scaling.has_value());
  Config config = test::config_of_file();
  config.vision_config.reset();
  config.quantization_config.reset();
  config.image_token_id = -1;
  const Config again = parse_config(write_config(config)).value();
  EXPECT_FALSE(again.has_vision());
  EXPECT_FALSE(again.quantization_config.has_value());
  EXPECT_EQ(again.image_token_id, -1);
}

// A model without Engram, drafts and candidates may leave out all their fields; its text form leaves them out, too.
TEST(Config, AbsentFeaturesStayAbsent) {
  Config config;
  config.text_config = test::config_of_file().text_config;
  TextConfig& t = config.text_config;
  t.compress_ratios.resize(40);
  t.engram_layer_ids = t.kv_source_layer_ids = t.index_source_layer_ids = {};
  std::fill(t.compress_ratios.begin(), t.compress_ratios.end(), 0);
  t.engram_num_embeddings.clear();
  t.engram_max_ngram_size = t.engram_vocab_size = t.engram_n_heads = t.engram_head_dim = 0;
  t.engram_compressed_vocab_size = t.num_nextn_predict_layers = t.dspark_block_size = t.dspark_markov_rank = 0;
  t.dspark_n_routed_experts = t.dspark_num_experts_per_tok = t.candidate_topk_blocks = t.candidate_block_size = 0;
  t.dspark_target_layer_ids.clear();
  t.candidate_source_layer_id = -1;
  const std::string written = write_config(config);
  const Result<Config> again = parse_config(written);
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(write_config(again.value()), written);
  EXPECT_FALSE(again.value().text_config.has_draft());
}

TEST(Config, RefusesOtherModelsByTheirTypeAlone) {
  // By model_type alone, never by a part of a name (pitfalls 10).
  EXPECT_THAT(message_of(replaced("\"deepseek_v41\"", "\"deepseek_v4\"")),
              HasSubstr("model_type = \"deepseek_v4\", legal: deepseek_v41"));
  EXPECT_THAT(message_of(replaced("\"deepseek_v41\"", "\"deepseek_v41_text\"")), HasSubstr("legal: deepseek_v41"));
  EXPECT_THAT(message_of(replaced("\"model_type\": \"deepseek_v41\",", "")), HasSubstr("model_type is missing"));
  EXPECT_THAT(message_of("{\"dim\": 5120, \"n_layers\": 40}"), HasSubstr("flat inference/config.json"));
  EXPECT_THAT(message_of("[1]"), HasSubstr("must be a JSON object"));
  EXPECT_THAT(message_of("{"), HasSubstr("config.json"));
  EXPECT_THAT(message_of(""), HasSubstr("config.json"));
}

struct Refusal {
  const char* from;
  const char* to;
  const char* message;
};

void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.from << " -> " << refusal.to; }

class ConfigRefusal : public testing::TestWithParam<Refusal> {};

TEST_P(ConfigRefusal, NamesFieldValueAndLegalValues) {
  EXPECT_THAT(message_of(replaced(GetParam().from, GetParam().to)), HasSubstr(GetParam().message));
}

constexpr Refusal kFieldRefusals[] = {
    {"\"hidden_size\": 5120,", "", "text_config.hidden_size is missing"},
    {"\"hidden_size\": 5120", "\"hidden_size\": \"5120\"",
     "text_config.hidden_size = \"5120\": must be an integer from 1 to 131072"},
    {"\"hidden_size\": 5120", "\"hidden_size\": 5120.0", "text_config.hidden_size = 5120.0: must be an integer"},
    {"\"hidden_size\": 5120", "\"hidden_size\": -5120", "text_config.hidden_size = -5120: must be an integer"},
    {"\"hidden_size\": 5120", "\"hidden_size\": 9223372036854775808", "text_config.hidden_size = 9223372036854775808"},
    {"\"hidden_size\": 5120", "\"hidden_size\": 4294967296", "from 1 to 131072"},
    {"\"num_key_value_heads\": 1", "\"num_key_value_heads\": 8",
     "text_config.num_key_value_heads = 8: only 1 is supported"},
    {"\"n_shared_experts\": 1", "\"n_shared_experts\": 2", "text_config.n_shared_experts = 2: only 1 is supported"},
    {"\"hc_mult\": 4", "\"hc_mult\": 2", "text_config.hc_mult = 2: only 4 is supported"},
    {"\"candidate_block_size\": 8", "\"candidate_block_size\": 16",
     "text_config.candidate_block_size = 16: only 8 is supported"},
    {"\"silu\"", "\"gelu\"", "text_config.hidden_act = \"gelu\": legal: silu"},
    {"\"sqrtsoftplus\"", "\"sigmoid\"", "text_config.scoring_func = \"sigmoid\": legal: sqrtsoftplus"},
    {"\"noaux_tc\"", "\"greedy\"", "text_config.topk_method = \"greedy\": legal: noaux_tc"},
    {"\"norm_topk_prob\": true", "\"norm_topk_prob\": false",
     "text_config.norm_topk_prob = false: only true is supported"},
    {"\"attention_bias\": false", "\"attention_bias\": true",
     "text_config.attention_bias = true: only false is supported"},
    {"\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true", "only false is supported"},
    {"\"use_cache\": true", "\"use_cache\": 1", "text_config.use_cache = 1: must be true or false"},
    {"\"rms_norm_eps\": 1e-20", "\"rms_norm_eps\": 0", "text_config.rms_norm_eps = 0: must be a number from"},
    {"\"rms_norm_eps\": 1e-20", "\"rms_norm_eps\": null", "text_config.rms_norm_eps = null: must be a number"},
    {"\"swiglu_limit\": 10.0", "\"swiglu_limit\": -1", "text_config.swiglu_limit = -1"},
    {"\"rope_theta\": 10000", "\"rope_theta\": 1", "text_config.rope_theta = 1: must be a number"},
    {"\"yarn\"", "\"linear\"", "text_config.rope_scaling.rope_type = \"linear\": legal: yarn"},
    {"\"factor\": 16,", "", "text_config.rope_scaling.factor is missing"},
    {"\"fp8\"", "\"awq\"", "quantization_config.quant_method = \"awq\": legal: fp8"},
    {"\"fp4\"", "\"fp8\"", "quantization_config.expert_dtype = \"fp8\": legal: fp4"},
    {"\"ue8m0\"", "\"float\"", "quantization_config.scale_fmt = \"float\": legal: ue8m0"},
    {"[32, 32]", "[128, 128]", "quantization_config.weight_block_size legal: [32, 32]"},
    {"[32, 32]", "32", "quantization_config.weight_block_size = 32: must be a list"},
    {"\"dtype\": \"bfloat16\"", "\"dtype\": \"float16\"", "dtype = \"float16\": legal: bfloat16 float32"},
    {"\"bos_token_id\": 0,", "", "bos_token_id is missing"},
    {"\"vision_config\": {", "\"vision_config\": [], \"x\": {", "vision_config = []: must be an object"},
    {"\"text_config\": {", "\"vision_config\": null, \"text\": {", "text_config is missing"},
    {"\"hidden_size\": 5120,", "\"hidden_size\": 5120, \"hidden_size\": 5120,", "text_config.hidden_size occurs twice"},
    {"\"engram_vocab_size\": 16000000,", "", "text_config.engram_vocab_size is missing"},
    {"\"dspark_block_size\": 5,", "", "text_config.dspark_block_size is missing"},
    {"\"candidate_topk_blocks\": 2048,", "", "text_config.candidate_topk_blocks is missing"},
};
INSTANTIATE_TEST_SUITE_P(Fields, ConfigRefusal, testing::ValuesIn(kFieldRefusals));

constexpr Refusal kRelationRefusals[] = {
    {"\"hidden_size\": 5120", "\"hidden_size\": 5104", "text_config.hidden_size = 5104: must be a multiple of 32"},
    {"\"head_dim\": 512", "\"head_dim\": 520", "text_config.head_dim = 520: must be a multiple of 32"},
    {"\"index_head_dim\": 128", "\"index_head_dim\": 112",
     "text_config.index_head_dim = 112: must be a multiple of 32"},
    {"\"moe_intermediate_size\": 2304", "\"moe_intermediate_size\": 2300", "must be a multiple of 32"},
    {"\"q_lora_rank\": 1280", "\"q_lora_rank\": 1288", "text_config.q_lora_rank = 1288: must be a multiple of 32"},
    {"\"o_lora_rank\": 1024", "\"o_lora_rank\": 1000", "text_config.o_lora_rank = 1000: must be a multiple of 32"},
    {"\"o_groups\": 8", "\"o_groups\": 7", "text_config.o_groups = 7: must divide num_attention_heads = 64"},
    {"\"qk_rope_head_dim\": 64", "\"qk_rope_head_dim\": 63",
     "text_config.qk_rope_head_dim = 63: must be a multiple of 2"},
    {"\"qk_rope_head_dim\": 64", "\"qk_rope_head_dim\": 160", "at most index_head_dim = 128"},
    {"\"num_experts_per_tok\": 6", "\"num_experts_per_tok\": 400", "at most n_routed_experts = 384"},
    {"\"dspark_num_experts_per_tok\": 3", "\"dspark_num_experts_per_tok\": 129",
     "at most dspark_n_routed_experts = 128"},
    {"\"candidate_topk_blocks\": 2048", "\"candidate_topk_blocks\": 63",
     "= 504 rows: must be at least index_topk = 512"},
    {"\"engram_head_dim\": 256", "\"engram_head_dim\": 200",
     "text_config.engram_head_dim = 200: must be a multiple of 32"},
    {"384006168", "384006169", "engram_num_embeddings [0] = 384006169: the primes from 16000000 give 384006168 rows"},
    {"[384006168, 384016682]", "[384006168]", "has 1 entries: engram_layer_ids has 2"},
    {"\"engram_compressed_vocab_size\": 99092", "\"engram_compressed_vocab_size\": 200000",
     "at most vocab_size = 129280"},
    {"\"dspark_target_layer_ids\": [37, 38, 39]", "\"dspark_target_layer_ids\": []",
     "is empty: draft stages need a tap"},
    {"\"dspark_noise_token_id\": 128799", "\"dspark_noise_token_id\": 129280", "must be a token id from 0 to 129279"},
    {"\"image_token_id\": 129264,", "", "image_token_id = -1: must be a token id"},
    {"\"pad_token_id\": 2", "\"pad_token_id\": 129280", "pad_token_id = 129280: must be a token id"},
    {"\"original_max_position_embeddings\": 65536", "\"original_max_position_embeddings\": 1", "give an empty ramp"},
    {"\"num_attention_heads\": 16", "\"num_attention_heads\": 15",
     "vision_config.num_attention_heads = 15: must divide hidden_size = 1024"},
};
INSTANTIATE_TEST_SUITE_P(Relations, ConfigRefusal, testing::ValuesIn(kRelationRefusals));

TEST(Config, ReportsSeveralProblemsAtOnce) {
  Config config = test::config_of_file();
  config.text_config.hidden_size = 100;
  config.text_config.o_groups = 7;
  config.text_config.kv_source_layer_ids = {3};
  const std::string message = message_of(write_config(config));
  EXPECT_THAT(message, HasSubstr("problems: "));
  EXPECT_THAT(message, HasSubstr("text_config.hidden_size = 100"));
  EXPECT_THAT(message, HasSubstr("text_config.o_groups = 7"));
  EXPECT_THAT(message, HasSubstr("layer 3, which is not in index_source_layer_ids"));
}

}  // namespace
}  // namespace ps::checkpoint
