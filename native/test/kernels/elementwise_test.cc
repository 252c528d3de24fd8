#include "test/kernel_inputs.h"
#include "test/kernels/reference.h"
#include "test/kernels/ulp.h"

namespace continuo::test::elementwise_test {

namespace {

using Unary = void (*Kernels::*)(const float*, float*, size_t);

float relu2(float x) {
  const float positive = x < 0 ? 0.0f : x;
  return positive * positive;
}

// Runs an elementwise kernel of `table` on slices that start anywhere, whole and in two parts, and returns the result
// of the parts. `run(in, out, from, count)` gets the slices' first elements.
template <class Run>
std::vector<float> in_parts(Random& random, const std::vector<std::vector<float>>& inputs, Run run) {
  const size_t n = inputs[0].size();
  std::vector<Slice> in;
  for (const auto& values : inputs) in.emplace_back(values, random.below(17));
  Slice whole(n, random.below(17)), parts(n, random.below(17));
  const size_t middle = random.below(n + 1);
  run(in, whole.data(), 0, n);
  run(in, parts.data(), 0, middle);
  run(in, parts.data() + middle, middle, n - middle);
  CHECK(same(whole.values(), parts.values()));
  CHECK(whole.fences_stand() && parts.fences_stand());
  return parts.values();
}

}  // namespace

TEST("add, mul and lerp: IEEE's own results, on every table, for any length, alignment and split") {
  Random random(41);
  for (int round = 0; round < 300; ++round) {
    const size_t n = some_length(random);
    const auto a = every_kind(random, n), b = every_kind(random, n),
               t = round % 2 ? every_kind(random, n) : random.floats(n, 0, 1);
    for (const auto* table : tables()) {
      const auto sum = in_parts(random, {a, b}, [&](auto& in, float* out, size_t at, size_t m) {
        table->add(in[0].data() + at, in[1].data() + at, out, m);
      });
      const auto product = in_parts(random, {a, b}, [&](auto& in, float* out, size_t at, size_t m) {
        table->mul(in[0].data() + at, in[1].data() + at, out, m);
      });
      const auto between = in_parts(random, {a, b, t}, [&](auto& in, float* out, size_t at, size_t m) {
        table->lerp(in[0].data() + at, in[1].data() + at, in[2].data() + at, out, m);
      });
      for (size_t i = 0; i < n; ++i) {
        // Double has more than twice the digits of f32 plus two, so that rounding to double first changes no result.
        CHECK(same(sum[i], static_cast<float>(double{a[i]} + double{b[i]})));
        CHECK(same(product[i], static_cast<float>(double{a[i]} * double{b[i]})));
        CHECK(same(between[i], std::fma(b[i] - a[i], t[i], a[i])));
      }
    }
  }
}

TEST("lerp: a + (b − a)t within the rounding of b − a and of the result") {
  Random random(42);
  for (int round = 0; round < 100; ++round) {
    const size_t n = some_length(random);
    const auto a = of_any_size(random, n), b = of_any_size(random, n), t = random.floats(n, -1, 2);
    for (const auto* table : tables()) {
      std::vector<float> out(n);
      table->lerp(a.data(), b.data(), t.data(), out.data(), n);
      for (size_t i = 0; i < n; ++i) {
        const double way = (double{b[i]} - a[i]) * t[i], want = a[i] + way;
        CHECK(std::abs(out[i] - want) <= 1.01 * unit * (std::abs(way) + std::abs(want)));
      }
    }
  }
}

TEST("the maps: every table gives the bits of the written rule, for any length, alignment, split and kind of number") {
  const std::pair<Unary, float (*)(float)> maps[] = {{&Kernels::tanh, reference::tanh},
                                                     {&Kernels::sigmoid, reference::sigmoid},
                                                     {&Kernels::relu2, relu2},
                                                     {&Kernels::decay, reference::decay},
                                                     {&Kernels::exp, reference::exp},
                                                     {&Kernels::log, reference::log},
                                                     {&Kernels::silu, reference::silu},
                                                     {&Kernels::gelu, reference::gelu},
                                                     {&Kernels::gelu_erf, reference::gelu_erf},
                                                     {&Kernels::softplus, reference::softplus}};
  Random random(43);
  for (int round = 0; round < 200; ++round) {
    const size_t n = some_length(random);
    auto x = round % 2 ? every_kind(random, n) : random.floats(n, -12, 12);
    for (const auto& [map, rule] : maps) {
      for (const auto* table : tables()) {
        const auto got = in_parts(
            random, {x}, [&](auto& in, float* out, size_t at, size_t m) { (table->*map)(in[0].data() + at, out, m); });
        for (size_t i = 0; i < n; ++i) CHECK(same(got[i], rule(x[i])));
      }
    }
  }
}

TEST(
    "elementwise ops, each of the list: every table gives the generic table's bits, for any length, alignment and "
    "split") {
#define CONTINUO_MEMBER(name, cost) &Kernels::name,
  const Unary unary[] = {CONTINUO_UNARY_OPS(CONTINUO_MEMBER)};
  using Binary = void (*Kernels::*)(const float*, const float*, float*, size_t);
  const Binary binary[] = {CONTINUO_BINARY_OPS(CONTINUO_MEMBER)};
#undef CONTINUO_MEMBER
  Random random(46);
  for (int round = 0; round < 50; ++round) {
    const size_t n = some_length(random);
    const auto a = round % 2 ? every_kind(random, n) : random.floats(n, -12, 12), b = every_kind(random, n);
    const auto compare = [&](const std::vector<std::vector<float>>& inputs, const auto& run) {
      const auto of = [&](const Kernels& table) {
        return in_parts(random, inputs, [&](auto& in, float* out, size_t at, size_t m) { run(table, in, out, at, m); });
      };
      const auto want = of(generic_kernels);
      for (const auto* table : tables()) CHECK(same(of(*table), want));
    };
    for (const auto op : unary) {
      compare({a}, [&](const Kernels& table, auto& in, float* out, size_t at, size_t m) {
        (table.*op)(in[0].data() + at, out, m);
      });
    }
    for (const auto op : binary) {
      compare({a, b}, [&](const Kernels& table, auto& in, float* out, size_t at, size_t m) {
        (table.*op)(in[0].data() + at, in[1].data() + at, out, m);
      });
    }
  }
}

TEST("relu2 is the nearest f32 to max(x, 0)², infinite where that is, and keeps NaN") {
  Random random(44);
  const auto x = every_kind(random, 4099);
  for (const auto* table : tables()) {
    std::vector<float> out(x.size());
    table->relu2(x.data(), out.data(), x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      if (std::isnan(x[i]))
        CHECK(std::isnan(out[i]));
      else
        CHECK(out[i] == static_cast<float>(std::pow(std::fmax(double{x[i]}, 0.0), 2)));
    }
  }
}

TEST("clamp: the nearest number between its ends, on every table; NaN stays NaN") {
  Random random(47);
  for (int round = 0; round < 100; ++round) {
    const auto x = every_kind(random, some_length(random));
    const float low = random.uniform(-3, 3), high = low + random.uniform(0, 2);
    for (const auto* table : tables()) {
      const auto got = in_parts(random, {x}, [&](auto& in, float* out, size_t at, size_t m) {
        table->clamp(in[0].data() + at, low, high, out, m);
      });
      for (size_t i = 0; i < x.size(); ++i) CHECK(same(got[i], std::isnan(x[i]) ? x[i] : std::clamp(x[i], low, high)));
    }
  }
}

TEST("range: every table gives the bits of the written rule for any numbers, and stays between its ends") {
  Random random(45);
  for (int round = 0; round < 100; ++round) {
    const size_t n = some_length(random);
    const auto x = round % 2 ? every_kind(random, n) : random.floats(n, -12, 12);
    const float low = random.uniform(-1, 0.5f), high = low + random.uniform(0, 2), span = high - low;
    for (const auto* table : tables()) {
      const auto got = in_parts(random, {x}, [&](auto& in, float* out, size_t at, size_t m) {
        table->range(in[0].data() + at, low, high, out, m);
      });
      for (size_t i = 0; i < n; ++i) {
        CHECK(same(got[i], std::fma(span, reference::sigmoid(x[i]), low)));
        if (std::isnan(x[i])) continue;
        const double want = low + (double{high} - low) / (1 + std::exp(-double{x[i]}));
        CHECK(std::abs(got[i] - want) <= 4 * unit * (std::abs(low) + std::abs(high)));
        // The ends are exact but for the rounding of the span and of the sum.
        CHECK(got[i] >= low && got[i] <= high + 2 * static_cast<float>(unit) * (std::abs(low) + std::abs(high)));
      }
    }
  }
}

}  // namespace continuo::test::elementwise_test
