#include "test/kernel_inputs.h"

namespace continuo::test::norm_test {

namespace {

struct Shape {
  size_t rows, groups, n;  // a row is `groups` groups of n channels
  size_t channels() const { return groups * n; }
  size_t floats() const { return rows * channels(); }
};

Shape some_shape(Random& random) { return {1 + random.below(4), 1 + random.below(3), some_length(random)}; }

// The rules of norm.h, one number at a time.
std::vector<float> norm_rule(const Shape& s, const std::vector<float>& x, const std::vector<float>& weight,
                             const std::vector<float>& bias, float eps) {
  std::vector<float> y(s.floats());
  for (size_t first = 0; first < s.floats(); first += s.n) {
    const float* in = &x[first];
    const float mean = ordered_sum(s.n, [&](float acc, size_t i) { return acc + in[i]; }) / static_cast<float>(s.n);
    const float spread =
        ordered_sum(s.n, [&](float acc, size_t i) { return std::fma(in[i] - mean, in[i] - mean, acc); });
    const float scale = 1.0f / std::sqrt(spread / static_cast<float>(s.n) + eps);
    for (size_t i = 0; i < s.n; ++i) {
      const size_t channel = first % s.channels() + i;
      y[first + i] = std::fma((in[i] - mean) * scale, weight[channel], bias[channel]);
    }
  }
  return y;
}

std::vector<float> l2norm_rule(const Shape& s, const std::vector<float>& x, float floor) {
  std::vector<float> y(s.floats());
  for (size_t first = 0; first < s.floats(); first += s.n) {
    const float length =
        std::sqrt(ordered_sum(s.n, [&](float acc, size_t i) { return std::fma(x[first + i], x[first + i], acc); }));
    for (size_t i = first; i < first + s.n; ++i) y[i] = x[i] / (length < floor ? floor : length);
  }
  return y;
}

std::vector<float> rmsnorm_rule(const Shape& s, const std::vector<float>& x, const std::vector<float>& weight,
                                float eps) {
  std::vector<float> y(s.floats());
  for (size_t first = 0; first < s.floats(); first += s.n) {
    const float square =
        ordered_sum(s.n, [&](float acc, size_t i) { return std::fma(x[first + i], x[first + i], acc); });
    const float scale = 1.0f / std::sqrt(square / static_cast<float>(s.n) + eps);
    for (size_t i = first; i < first + s.n; ++i) y[i] = x[i] * scale * weight[i % s.channels()];
  }
  return y;
}

std::vector<float> unit_rule(const Shape& s, const std::vector<float>& x, float eps) {
  std::vector<float> y(s.floats());
  for (size_t first = 0; first < s.floats(); first += s.n) {
    const float scale =
        1.0f /
        std::sqrt(ordered_sum(s.n, [&](float acc, size_t i) { return std::fma(x[first + i], x[first + i], acc); }) +
                  eps);
    for (size_t i = first; i < first + s.n; ++i) y[i] = x[i] * scale;
  }
  return y;
}

struct Bonus {
  std::vector<float> y, r, k, u, v;
};

std::vector<float> bonus_rule(const Shape& s, const Bonus& b) {
  std::vector<float> out(s.floats());
  for (size_t first = 0; first < s.floats(); first += s.n) {
    const size_t channel = first % s.channels();
    const float score = ordered_sum(
        s.n, [&](float acc, size_t i) { return std::fma(b.r[first + i] * b.k[first + i], b.u[channel + i], acc); });
    for (size_t i = first; i < first + s.n; ++i) out[i] = std::fma(score, b.v[i], b.y[i]);
  }
  return out;
}

// Runs `kernel(in, out, row, rows)` on slices that start anywhere, the rows in two parts, and returns what it wrote.
template <class Run> std::vector<float> by_rows(Random& random, const Shape& s, Run run) {
  Slice out(s.floats(), random.below(17));
  const size_t middle = random.below(s.rows + 1);
  run(out.data(), size_t{0}, middle);
  run(out.data() + middle * s.channels(), middle, s.rows - middle);
  CHECK(out.fences_stand());
  return out.values();
}

std::vector<float> run_norm(Random& random, const Kernels* k, const Shape& s, const std::vector<float>& x,
                            const std::vector<float>& weight, const std::vector<float>& bias, float eps) {
  Slice in(x, random.below(17)), w(weight, random.below(17)), b(bias, random.below(17));
  return by_rows(random, s, [&](float* out, size_t row, size_t rows) {
    k->norm(in.data() + row * s.channels(), w.data(), b.data(), out, rows, s.channels(), s.groups, eps);
  });
}

std::vector<float> run_l2norm(Random& random, const Kernels* k, const Shape& s, const std::vector<float>& x,
                              float floor) {
  Slice in(x, random.below(17));
  return by_rows(random, s, [&](float* out, size_t row, size_t rows) {
    k->l2norm(in.data() + row * s.channels(), out, rows, s.channels(), s.groups, floor);
  });
}

std::vector<float> run_rmsnorm(Random& random, const Kernels* k, const Shape& s, const std::vector<float>& x,
                               const std::vector<float>& weight, float eps) {
  Slice in(x, random.below(17)), w(weight, random.below(17));
  return by_rows(random, s, [&](float* out, size_t row, size_t rows) {
    k->rmsnorm(in.data() + row * s.channels(), w.data(), out, rows, s.channels(), s.groups, eps);
  });
}

std::vector<float> run_unit(Random& random, const Kernels* k, const Shape& s, const std::vector<float>& x, float eps) {
  Slice in(x, random.below(17));
  return by_rows(random, s, [&](float* out, size_t row, size_t rows) {
    k->unit(in.data() + row * s.channels(), out, rows, s.channels(), s.groups, eps);
  });
}

std::vector<float> run_bonus(Random& random, const Kernels* k, const Shape& s, const Bonus& b) {
  Slice y(b.y, random.below(17)), r(b.r, random.below(17)), kk(b.k, random.below(17)), u(b.u, random.below(17)),
      v(b.v, random.below(17));
  return by_rows(random, s, [&](float* out, size_t row, size_t rows) {
    const size_t at = row * s.channels();
    k->bonus(y.data() + at, r.data() + at, kk.data() + at, u.data(), v.data() + at, out, rows, s.channels(), s.groups);
  });
}

}  // namespace

TEST(
    "norm, l2norm, rmsnorm, unit and bonus: every table gives the bits of the written rule, for any shape, alignment, "
    "split of rows and kind of number") {
  Random random(51);
  for (int round = 0; round < 200; ++round) {
    const Shape s = some_shape(random);
    const auto values = [&](size_t n) { return round % 2 ? every_kind(random, n) : random.floats(n, -3, 3); };
    const auto x = values(s.floats()), weight = values(s.channels()), bias = values(s.channels());
    const Bonus b{values(s.floats()), values(s.floats()), values(s.floats()), values(s.channels()), values(s.floats())};
    const auto normed = norm_rule(s, x, weight, bias, 1e-5f), unit_length = l2norm_rule(s, x, 1e-12f),
               added = bonus_rule(s, b);
    const auto scaled = rmsnorm_rule(s, x, weight, 1e-5f), unit_root = unit_rule(s, x, 1e-6f);
    for (const auto* k : tables()) {
      CHECK(same(run_norm(random, k, s, x, weight, bias, 1e-5f), normed));
      CHECK(same(run_l2norm(random, k, s, x, 1e-12f), unit_length));
      CHECK(same(run_bonus(random, k, s, b), added));
      CHECK(same(run_rmsnorm(random, k, s, x, weight, 1e-5f), scaled));
      CHECK(same(run_unit(random, k, s, x, 1e-6f), unit_root));
    }
  }
}

TEST("norm: within the derived error of the exact one") {
  Random random(52);
  for (int round = 0; round < 100; ++round) {
    const Shape s = some_shape(random);
    const float eps = round % 2 ? 1e-5f : 64e-5f, centre = random.uniform(-4, 4);
    auto x = of_any_size(random, s.floats());
    for (auto& value : x) value += centre;
    const auto weight = of_any_size(random, s.channels()), bias = of_any_size(random, s.channels());
    for (const auto* k : tables()) {
      const auto y = run_norm(random, k, s, x, weight, bias, eps);
      for (size_t first = 0; first < s.floats(); first += s.n) {
        double mean = 0, size = 0, variance = 0;
        for (size_t i = 0; i < s.n; ++i) mean += x[first + i], size += std::abs(x[first + i]);
        mean /= static_cast<double>(s.n);
        for (size_t i = 0; i < s.n; ++i) variance += (x[first + i] - mean) * (x[first + i] - mean);
        variance = variance / static_cast<double>(s.n) + double{eps};
        // The mean m' = m + e: the error of the sum and one division. Around m' the variance is larger by e² exactly,
        // and it has the error of its sum, of a squared difference (2u), a division and an addition; a root halves
        // that, and it and the inverse add u each.
        const double e = (sum_error(s.n) + unit) * size / static_cast<double>(s.n);
        const double scale = 1 / std::sqrt(variance),
                     scale_error = 0.5 * (e * e / variance + sum_error(s.n) + 4 * unit) + 2 * unit;
        for (size_t i = 0; i < s.n; ++i) {
          const size_t channel = first % s.channels() + i;
          const double d = x[first + i] - mean, w = weight[channel], want = d * scale * w + bias[channel];
          // The difference and its product with the scale are rounded (2u), then the result.
          const double bound =
              std::abs(w) * scale * (e + std::abs(d) * (scale_error + 2 * unit)) + unit * std::abs(want);
          CHECK(std::abs(y[first + i] - want) <= 1.01 * bound);
        }
      }
    }
  }
}

TEST("l2norm: within the derived error of the exact one; shorter than the floor it divides by the floor") {
  Random random(53);
  for (int round = 0; round < 100; ++round) {
    const Shape s = some_shape(random);
    auto x = of_any_size(random, s.floats());
    if (round % 3 == 0)
      for (auto& value : x) value *= 1e-16f;
    for (const auto* k : tables()) {
      const auto y = run_l2norm(random, k, s, x, 1e-12f);
      for (size_t first = 0; first < s.floats(); first += s.n) {
        double square = 0;
        for (size_t i = first; i < first + s.n; ++i) square += double{x[i]} * x[i];
        const double divisor = std::fmax(std::sqrt(square), double{1e-12f});
        // The root halves the error of the sum; root and quotient add u each.
        for (size_t i = first; i < first + s.n; ++i)
          CHECK(std::abs(y[i] - x[i] / divisor) <= 1.01 * (0.5 * sum_error(s.n) + 2 * unit) * std::abs(x[i] / divisor));
      }
    }
  }
}

TEST("bonus: within the derived error of the exact one") {
  Random random(54);
  for (int round = 0; round < 100; ++round) {
    const Shape s = some_shape(random);
    const auto values = [&](size_t n) { return of_any_size(random, n); };
    const Bonus b{values(s.floats()), values(s.floats()), values(s.floats()), values(s.channels()), values(s.floats())};
    for (const auto* k : tables()) {
      const auto out = run_bonus(random, k, s, b);
      for (size_t first = 0; first < s.floats(); first += s.n) {
        double score = 0, size = 0;
        for (size_t i = 0; i < s.n; ++i) {
          const double term = double{b.r[first + i]} * b.k[first + i] * b.u[first % s.channels() + i];
          score += term;
          size += std::abs(term);
        }
        for (size_t i = first; i < first + s.n; ++i) {
          const double want = b.y[i] + score * b.v[i];
          // One rounding of r·k, the error of the sum, and the rounding of the result.
          CHECK(std::abs(out[i] - want) <=
                1.01 * ((sum_error(s.n) + unit) * size * std::abs(b.v[i]) + unit * std::abs(want)));
        }
      }
    }
  }
}

TEST("rmsnorm and unit: within the derived error of the exact ones") {
  Random random(55);
  for (int round = 0; round < 100; ++round) {
    const Shape s = some_shape(random);
    const float eps = round % 2 ? 1e-6f : 0.1f;
    auto x = of_any_size(random, s.floats());
    if (round % 3 == 0)
      for (auto& value : x) value *= 1e-6f;
    const auto weight = of_any_size(random, s.channels());
    for (const auto* k : tables()) {
      const auto normed = run_rmsnorm(random, k, s, x, weight, eps), directed = run_unit(random, k, s, x, eps);
      for (size_t first = 0; first < s.floats(); first += s.n) {
        double square = 0;
        for (size_t i = first; i < first + s.n; ++i) square += double{x[i]} * x[i];
        const double length = std::sqrt(square + double{eps}),
                     root = std::sqrt(square / static_cast<double>(s.n) + double{eps});
        // The root halves the error of the sum, of a division and of ε; it, the inverse and two products add u each.
        const double error = 1.01 * (0.5 * (sum_error(s.n) + 2 * unit) + 4 * unit);
        for (size_t i = first; i < first + s.n; ++i) {
          const double want = x[i] / root * weight[i % s.channels()];
          CHECK(std::abs(normed[i] - want) <= error * std::abs(want));
          CHECK(std::abs(directed[i] - x[i] / length) <= error * std::abs(x[i] / length));
        }
      }
    }
  }
}

}  // namespace continuo::test::norm_test
