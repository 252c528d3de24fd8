#include "runtime/model/hyper_memory.h"

#include <algorithm>
#include <bit>

#include "runtime/model/chance.h"

namespace continuo {

namespace {

// Vectors of `bits` bits each, of numbers 0 … count − 1.
std::vector<uint64_t> vectors(Purpose purpose, uint64_t seed, size_t count, size_t bits) {
  std::vector<uint64_t> out(count * bits / 64);
  auto to = out.begin();
  for (size_t i = 0; i < count; ++i) {
    for (uint32_t index = 0; index < bits / 128; ++index) {
      const auto words = chance(purpose, 0, i, seed, index);
      *to++ = uint64_t{words[1]} << 32 | words[0];
      *to++ = uint64_t{words[3]} << 32 | words[2];
    }
  }
  return out;
}

bool bit(const uint64_t* bits, size_t at) { return (bits[at / 64] >> (at % 64) & 1) != 0; }

}  // namespace

const std::vector<uint64_t>& HyperSpace::basis() const {
  std::call_once(basis_made_, [&] { basis_ = vectors(Purpose::basis, form_.seed, channels_, form_.bits); });
  return basis_;
}

const std::vector<uint64_t>& HyperSpace::items() const {
  std::call_once(items_made_, [&] { items_ = vectors(Purpose::item, form_.seed, vocabulary_, form_.bits); });
  return items_;
}

HyperSpace::Bits HyperSpace::key(std::span<const int8_t> hidden) const {
  const auto& own = basis();
  std::vector<int32_t> sums(form_.bits, 0);
  for (size_t i = 0; i < channels_; ++i) {
    const uint64_t* vector = own.data() + i * words();
    for (size_t b = 0; b < form_.bits; ++b) sums[b] += bit(vector, b) ? hidden[i] : -hidden[i];
  }
  Bits out(words(), 0);
  for (size_t b = 0; b < form_.bits; ++b) {
    const bool set = sums[b] == 0 ? bit(own.data(), b) : sums[b] > 0;
    out[b / 64] |= uint64_t{set} << (b % 64);
  }
  return out;
}

size_t HyperSpace::bind(std::span<int8_t> banks, const Bits& key, int32_t token) const {
  const size_t bank = bank_of(key);
  int8_t* counters = banks.data() + bank * form_.bits;
  const uint64_t* item = items().data() + static_cast<size_t>(token) * words();
  for (size_t b = 0; b < form_.bits; ++b) {
    const int up = bit(key.data(), b) != bit(item, b) ? 1 : -1;
    counters[b] = static_cast<int8_t>(std::clamp(counters[b] + up, -127, 127));
  }
  return bank;
}

HyperSpace::Recalled HyperSpace::recall(std::span<const int8_t> banks, const Bits& key) const {
  const size_t own = bank_of(key);
  std::vector<size_t> probes{own};
  for (size_t flip = 1; flip < form_.banks; flip <<= 1) probes.push_back(own ^ flip);
  std::vector<Bits> asked;
  std::vector<size_t> numbers;
  for (const size_t probe : probes) {
    const int8_t* counters = banks.data() + probe * form_.bits;
    if (std::all_of(counters, counters + form_.bits, [](int8_t c) { return c == 0; })) continue;
    Bits u = key;
    for (size_t b = 0; b < form_.bits; ++b) u[b / 64] ^= uint64_t{counters[b] > 0} << (b % 64);
    asked.push_back(std::move(u));
    numbers.push_back(probe);
  }
  Recalled out;
  if (asked.empty()) return out;
  out.found = true;
  out.distance = static_cast<uint32_t>(form_.bits) + 1;
  const uint64_t* item = items().data();
  for (size_t token = 0; token < vocabulary_; ++token, item += words()) {
    for (size_t i = 0; i < asked.size(); ++i) {
      uint32_t distance = 0;
      for (size_t w = 0; w < words(); ++w) distance += static_cast<uint32_t>(std::popcount(asked[i][w] ^ item[w]));
      if (distance >= out.distance) continue;
      out.distance = distance;
      out.token = static_cast<int32_t>(token);
      out.bank = numbers[i];
    }
  }
  out.hit = out.distance <= form_.hit_max;
  return out;
}

}  // namespace continuo
