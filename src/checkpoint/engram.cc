#include "checkpoint/engram.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>

#include "base/macros.h"
#include "base/pcg64.h"

namespace ps::checkpoint {
namespace {

constexpr uint64_t kSeedStep = 10007;  // the generator of layer L is seeded with this times L

uint64_t power_modulo(uint64_t base, uint64_t exponent, uint64_t modulus) noexcept {
  uint64_t result = 1;
  for (base %= modulus; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result = static_cast<uint64_t>(uint128{result} * base % modulus);
    base = static_cast<uint64_t>(uint128{base} * base % modulus);
  }
  return result;
}

// The next primes at or above `start`, in order: one set for the whole model, so no layer repeats another's.
std::vector<int64_t> next_primes(int64_t start, size_t count) {
  std::vector<int64_t> primes;
  primes.reserve(count);
  for (int64_t candidate = start; primes.size() < count; ++candidate) {
    if (is_prime(static_cast<uint64_t>(candidate))) primes.push_back(candidate);
  }
  return primes;
}

std::vector<int64_t> all_primes(const TextConfig& text) {
  const auto count = static_cast<size_t>(text.num_engram_layers() * text.engram_columns());
  return next_primes(text.engram_vocab_size, count);
}

std::vector<int64_t> draw_multipliers(int layer, int64_t num_classes, int64_t count) {
  const int64_t bound = std::max<int64_t>(1, std::numeric_limits<int64_t>::max() / num_classes / 2);
  Pcg64 generator(kSeedStep * static_cast<uint64_t>(layer));
  std::vector<int64_t> multipliers(static_cast<size_t>(count));
  for (int64_t& multiplier : multipliers) multiplier = 2 * generator.integer(0, bound) + 1;
  return multipliers;
}

}  // namespace

bool is_prime(uint64_t value) noexcept {
  // Miller-Rabin with these witnesses decides every 64-bit number.
  constexpr std::array<uint64_t, 12> kWitnesses = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37};
  if (value < 2) return false;
  for (const uint64_t small : kWitnesses) {
    if (value % small == 0) return value == small;
  }
  uint64_t odd = value - 1;
  int halvings = 0;
  for (; (odd & 1) == 0; odd >>= 1) ++halvings;
  for (const uint64_t witness : kWitnesses) {
    uint64_t x = power_modulo(witness, odd, value);
    if (x == 1 || x == value - 1) continue;
    bool is_composite = true;
    for (int i = 1; i < halvings && is_composite; ++i) {
      x = static_cast<uint64_t>(uint128{x} * x % value);
      is_composite = x != value - 1;
    }
    if (is_composite) return false;
  }
  return true;
}

std::vector<int64_t> engram_table_rows(const TextConfig& text) {
  const std::vector<int64_t> primes = all_primes(text);
  const auto columns = static_cast<size_t>(text.engram_columns());
  std::vector<int64_t> rows(text.engram_layer_ids.size(), 0);
  for (size_t i = 0; i < primes.size(); ++i) rows[i / columns] += primes[i];
  return rows;
}

Result<std::vector<EngramLayer>> make_engram_layers(const TextConfig& text, int64_t num_classes, int32_t pad_class) {
  if (text.engram_layer_ids.empty()) return std::vector<EngramLayer>();
  // A map of another size rehashes every n-gram to a wrong but valid row.
  if (num_classes != text.engram_compressed_vocab_size) {
    return Status::invalid("the tokenizer has " + std::to_string(num_classes) +
                           " token classes, text_config.engram_compressed_vocab_size is " +
                           std::to_string(text.engram_compressed_vocab_size));
  }
  if (pad_class < 0 || pad_class >= num_classes) {
    return Status::invalid("pad class " + std::to_string(pad_class) + " is outside of 0 to " +
                           std::to_string(num_classes - 1));
  }
  const std::vector<int64_t> primes = all_primes(text);
  std::vector<EngramLayer> layers;
  for (const int layer : text.engram_layer_ids) {
    EngramLayer engram;
    engram.layer = layer;
    engram.max_ngram = static_cast<int>(text.engram_max_ngram_size);
    engram.heads = static_cast<int>(text.engram_n_heads);
    engram.pad_class = pad_class;
    engram.multipliers = draw_multipliers(layer, num_classes, text.engram_max_ngram_size);
    const auto first = primes.begin() + static_cast<int64_t>(layers.size()) * text.engram_columns();
    engram.primes.assign(first, first + text.engram_columns());
    for (const int64_t prime : engram.primes) {
      engram.offsets.push_back(engram.total_rows);
      engram.total_rows += prime;
    }
    layers.push_back(std::move(engram));
  }
  return layers;
}

void hash_rows(const EngramLayer& engram, std::span<const int32_t> classes, std::span<int64_t> rows) noexcept {
  PS_DCHECK(static_cast<int>(classes.size()) == engram.max_ngram);
  PS_DCHECK(static_cast<int>(rows.size()) == engram.columns());
  const auto heads = static_cast<size_t>(engram.heads);
  bool is_blocked = false;
  int64_t roll = 0;
  for (size_t back = 0; back < classes.size(); ++back) {
    is_blocked = is_blocked || classes[back] == kEngramDead;
    roll ^= int64_t{is_blocked ? engram.pad_class : classes[back]} * engram.multipliers[back];
    if (back == 0) continue;
    for (size_t column = (back - 1) * heads; column < back * heads; ++column) {
      rows[column] = roll % engram.primes[column] + engram.offsets[column];
    }
  }
}

}  // namespace ps::checkpoint
