#include "test/kernel_inputs.h"
#include "test/kernels/reference.h"

namespace continuo::test::conv_rope_test {

namespace {

struct Convolution {
  size_t rows, channels, taps;
  bool silu;
  std::vector<float> x, tail, weights;  // [rows][channels], [taps − 1][channels], [channels][taps]
  std::vector<float> bias;              // [channels], or none
  // Row `at` of the tail's rows followed by x.
  const float* row(size_t at) const { return at < taps - 1 ? &tail[at * channels] : &x[(at - (taps - 1)) * channels]; }
};

Convolution some_convolution(Random& random, size_t channels, bool wild) {
  constexpr size_t widths[] = {2, 3, 4, 7, 33, 64};
  Convolution c{
      1 + random.below(40), channels, widths[random.below(std::size(widths))], random.below(2) == 0, {}, {}, {}, {}};
  const auto values = [&](size_t n) { return wild ? every_kind(random, n) : random.floats(n, -2, 2); };
  c.x = values(c.rows * channels), c.tail = values((c.taps - 1) * channels), c.weights = values(channels * c.taps);
  if (random.below(2)) c.bias = values(channels);
  return c;
}

// Rows in two calls, the second with the tail that the first leaves; channels in two parts.
std::vector<float> run(Random& random, const Kernels* table, const Convolution& c) {
  Slice x(c.x, random.below(17)), weights(c.weights, random.below(17)), bias(c.bias, random.below(17)),
      y(c.rows * c.channels, random.below(17));
  const size_t middle = random.below(c.rows + 1), channel = random.below(c.channels + 1);
  std::vector<float> between;
  for (size_t at = middle; at < middle + c.taps - 1; ++at)
    between.insert(between.end(), c.row(at), c.row(at) + c.channels);
  Slice tail(c.tail, random.below(17)), later(between, random.below(17));
  const auto part = [&](size_t from, size_t rows, Slice& before) {
    const size_t at = from * c.channels;
    const ConvRun job{x.data() + at, before.data(), weights.data(), c.bias.empty() ? nullptr : bias.data(),
                      y.data() + at, rows,          c.channels,     c.taps,
                      c.silu};
    table->conv(job, 0, channel);
    table->conv(job, channel, c.channels);
  };
  part(0, middle, tail);
  part(middle, c.rows - middle, later);
  CHECK(y.fences_stand() && same(tail.values(), c.tail));
  return y.values();
}

struct Turn {
  size_t heads, channels, pairs;
  uint32_t position;
  std::vector<uint32_t> increments;
  std::vector<float> x;
};

Turn some_turn(Random& random, size_t pairs, bool wild) {
  const size_t behind = random.below(3) ? 0 : random.below(40);  // channels that stay
  Turn turn{1 + random.below(4), 2 * pairs + behind, pairs, static_cast<uint32_t>(random.next()), {}, {}};
  if (random.below(4) == 0) turn.position = static_cast<uint32_t>(random.below(3));
  for (size_t i = 0; i < pairs; ++i)
    turn.increments.push_back(static_cast<uint32_t>(random.next()) >> random.below(32));
  const size_t n = turn.heads * turn.channels;
  turn.x = wild ? every_kind(random, n) : random.floats(n, -3, 3);
  return turn;
}

std::vector<float> run(Random& random, const Kernels* table, const Turn& turn) {
  Slice x(turn.x, random.below(17)), y(turn.x.size(), random.below(17));
  table->rope(x.data(), y.data(), turn.heads, turn.channels, turn.pairs, turn.increments.data(), turn.position);
  CHECK(y.fences_stand());
  return y.values();
}

}  // namespace

TEST(
    "conv: every table gives the bits of the written rule, with a bias or without, with silu or without, for any "
    "width, "
    "number of taps, alignment, cut of rows and kind of number") {
  Random random(101);
  for (const size_t channels : {1, 2, 5, 7, 16, 17, 33, 64, 67}) {
    for (int round = 0; round < 8; ++round) {
      const auto c = some_convolution(random, channels, round % 2);
      std::vector<float> want(c.rows * channels);
      for (size_t i = 0; i < want.size(); ++i) {
        float sum = c.bias.empty() ? 0 : c.bias[i % channels];
        for (size_t j = 0; j < c.taps; ++j)
          sum = std::fma(c.weights[i % channels * c.taps + j], c.row(i / channels + j)[i % channels], sum);
        want[i] = c.silu ? reference::silu(sum) : sum;
      }
      for (const auto* table : tables()) CHECK(same(run(random, table, c), want));
    }
  }
}

TEST("conv: within the derived error of the exact one") {
  Random random(102);
  for (int round = 0; round < 40; ++round) {
    const auto c = some_convolution(random, some_length(random) % 70 + 1, false);
    for (const auto* table : tables()) {
      const auto got = run(random, table, c);
      for (size_t i = 0; i < got.size(); ++i) {
        double sum = c.bias.empty() ? 0 : c.bias[i % c.channels], size = std::abs(sum);
        for (size_t j = 0; j < c.taps; ++j) {
          const double term =
              double{c.weights[i % c.channels * c.taps + j]} * c.row(i / c.channels + j)[i % c.channels];
          sum += term, size += std::abs(term);
        }
        // Each fma rounds once. silu's slope is at most 1.1, and it errs by less than 4 units.
        const double want = c.silu ? sum / (1 + std::exp(-sum)) : sum;
        CHECK(std::abs(got[i] - want) <=
              1.1 * static_cast<double>(c.taps) * unit * size + 8 * unit * std::abs(want) + 1e-38);
      }
    }
  }
}

TEST(
    "rope: every table gives the bits of the written rule, for any number of pairs, position, alignment and kind of "
    "number; what lies behind the pairs stays") {
  Random random(103);
  for (const size_t pairs : {1, 2, 3, 5, 7, 8, 16, 17, 32, 33, 64, 67}) {
    for (int round = 0; round < 12; ++round) {
      const auto turn = some_turn(random, pairs, round % 2);
      std::vector<float> want = turn.x;
      for (size_t head = 0; head < turn.heads; ++head) {
        for (size_t i = 0; i < pairs; ++i) {
          const auto [sin, cos] = reference::sincos(turn.increments[i] * turn.position);
          const size_t at = head * turn.channels + i;
          const float a = turn.x[at], b = turn.x[at + pairs];
          want[at] = std::fma(a, cos, -(b * sin));
          want[at + pairs] = std::fma(b, cos, a * sin);
        }
      }
      for (const auto* table : tables()) CHECK(same(run(random, table, turn), want));
    }
  }
}

// How keys that were kept turned become keys as they were: docs/infinite-context.md, section 5.
TEST("rope: turned, and turned back by the negative increments, a key is what it was to two ulp of its pair's length") {
  Random random(105);
  for (int round = 0; round < 60; ++round) {
    const auto turn = some_turn(random, 1 + random.below(70), false);
    for (const auto* table : tables()) {
      auto back = turn;
      back.x = run(random, table, turn);
      for (auto& increment : back.increments) increment = -increment;
      const auto got = run(random, table, back);
      for (size_t at = 0; at < got.size(); ++at) {
        const size_t i = at % turn.channels, first = at - i + i % turn.pairs;
        if (i >= 2 * turn.pairs) continue;
        const double length = std::hypot(double{turn.x[first]}, double{turn.x[first + turn.pairs]});
        const double ulp = std::ldexp(1, length > 0 ? std::ilogb(length) - 23 : -149);
        CHECK(std::abs(double{got[at]} - double{turn.x[at]}) <= 2 * ulp);
      }
    }
  }
}

TEST("rope: a rotation by increments · position turns, within rounding, at any position") {
  Random random(104);
  for (int round = 0; round < 60; ++round) {
    const auto turn = some_turn(random, 1 + random.below(70), false);
    for (const auto* table : tables()) {
      const auto got = run(random, table, turn);
      for (size_t at = 0; at < got.size(); ++at) {
        const size_t i = at % turn.channels;
        if (i >= 2 * turn.pairs) continue;
        const size_t pair = i % turn.pairs, first = at - i + pair;
        const uint64_t phase = uint64_t{turn.increments[pair]} * turn.position % (uint64_t{1} << 32);
        const double angle = static_cast<double>(phase) * 0x1p-32 * 2 * 3.14159265358979323846, a = turn.x[first],
                     b = turn.x[first + turn.pairs];
        const double want =
            i < turn.pairs ? a * std::cos(angle) - b * std::sin(angle) : b * std::cos(angle) + a * std::sin(angle);
        // Sine and cosine err by less than a unit, a product and the fma round.
        CHECK(std::abs(got[at] - want) <= 4 * unit * (std::abs(a) + std::abs(b)));
      }
    }
  }
}

}  // namespace continuo::test::conv_rope_test
