#include "test/kernels/ulp.h"

#include "test/kernel_inputs.h"

namespace continuo::test::ulp_test {

namespace {

// Every 1021st bit pattern (a prime, so that low bits vary), and all those around the points where something changes.
std::vector<uint32_t> sample(bool phase) {
  std::vector<uint32_t> out;
  for (uint64_t i = 0; i < uint64_t{1} << 32; i += 1021) out.push_back(static_cast<uint32_t>(i));
  std::vector<uint32_t> centres;
  if (phase) {
    for (uint32_t eighth = 0; eighth < 8; ++eighth) centres.push_back(eighth << 29);
  } else {
    // Zero, the least normal number, one, infinity; the borders between ranges of the functions; where e^x overflows,
    // becomes subnormal and becomes 0.
    for (const float x : {0.0f, 0x1p-126f, 1.0f, INFINITY, 0.41421356f, 0.5f, 0.625f, 0.70710678f, 1.41421356f, 2.0f,
                          10.0f, 10.9f, 87.336545f, 88.722839f, 90.0f, 103.97208f, 110.0f}) {
      centres.push_back(std::bit_cast<uint32_t>(x));
      centres.push_back(std::bit_cast<uint32_t>(-x));
    }
  }
  for (const uint32_t centre : centres) {
    for (uint32_t i = 0; i < 512; ++i) out.push_back(centre - 256 + i);
  }
  return out;
}

float at(void (*map)(const float*, float*, size_t), float x) {
  float y = 0;
  map(&x, &y, 1);
  return y;
}

}  // namespace

TEST(
    "elementary functions: every table gives the same bits, within the documented bounds, over all of f32 (sampled; "
    "continuo_ulp takes all)") {
  for (const auto& f : elementary_functions()) {
    const auto inputs = sample(f.phase);
    Measure m(f);
    for (size_t first = 0; first < inputs.size(); first += 4096)
      m.take(f, std::span(inputs).subspan(first, std::min<size_t>(4096, inputs.size() - first)), 16);
    CHECK(m.compared > 0 && m.different == 0);
    const auto hold = [&](const Worst& worst, double least, double bound) {
      if (worst.error >= least && worst.error <= bound) return;
      fail(__FILE__, __LINE__,
           f.name + ": " + std::to_string(worst.error) + " ulp at input " + std::to_string(worst.input) +
               ", expected at most " + std::to_string(bound));
    };
    for (const auto& cell : m.cells) {
      hold(cell.normal, 0.4, f.bound);  // a sample that shows no rounding at all measures nothing
      hold(cell.subnormal, 0, f.subnormal_bound);
    }
  }
}

TEST("elementary functions at the ends of their domains") {
  const float tiny = 0x1p-149f, huge = 0x1.fffffep+127f;
  for (const auto* k : tables()) {
    for (const auto map :
         {k->exp, k->log, k->tanh, k->sigmoid, k->decay, k->silu, k->gelu, k->gelu_erf, k->softplus, k->relu2})
      CHECK(std::isnan(at(map, NAN)) && std::isnan(at(map, -NAN)));
    CHECK(at(k->exp, 0) == 1 && at(k->exp, -0.0f) == 1 && at(k->exp, INFINITY) == INFINITY &&
          at(k->exp, huge) == INFINITY);
    CHECK(at(k->exp, 88.72283f) < INFINITY && at(k->exp, 88.72284f) == INFINITY);
    CHECK(same(at(k->exp, -INFINITY), 0) && same(at(k->exp, -huge), 0) && at(k->exp, -103.972f) == tiny &&
          same(at(k->exp, -103.973f), 0));
    CHECK(same(at(k->log, 1), 0) && at(k->log, 0) == -INFINITY && at(k->log, -0.0f) == -INFINITY &&
          at(k->log, INFINITY) == INFINITY);
    CHECK(std::isnan(at(k->log, -tiny)) && std::isnan(at(k->log, -1)) && std::isnan(at(k->log, -INFINITY)));
    CHECK(same(at(k->tanh, 0), 0) && same(at(k->tanh, -0.0f), -0.0f) && at(k->tanh, INFINITY) == 1 &&
          at(k->tanh, -INFINITY) == -1 && at(k->tanh, -tiny) == -tiny);
    CHECK(at(k->sigmoid, 0) == 0.5f && at(k->sigmoid, INFINITY) == 1 && same(at(k->sigmoid, -INFINITY), 0) &&
          at(k->sigmoid, -103.972f) == tiny);
    CHECK(at(k->decay, -INFINITY) == 1 && at(k->decay, INFINITY) == at(k->decay, huge));
    for (const auto gate : {k->silu, k->gelu, k->gelu_erf}) {
      CHECK(same(at(gate, 0), 0) && same(at(gate, -0.0f), -0.0f) && at(gate, INFINITY) == INFINITY &&
            at(gate, huge) == huge);
      CHECK(same(at(gate, -INFINITY), -0.0f) && same(at(gate, -huge), -0.0f));
    }
    CHECK(at(k->softplus, 0) == 0.693147181f && at(k->softplus, INFINITY) == INFINITY &&
          same(at(k->softplus, -INFINITY), 0) && at(k->softplus, huge) == huge);
    CHECK(at(k->softplus, -103.972f) == tiny);
  }
}

TEST("tanh is odd; sigmoid and softplus agree with their mirror images within their bounds") {
  Random random(45);
  for (const auto* k : tables()) {
    for (int i = 0; i < 20000; ++i) {
      const float x = random.uniform(0, 20);
      CHECK(at(k->tanh, -x) == -at(k->tanh, x));
      // Either has an error of at most 1.8 units, of 2⁻²⁴ for σ(x) ≥ ½ and of at most 2⁻²⁵ for σ(−x) ≤ ½.
      CHECK(std::abs(double{at(k->sigmoid, x)} + at(k->sigmoid, -x) - 1) <= 1.8 * (0x1p-24 + 0x1p-25));
      // softplus(x) − softplus(−x) = x; 1.9 units are at most 1.9·2⁻²³ of the number.
      const double larger = at(k->softplus, x), smaller = at(k->softplus, -x);
      CHECK(std::abs(larger - smaller - x) <= 1.9 * 0x1p-23 * (larger + smaller));
    }
  }
}

TEST("sincos_phase: eight-fold symmetry is exact, whole vectors and single numbers agree, and the circle closes") {
  Random random(46);
  for (const auto run : runnable_phases()) {
    const auto both = [&](uint32_t phase) {
      float s = 0, c = 0;
      run(&phase, &s, &c, 1);
      return std::pair{s, c};
    };
    const float half = std::bit_cast<float>(0x3F3504F3);  // the f32 nearest to √½
    CHECK(both(0) == std::pair(0.0f, 1.0f) && both(1u << 30) == std::pair(1.0f, 0.0f) &&
          both(1u << 31) == std::pair(0.0f, -1.0f) && both(3u << 30) == std::pair(-1.0f, 0.0f));
    CHECK(both(1u << 29) == std::pair(half, half) && both(3u << 29) == std::pair(half, -half) &&
          both(5u << 29) == std::pair(-half, -half));
    for (int i = 0; i < 20000; ++i) {
      const auto phase = static_cast<uint32_t>(random.next());
      const auto [s, c] = both(phase);
      CHECK(both(0 - phase) == std::pair(-s, c));
      CHECK(both((1u << 31) - phase) == std::pair(s, -c));
      CHECK(both((1u << 30) - phase) == std::pair(c, s));
      CHECK(both((1u << 30) + phase) == std::pair(c, -s));
      // Either error is below 0.8 units of at most 2⁻²⁴.
      CHECK(std::abs(double{s} * s + double{c} * c - 1) <= 2 * 0.8 * 0x1p-24 * (std::abs(s) + std::abs(c)));
    }
    std::vector<uint32_t> phases(1021);
    for (auto& phase : phases) phase = static_cast<uint32_t>(random.next());
    Slice sin(phases.size(), 3), cos(phases.size(), 5);
    run(phases.data(), sin.data(), cos.data(), phases.size());
    CHECK(sin.fences_stand() && cos.fences_stand());
    for (size_t i = 0; i < phases.size(); ++i) CHECK(both(phases[i]) == std::pair(sin.values()[i], cos.values()[i]));
  }
}

}  // namespace continuo::test::ulp_test
