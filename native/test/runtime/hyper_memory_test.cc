// The hyperdimensional memory against a slow one that knows a bit at a time, and the chance that its vectors come from.
#include "runtime/model/hyper_memory.h"

#include <cmath>
#include <map>

#include "runtime/model/chance.h"
#include "test/check.h"

namespace continuo::test::hyper_memory_test {

namespace {

struct Slow {
  HyperMemory form;
  size_t channels, vocabulary;

  bool vector(Purpose purpose, size_t number, size_t b) const {
    const auto words = chance(purpose, 0, number, form.seed, static_cast<uint32_t>(b / 128));
    return (words[b / 32 % 4] >> (b % 32) & 1) != 0;
  }
  std::vector<bool> key(const std::vector<int8_t>& hidden) const {
    std::vector<bool> out;
    for (size_t b = 0; b < form.bits; ++b) {
      int sum = 0;
      for (size_t i = 0; i < channels; ++i) sum += vector(Purpose::basis, i, b) ? hidden[i] : -hidden[i];
      out.push_back(sum == 0 ? vector(Purpose::basis, 0, b) : sum > 0);
    }
    return out;
  }
  size_t bank(const std::vector<bool>& key) const {
    size_t out = 0;
    for (size_t bit = 0; size_t{1} << bit < form.banks; ++bit) out += size_t{key[bit]} << bit;
    return out;
  }
  void bind(std::vector<int8_t>& banks, const std::vector<bool>& key, size_t token) const {
    for (size_t b = 0; b < form.bits; ++b) {
      int8_t& counter = banks[bank(key) * form.bits + b];
      if (key[b] != vector(Purpose::item, token, b)) {
        if (counter < 127) ++counter;
      } else if (counter > -127) {
        --counter;
      }
    }
  }
  // By (distance, token, order of the probes), the least.
  HyperSpace::Recalled recall(const std::vector<int8_t>& banks, const std::vector<bool>& key) const {
    std::map<std::array<size_t, 3>, size_t> found;
    std::vector<size_t> probes{bank(key)};
    for (size_t flip = 1; flip < form.banks; flip *= 2) probes.push_back(bank(key) ^ flip);
    for (size_t order = 0; order < probes.size(); ++order) {
      const int8_t* counters = banks.data() + probes[order] * form.bits;
      if (std::all_of(counters, counters + form.bits, [](int8_t c) { return c == 0; })) continue;
      for (size_t token = 0; token < vocabulary; ++token) {
        size_t distance = 0;
        for (size_t b = 0; b < form.bits; ++b)
          distance += (counters[b] > 0) != (key[b] != vector(Purpose::item, token, b));
        found.emplace(std::array{distance, token, order}, probes[order]);
      }
    }
    if (found.empty()) return {};
    const auto& [best, probe] = *found.begin();
    return {true, static_cast<int32_t>(best[1]), static_cast<uint32_t>(best[0]), probe, best[0] <= form.hit_max};
  }
};

std::vector<bool> bits_of(const HyperSpace::Bits& bits) {
  std::vector<bool> out;
  for (const uint64_t word : bits) {
    for (size_t i = 0; i < 64; ++i) out.push_back((word >> i & 1) != 0);
  }
  return out;
}

// Like another one, with some channels changed.
std::vector<int8_t> near(Random& random, std::vector<int8_t> hidden, size_t changes) {
  for (size_t i = 0; i < changes; ++i)
    hidden[random.below(hidden.size())] = static_cast<int8_t>(static_cast<int>(random.below(255)) - 127);
  return hidden;
}

}  // namespace

TEST("chance: Philox4x32-10 with the counter and key of the family, by its authors' published words") {
  // kat_vectors of Random123: counter and key all ones, and the digits of π.
  CHECK((philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}) ==
         std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  const uint64_t a = 0x85a308d3'243f6a88, key = 0x299f31d0'a4093822;
  // Its third word, 0x13198a2e, is purpose 0x13 and sub 0x198a2e.
  CHECK((chance(static_cast<Purpose>(0x13), 0x198a2e, a, key, 0x03707344) ==
         Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST("chance: a normal is the centred sum of halves times 1/√(8 (2³² − 1) / 12), and has its moments") {
  CHECK(normal_of({0, 0, 0, 0}) == -262140.0f * 0x1.3988e2p-16f);
  CHECK(normal_of({~0u, ~0u, ~0u, ~0u}) == 262140.0f * 0x1.3988e2p-16f);
  CHECK(normal_of({0x00010002, 0, 0, 0x00040000}) == (7.0f - 262140.0f) * 0x1.3988e2p-16f);
  CHECK(0x1.3988e2p-16f == static_cast<float>(1 / std::sqrt(8 * (std::ldexp(1.0, 32) - 1) / 12)));
  double mean = 0, square = 0, fourth = 0;
  constexpr int count = 200'000;
  for (int i = 0; i < count; ++i) {
    const double n = normal_of(chance(Purpose::nes, 3, 5, 7, static_cast<uint32_t>(i)));
    mean += n / count, square += n * n / count, fourth += n * n * n * n / count;
  }
  // Of eight uniform halves the fourth moment is 3 − 6/5/8.
  CHECK(std::abs(mean) < 0.01 && std::abs(square - 1) < 0.02 && std::abs(fourth - 2.85) < 0.1);
}

TEST("chance: bits are numbered from the lowest of the first word on") {
  const Words words{0x00000001, 0x80000000, 0x00000002, 0x00010000};
  for (size_t i = 0; i < 128; ++i) CHECK(bit_of(words, i) == (i == 0 || i == 63 || i == 65 || i == 112));
}

TEST("hyperdimensional memory: keys, banks, counters and what is recalled are those of a slow one") {
  Random random(601);
  for (const HyperMemory form :
       {HyperMemory{128, 1, 5, 50, 0.5f, 0}, HyperMemory{128, 4, 6, 52, 0.5f, 0},
        HyperMemory{256, 16, 20240917, 110, 0.5f, 0}, HyperMemory{384, 128, 1, 160, 0.5f, 0}}) {
    const size_t channels = 1 + random.below(40), vocabulary = 2 + random.below(50);
    const HyperSpace space(form, channels, vocabulary);
    const Slow slow{form, channels, vocabulary};
    std::vector<int8_t> banks(form.banks * form.bits, 0), slow_banks = banks;
    std::vector<std::vector<int8_t>> seen;
    size_t hits = 0;
    const auto recalls = [&](const std::vector<int8_t>& hidden) {
      const auto key = space.key(hidden);
      CHECK(bits_of(key) == slow.key(hidden));
      CHECK(space.bank_of(key) == slow.bank(slow.key(hidden)));
      const auto got = space.recall(banks, key), want = slow.recall(slow_banks, slow.key(hidden));
      CHECK(got.found == want.found && got.token == want.token && got.distance == want.distance &&
            got.bank == want.bank && got.hit == want.hit);
      hits += got.hit;
    };
    recalls(std::vector<int8_t>(channels, 0));
    for (int i = 0; i < 12; ++i) {
      auto hidden = near(random, std::vector<int8_t>(channels, 0), i == 0 ? 0 : channels);
      if (i % 3 == 2) hidden = near(random, seen[random.below(seen.size())], 1);
      const auto token = static_cast<int32_t>(random.below(vocabulary));
      CHECK(space.bind(banks, space.key(hidden), token) == slow.bank(slow.key(hidden)));
      slow.bind(slow_banks, slow.key(hidden), static_cast<size_t>(token));
      CHECK(banks == slow_banks);
      seen.push_back(hidden);
      recalls(hidden);
      recalls(near(random, hidden, 1 + random.below(3)));
    }
    CHECK(hits > 5);
  }
}

TEST("hyperdimensional memory: counters stop at ±127, however often a token is bound") {
  const HyperMemory form{128, 2, 9, 50, 0.5f, 0};
  const HyperSpace space(form, 5, 11);
  const Slow slow{form, 5, 11};
  const std::vector<int8_t> hidden{3, -100, 0, 127, -1};
  std::vector<int8_t> banks(2 * 128, 0), slow_banks = banks;
  for (int i = 0; i < 300; ++i) {
    space.bind(banks, space.key(hidden), 7);
    slow.bind(slow_banks, slow.key(hidden), 7);
  }
  CHECK(banks == slow_banks);
  const size_t bank = space.bank_of(space.key(hidden));
  for (size_t b = 0; b < 128; ++b) CHECK(std::abs(banks[bank * 128 + b]) == 127 && banks[(1 - bank) * 128 + b] == 0);
  const auto recalled = space.recall(banks, space.key(hidden));
  CHECK(recalled.found && recalled.hit && recalled.token == 7 && recalled.distance == 0 && recalled.bank == bank);
}

}  // namespace continuo::test::hyper_memory_test
