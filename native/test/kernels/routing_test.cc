#include "test/kernel_inputs.h"
#include "test/kernels/reference.h"

namespace continuo::test::routing_test {

namespace {

float greatest(const std::vector<float>& x) {
  float most = -INFINITY;
  for (const float value : x) most = value > most ? value : most;
  return most;
}

std::vector<float> normalised(const std::vector<float>& x) {
  const float sum = ordered_sum(x.size(), [&](float acc, size_t i) { return acc + x[i]; });
  std::vector<float> out;
  for (const float value : x) out.push_back(value / sum);
  return out;
}

using Rows = void (*Kernels::*)(const float*, float*, size_t, size_t);

// A kernel over rows, in two calls.
std::vector<float> run(Random& random, const Kernels* table, Rows kernel, const std::vector<float>& values, size_t n) {
  Slice x(values, random.below(17)), y(values.size(), random.below(17));
  const size_t rows = values.size() / n, middle = random.below(rows + 1);
  (table->*kernel)(x.data(), y.data(), middle, n);
  (table->*kernel)(x.data() + middle * n, y.data() + middle * n, rows - middle, n);
  CHECK(y.fences_stand());
  return y.values();
}

std::vector<float> row_of(const std::vector<float>& values, size_t row, size_t n) {
  return {values.begin() + static_cast<ptrdiff_t>(row * n), values.begin() + static_cast<ptrdiff_t>((row + 1) * n)};
}

}  // namespace

TEST("scale: every table gives x · factor, rounded once") {
  Random random(301);
  for (int round = 0; round < 60; ++round) {
    const size_t n = some_length(random);
    const auto x = every_kind(random, n);
    const float factor = random.uniform(-30, 30);
    for (const auto* table : tables()) {
      Slice in(x, random.below(17)), out(n, random.below(17));
      table->scale(in.data(), factor, out.data(), n);
      CHECK(out.fences_stand());
      const auto got = out.values();
      for (size_t i = 0; i < n; ++i) CHECK(same(got[i], static_cast<float>(double{x[i]} * double{factor})));
    }
  }
}

TEST("softmax and normalise: every table gives the bits of the written rule, for any length, rows and kind of number") {
  Random random(302);
  for (int round = 0; round < 80; ++round) {
    const size_t n = some_length(random), rows = 1 + random.below(4);
    const auto x = round % 2 ? every_kind(random, rows * n) : random.floats(rows * n, -20, 20);
    std::vector<float> shares, sums;
    for (size_t row = 0; row < rows; ++row) {
      auto own = row_of(x, row, n);
      for (const float share : normalised(own)) sums.push_back(share);
      const float most = greatest(own);
      for (auto& value : own) value = reference::exp(value - most);
      for (const float share : normalised(own)) shares.push_back(share);
    }
    for (const auto* table : tables()) {
      CHECK(same(run(random, table, &Kernels::softmax_rows, x, n), shares));
      CHECK(same(run(random, table, &Kernels::normalise, x, n), sums));
    }
  }
}

TEST("softmax: within the derived error of the exact one, and a row that holds NaN is NaN") {
  Random random(303);
  for (int round = 0; round < 40; ++round) {
    const size_t n = some_length(random);
    auto x = random.floats(n, -30, 30);
    double sum = 0;
    for (const float value : x) sum += std::exp(double{value} - greatest(x));
    for (const auto* table : tables()) {
      const auto got = run(random, table, &Kernels::softmax_rows, x, n);
      for (size_t i = 0; i < n; ++i) {
        const double want = std::exp(double{x[i]} - greatest(x)) / sum;
        // x − max rounds, which e^x feels by its size; exp errs by less than a unit; then the sum and the quotient.
        CHECK(std::abs(got[i] - want) <= want * (sum_error(n) + (60 + 4) * unit));
      }
    }
    x[random.below(n)] = NAN;
    for (const auto* table : tables()) {
      for (const float share : run(random, table, &Kernels::softmax_rows, x, n)) CHECK(std::isnan(share));
    }
  }
}

TEST("combine: every table gives the bits of the written rule, and lies within its rounding of the exact sum") {
  Random random(304);
  for (int round = 0; round < 80; ++round) {
    const size_t n = some_length(random), count = 1 + random.below(round % 4 ? 12 : 64);
    const bool wild = round % 2;
    const auto x = wild ? every_kind(random, count * n) : random.floats(count * n, -3, 3),
               w = wild ? every_kind(random, count) : random.floats(count, 0, 1);
    for (const auto* table : tables()) {
      Slice in(x, random.below(17)), weights(w, random.below(17)), out(n, random.below(17));
      table->combine(in.data(), weights.data(), out.data(), count, n);
      CHECK(out.fences_stand());
      const auto got = out.values();
      for (size_t i = 0; i < n; ++i) {
        float want = 0;
        double exact = 0, size = 0;
        for (size_t k = 0; k < count; ++k) {
          want = std::fma(w[k], x[k * n + i], want);
          exact += double{w[k]} * x[k * n + i];
          size += std::abs(double{w[k]} * x[k * n + i]);
        }
        CHECK(same(got[i], want));
        if (!wild) CHECK(std::abs(got[i] - exact) <= static_cast<double>(count) * unit * size);
      }
    }
  }
}

}  // namespace continuo::test::routing_test
