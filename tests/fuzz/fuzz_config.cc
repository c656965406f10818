// A config.json from outside: any bytes are either refused or give a legal config, whose text form reads back equal and
// whose tensors can be listed without overflow.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "checkpoint/config.h"
#include "checkpoint/engram.h"
#include "checkpoint/schema.h"
#include "checkpoint/topology.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void exercise(const ps::checkpoint::Config& config) {
  namespace checkpoint = ps::checkpoint;
  require(checkpoint::validate(config).empty());
  const std::string text = checkpoint::write_config(config);
  const auto again = checkpoint::parse_config(text);
  require(again.ok() && checkpoint::write_config(again.value()) == text);
  const checkpoint::TextConfig& t = config.text_config;
  const auto topology = checkpoint::layer_topology(t);
  require(static_cast<int64_t>(topology.layers.size()) == t.num_hidden_layers);
  // Listing millions of experts tells nothing more, and takes long.
  constexpr int64_t kListed = 1 << 12;
  if ((t.num_hidden_layers + t.num_nextn_predict_layers) * (t.n_routed_experts + t.dspark_n_routed_experts) > kListed)
    return;
  for (const auto storage : {checkpoint::Storage::kOfficial, checkpoint::Storage::kF32}) {
    const auto totals = checkpoint::checkpoint_totals(config, storage);
    require(totals.bytes > 0 && totals.parameters >= totals.parameters_per_token && totals.parameters_per_token > 0);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto config = ps::checkpoint::parse_config({reinterpret_cast<const char*>(data), size});
  if (config.ok()) exercise(config.value());
  else require(!config.status().message().empty());
  return 0;
}
