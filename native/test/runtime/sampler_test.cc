#include "runtime/sampling/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <set>

#include "backends/cpu/kernels/kernels.h"
#include "runtime/model/philox.h"
#include "runtime/state/chain.h"
#include "test/check.h"

namespace continuo::test::sampler_test {

static const Kernels& fastest = *runnable_kernels().front();

TEST("Philox4x32-10 gives the known answers published with it (Random123, kat_vectors)") {
  CHECK((philox({0, 0, 0, 0}, {0, 0}) == std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t f = 0xffffffff;
  CHECK((philox({f, f, f, f}, {f, f}) == std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  CHECK((philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
         std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST("sampling: greedy takes the largest logit, the lowest id on a tie") {
  const std::vector<float> logits{1, 3, -2, 3, 0};
  CHECK(sample(fastest, logits, {0, 0, 1, 7}, 99) == 1);
}

TEST("sampling: frequencies follow the softmax at that temperature") {
  const std::vector<float> logits{0, 1, 2, -1, 0.5f};
  const float temperature = 0.7f;
  std::array<double, 5> p{}, seen{};
  double sum = 0;
  for (size_t i = 0; i < 5; ++i) sum += p[i] = std::exp(logits[i] / temperature);
  constexpr int draws = 200000;
  for (int i = 0; i < draws; ++i)
    seen[static_cast<size_t>(sample(fastest, logits, {temperature, 0, 1, 5}, static_cast<uint64_t>(i)))] += 1;
  double chi = 0;
  for (size_t i = 0; i < 5; ++i) chi += std::pow(seen[i] - draws * p[i] / sum, 2) / (draws * p[i] / sum);
  CHECK(chi < 23.5);  // χ² with 4 degrees of freedom exceeds this once in 10 000
}

TEST("sampling: top-k and top-p keep what they say, ties by id") {
  const std::vector<float> logits{std::log(0.1f), std::log(0.4f), std::log(0.2f), std::log(0.2f), std::log(0.1f)};
  const auto support = [&](uint32_t top_k, double top_p) {
    std::set<int32_t> out;
    for (uint64_t i = 0; i < 4000; ++i) out.insert(sample(fastest, logits, {1, top_k, top_p, 3}, i));
    return out;
  };
  CHECK((support(1, 1) == std::set<int32_t>{1}));
  CHECK((support(2, 1) == std::set<int32_t>{1, 2}));
  CHECK((support(3, 1) == std::set<int32_t>{1, 2, 3}));
  CHECK((support(0, 0.39) == std::set<int32_t>{1}));
  CHECK((support(0, 0.55) == std::set<int32_t>{1, 2}));
  CHECK((support(0, 0.85) == std::set<int32_t>{0, 1, 2, 3}));
  CHECK((support(3, 0.99) == std::set<int32_t>{1, 2, 3}));
  CHECK(support(99, 1).size() == 5);
}

TEST("sampling: min-p keeps what is likely enough beside the likeliest, with and without an order of candidates") {
  const std::vector<float> logits{std::log(0.1f), std::log(0.4f), std::log(0.2f), std::log(0.2f), std::log(0.09f)};
  const auto support = [&](float min_p, uint32_t top_k, double top_p, float temperature) {
    std::set<int32_t> out;
    for (uint64_t i = 0; i < 4000; ++i) out.insert(sample(fastest, logits, {temperature, top_k, top_p, 3, min_p}, i));
    return out;
  };
  CHECK((support(0.24f, 0, 1, 1) == std::set<int32_t>{0, 1, 2, 3}));
  CHECK((support(0.3f, 0, 1, 1) == std::set<int32_t>{1, 2, 3}));
  CHECK((support(1, 0, 1, 1) == std::set<int32_t>{1}));
  CHECK((support(0.3f, 2, 1, 1) == std::set<int32_t>{1, 2}));
  CHECK((support(0.3f, 0, 0.55, 1) == std::set<int32_t>{1, 2}));
  // Temperature comes first: the likeliest is twice as likely as the next, with T = 1/4 sixteen times.
  CHECK((support(0.3f, 0, 1, 0.25f) == std::set<int32_t>{1}));
  CHECK(sample(fastest, logits, {0, 0, 1, 7, 1}, 99) == 1);
}

// The rule of docs/formats.md for one token.
static float shaped_one(float l, int32_t token, const Shaping& shaping, const std::vector<bool>& allowed) {
  constexpr float most = 3.402823466e+38f;
  const auto within = [](float x) { return x > most ? most : x < -most ? -most : x; };
  for (const auto& [id, bias] : shaping.bias) {
    if (id == token) l = within(l + bias);
  }
  const auto found = shaping.counts.find(token);
  if (found != shaping.counts.end() && shaping.penalises()) {
    volatile float x = l > 0 ? l / shaping.repetition : l * shaping.repetition;
    volatile const float often = static_cast<float>(found->second) * shaping.frequency;
    x = x - often;
    x = x - shaping.presence;
    l = within(x);
  }
  return allowed[static_cast<size_t>(token)] ? l : -HUGE_VALF;
}

TEST("shaping: bias, penalties and what is allowed are the written rule, token by token") {
  test::Random random(31);
  for (const size_t n : std::vector<size_t>{1, 63, 64, 65, 130, 1000}) {
    for (int round = 0; round < 20; ++round) {
      std::vector<float> logits(n);
      for (auto& l : logits) l = random.uniform(-20, 20);
      if (round == 1) logits[0] = 3e38f;
      if (round == 2) logits[0] = -3e38f;
      Shaping shaping{{}, random.uniform(0.5f, 1.5f), random.uniform(-2, 2), random.uniform(-2, 2)};
      if (round == 3) shaping.repetition = 0.01f;
      std::set<int32_t> biased;
      for (size_t i = 0; i < random.below(8); ++i) biased.insert(static_cast<int32_t>(random.below(n)));
      for (const int32_t id : biased) shaping.bias.emplace_back(id, random.uniform(-100, 100));
      shaping.counts[0] = 3;
      for (size_t i = 0; i < random.below(40); ++i) shaping.drawn(static_cast<int32_t>(random.below(n)));
      std::vector<bool> may(n, true);
      std::vector<uint64_t> words;
      if (round % 2 == 0) {
        words.assign((n + 63) / 64, ~uint64_t{0});
        for (size_t i = 0; i < n; ++i) {
          may[i] = random.below(3) > 0;
          if (!may[i]) words[i / 64] &= ~(uint64_t{1} << (i % 64));
        }
      }
      std::vector<float> held;
      const auto out = shaped(logits, shaping, words, held);
      for (size_t i = 0; i < n; ++i) {
        const float want = shaped_one(logits[i], static_cast<int32_t>(i), shaping, may);
        CHECK(std::bit_cast<uint32_t>(out[i]) == std::bit_cast<uint32_t>(want));
        CHECK(!std::isnan(out[i]));
      }
    }
  }
}

TEST("shaping: a request that changes nothing draws from the very logits") {
  const std::vector<float> logits{1, 2, 3};
  std::vector<float> held;
  Shaping counted;
  counted.counts[1] = 5;
  CHECK(shaped(logits, {}, {}, held).data() == logits.data());
  CHECK(shaped(logits, counted, {}, held).data() == logits.data());
  counted.drawn(2);
  CHECK(counted.counts.size() == 1);
  CHECK(held.empty());
}

TEST("what is not allowed is never drawn, greedy or not") {
  std::vector<float> logits(200);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i % 7);
  std::vector<uint64_t> words(4, 0);
  for (const size_t id : {3u, 64u, 131u}) words[id / 64] |= uint64_t{1} << (id % 64);
  std::vector<float> held;
  const auto out = shaped(logits, {}, words, held);
  std::set<int32_t> seen;
  for (uint64_t i = 0; i < 2000; ++i) seen.insert(sample(fastest, out, {1, 0, 1, 4}, i));
  CHECK((seen == std::set<int32_t>{3, 64, 131}));
  CHECK(sample(fastest, out, {1, 0, 0.1, 4}, 0) == 131);
  CHECK(sample(fastest, out, {0, 0, 1, 0}, 0) == 131);
}

TEST("the largest logits are those of a full sort, ties by id") {
  test::Random random(32);
  for (const size_t n : std::vector<size_t>{1, 5, 50, 300}) {
    std::vector<float> logits(n);
    for (auto& l : logits) l = static_cast<float>(random.below(9)) - 4;
    if (n > 2) logits[1] = -0.0f, logits[2] = 0.0f;
    std::vector<int32_t> ids(n);
    for (size_t i = 0; i < n; ++i) ids[i] = static_cast<int32_t>(i);
    std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
      return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
    });
    for (const size_t count : std::vector<size_t>{0, 1, 7, 20}) {
      const std::vector<int32_t> want(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(std::min(count, n)));
      CHECK(largest(logits, count) == want);
    }
  }
}

TEST("sampling: a draw depends on seed and pulse alone") {
  const std::vector<float> logits(50, 0.0f);
  std::set<int32_t> by_pulse, by_seed;
  for (uint64_t i = 0; i < 40; ++i) {
    CHECK(sample(fastest, logits, {1, 0, 1, 9}, i) == sample(fastest, logits, {1, 0, 1, 9}, i));
    by_pulse.insert(sample(fastest, logits, {1, 0, 1, 9}, i));
    by_seed.insert(sample(fastest, logits, {1, 0, 1, i}, 0));
  }
  CHECK(by_pulse.size() > 15 && by_seed.size() > 15);
}

TEST("surprisal is −ln softmax, also for logits that would overflow exp") {
  const std::vector<float> logits{1000, 999, 998.5f, 0};
  double sum = 0;
  for (const float x : logits) sum += std::exp(double{x} - 1000);
  for (int32_t i = 0; i < 4; ++i)
    CHECK(std::abs(surprisal(fastest, logits, i) - (1000 - double{logits[static_cast<size_t>(i)]} + std::log(sum))) <
          1e-3);
}

TEST("chain: the written rule, its text form, and that every bit and the order count") {
  Chain fresh;
  CHECK(fresh.hex() == "243f6a8885a308d313198a2e03707344");
  CHECK(*Chain::from_hex(fresh.hex()) == fresh);
  CHECK(!Chain::from_hex("243F6A8885A308D313198A2E03707344"));
  CHECK(!Chain::from_hex("243f"));
  const auto after = [](std::vector<std::pair<int32_t, std::vector<float>>> pulses) {
    Chain chain;
    for (const auto& [token, hidden] : pulses) chain.pulse(token, hidden);
    return chain.hex();
  };
  // Vectors of one length, as in any one model: values, signs, order of channels, of pulses, and tokens.
  const std::vector<std::string> all{after({}),
                                     after({{0, {0, 0}}}),
                                     after({{0, {-0.0f, 0}}}),
                                     after({{1, {0, 0}}}),
                                     after({{0, {0, 1}}}),
                                     after({{0, {1, 0}}}),
                                     after({{0, {std::nextafter(1.0f, 2.0f), 0}}}),
                                     after({{0, {1, 0}}, {0, {2, 0}}}),
                                     after({{0, {2, 0}}, {0, {1, 0}}}),
                                     after({{0, {0, 0}}, {0, {0, 0}}})};
  CHECK(std::set<std::string>(all.begin(), all.end()).size() == all.size());
  Chain reset;
  reset.reset();
  CHECK(!(reset == fresh));
  // By hand, for one pulse of token 3 and hidden vector [1]: fold(1), fold(3), fold(0x3f800000).
  uint64_t a = 0x243F6A8885A308D3u, b = 0x13198A2E03707344u;
  for (const uint64_t word : {uint64_t{1}, uint64_t{3}, uint64_t{0x3f800000}}) {
    const uint64_t x = (a ^ word) * 0x9E3779B97F4A7C15u;
    a = x << 29 | x >> 35;
    const uint64_t y = (b + a) * 0xC2B2AE3D27D4EB4Fu;
    b = (y << 31 | y >> 33) ^ word;
  }
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(a),
                static_cast<unsigned long long>(b));
  CHECK(after({{3, {1}}}) == text);
}

}  // namespace continuo::test::sampler_test
