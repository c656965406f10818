#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "base/macros.h"

namespace ps::engine {
namespace {

// SplitMix64's finalizer: every input bit reaches every output bit.
uint64_t scramble(uint64_t value) noexcept {
  value += 0x9E3779B97F4A7C15ull;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ull;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBull;
  return value ^ (value >> 31);
}

// exp((logit - top) / temperature): 1 for the likeliest.
double relative_weight(float logit, float top, double temperature) noexcept {
  return std::exp((static_cast<double>(logit) - static_cast<double>(top)) / temperature);
}

}  // namespace

Status check(const SamplingOptions& options) {
  const auto refuse = [](const std::string& name, double value, const std::string& legal) {
    return Status::invalid(name + " is " + std::to_string(value) + "; legal values are " + legal);
  };
  if (!(options.temperature >= 0 && options.temperature <= 100)) {
    return refuse("temperature", options.temperature, "0 (greedy) to 100");
  }
  if (!(options.top_p > 0 && options.top_p <= 1)) return refuse("top-p", options.top_p, "above 0, at most 1");
  if (options.top_k < 0) return refuse("top-k", options.top_k, "0 (all) or more");
  if (!(options.min_p >= 0 && options.min_p <= 1)) return refuse("min-p", options.min_p, "0 to 1");
  if (!(options.repetition_penalty >= 0.01 && options.repetition_penalty <= 10)) {
    return refuse("repetition-penalty", options.repetition_penalty, "0.01 to 10");
  }
  if (!(std::fabs(options.presence_penalty) <= 2))
    return refuse("presence-penalty", options.presence_penalty, "-2 to 2");
  if (!(std::fabs(options.frequency_penalty) <= 2))
    return refuse("frequency-penalty", options.frequency_penalty, "-2 to 2");
  for (const auto& [id, bias] : options.logit_bias) {
    if (!(std::fabs(bias) <= 100)) return refuse("logit-bias of token " + std::to_string(id), bias, "-100 to 100");
  }
  return {};
}

double position_uniform(uint64_t seed, int64_t position) noexcept {
  return static_cast<double>(scramble(scramble(seed) ^ static_cast<uint64_t>(position)) >> 11) * 0x1p-53;
}

Sampler::Sampler(int32_t vocabulary, std::span<const int32_t> never)
    : is_legal_(static_cast<size_t>(vocabulary), 1),
      adjusted_(static_cast<size_t>(vocabulary)),
      counts_(static_cast<size_t>(vocabulary)) {
  for (const int32_t id : never) {
    if (id >= 0 && id < vocabulary) is_legal_[static_cast<size_t>(id)] = 0;
  }
  candidates_.reserve(is_legal_.size());
}

std::span<const float> Sampler::adjusted(std::span<const float> logits, const SamplingOptions& options,
                                         const SampleContext& context) {
  const bool penalizes_answer = options.presence_penalty != 0 || options.frequency_penalty != 0;
  if (options.logit_bias.empty() && options.repetition_penalty == 1 && !penalizes_answer) return logits;
  std::copy(logits.begin(), logits.end(), adjusted_.begin());
  for (const auto& [id, bias] : options.logit_bias) {
    if (id >= 0 && static_cast<size_t>(id) < adjusted_.size()) adjusted_[static_cast<size_t>(id)] += bias;
  }
  // A token is penalized once for being there, whichever side it comes from: -1 marks what is done.
  const auto repeat = [&](int32_t id) {
    if (counts_[static_cast<size_t>(id)] != 0) return;
    counts_[static_cast<size_t>(id)] = -1;
    float& logit = adjusted_[static_cast<size_t>(id)];
    const auto penalty = static_cast<float>(options.repetition_penalty);
    logit = logit > 0 ? logit / penalty : logit * penalty;
  };
  if (options.repetition_penalty != 1) {
    for (const int32_t id : context.prompt) repeat(id);
    for (const int32_t id : context.generated) repeat(id);
    for (const int32_t id : context.prompt) counts_[static_cast<size_t>(id)] = 0;
    for (const int32_t id : context.generated) counts_[static_cast<size_t>(id)] = 0;
  }
  if (penalizes_answer) {
    for (const int32_t id : context.generated) {
      if (counts_[static_cast<size_t>(id)]++ == 0)
        adjusted_[static_cast<size_t>(id)] -= static_cast<float>(options.presence_penalty);
      adjusted_[static_cast<size_t>(id)] -= static_cast<float>(options.frequency_penalty);
    }
    for (const int32_t id : context.generated) counts_[static_cast<size_t>(id)] = 0;
  }
  return adjusted_;
}

int32_t Sampler::greedy(std::span<const float> logits) const {
  int32_t best = -1;
  for (size_t id = 0; id < logits.size(); ++id) {
    if (is_legal_[id] == 0 || std::isnan(logits[id])) continue;
    if (best < 0 || logits[id] > logits[static_cast<size_t>(best)]) best = static_cast<int32_t>(id);
  }
  return best;
}

int32_t Sampler::sample(std::span<const float> raw, const SamplingOptions& options, const SampleContext& context) {
  PS_CHECK(raw.size() == is_legal_.size(), raw.size(), is_legal_.size());
  const std::span<const float> logits = adjusted(raw, options, context);
  const int32_t likeliest = greedy(logits);
  if (likeliest < 0) {  // every legal logit is NaN: the lowest legal id, so that even then no masked one comes out
    return static_cast<int32_t>(std::find(is_legal_.begin(), is_legal_.end(), 1) - is_legal_.begin());
  }
  if (options.temperature <= 0) return likeliest;
  return draw(logits, options, likeliest, position_uniform(options.seed, context.position));
}

int32_t Sampler::draw(std::span<const float> logits, const SamplingOptions& options, int32_t likeliest,
                      double uniform) {
  const float top = logits[static_cast<size_t>(likeliest)];
  candidates_.clear();
  double total = 0;
  for (size_t id = 0; id < logits.size(); ++id) {
    if (is_legal_[id] == 0 || std::isnan(logits[id])) continue;
    const double weight = relative_weight(logits[id], top, options.temperature);
    if (weight < options.min_p || weight == 0) continue;
    candidates_.push_back({logits[id], static_cast<int32_t>(id)});
    total += weight;
  }
  const size_t kept = cut(options, top, total);
  double left = uniform * total;
  for (size_t i = 0; i < kept; ++i) {
    left -= relative_weight(candidates_[i].logit, top, options.temperature);
    if (left < 0) return candidates_[i].id;
  }
  return candidates_[kept - 1].id;
}

size_t Sampler::cut(const SamplingOptions& options, float top, double& total) {
  size_t kept = candidates_.size();
  if (options.top_k > 0) kept = std::min(kept, static_cast<size_t>(options.top_k));
  if (kept == candidates_.size() && options.top_p >= 1) return kept;
  // Sorts as much as top-p needs: most distributions end within a few dozen tokens.
  for (size_t sorted = std::min<size_t>(kept, 64);; sorted = std::min(kept, sorted * 8)) {
    sort_front(sorted);
    const double enough = options.top_p * total;
    double reached = 0;
    size_t count = 0;
    while (count < sorted && reached < enough) {
      reached += relative_weight(candidates_[count++].logit, top, options.temperature);
    }
    if (reached >= enough || sorted == kept) {
      total = reached;
      return count;
    }
  }
}

void Sampler::sort_front(size_t count) {
  const auto more_likely = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  };
  std::partial_sort(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(count), candidates_.end(),
                    more_likely);
}

float Sampler::logprob(std::span<const float> logits, int32_t id) {
  float top = -std::numeric_limits<float>::infinity();
  for (const float logit : logits) top = std::max(top, logit);
  double total = 0;
  for (const float logit : logits) total += relative_weight(logit, top, 1);
  return static_cast<float>(static_cast<double>(logits[static_cast<size_t>(id)]) - static_cast<double>(top) -
                            std::log(total));
}

void Sampler::top_logprobs(std::span<const float> logits, std::span<TokenLogprob> out) {
  if (out.empty()) return;
  candidates_.clear();
  for (size_t id = 0; id < logits.size(); ++id) candidates_.push_back({logits[id], static_cast<int32_t>(id)});
  const size_t count = std::min(out.size(), candidates_.size());
  sort_front(count);
  const float likeliest = logprob(logits, candidates_.front().id);
  for (size_t i = 0; i < count; ++i) {
    out[i] = {candidates_[i].id, likeliest + (candidates_[i].logit - candidates_.front().logit)};
  }
}

}  // namespace ps::engine
