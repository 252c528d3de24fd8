#include "../kernels/cpu/kernels.h"

#include <bit>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "../executor.h"
#include "../linear.h"
#include "image.h"

using namespace continuo;

namespace {

// Every table this CPU can run; the first is the generic one.
std::vector<const Kernels*> tables() {
  auto out = runnable_kernels();
  std::reverse(out.begin(), out.end());
  return out;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) { return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * 4) == 0; }

double ulps(float got, double want) {
  const float near = static_cast<float>(want);
  const double step = std::max<double>(std::abs(std::nextafter(near, INFINITY) - near), 0x1p-149);
  return std::abs(got - want) / step;
}

// Largest error of `function` over a dense sweep of [low, high], in units in the last place.
double worst(void (*function)(const float*, float*, size_t), double (*oracle)(double), float low, float high) {
  double most = 0;
  constexpr int n = 400000;
  for (int i = 0; i <= n; ++i) {
    const float x = low + (high - low) * static_cast<float>(i) / n;
    float y = 0;
    function(&x, &y, 1);
    most = std::max(most, ulps(y, oracle(x)));
  }
  return most;
}

}  // namespace

TEST("exp, log, tanh, sigmoid and decay stay within their error bounds") {
  for (const auto* table : {tables().front()}) {
    CHECK(worst(table->exp, [](double x) { return std::exp(x); }, -87, 88.7f) <= 1.1);
    CHECK(worst(table->exp, [](double x) { return std::exp(x); }, -0.4f, 0.4f) <= 1.0);
    CHECK(worst(table->log, [](double x) { return std::log(x); }, 1.5f, 1e6f) <= 2.0);
    CHECK(worst(table->log, [](double x) { return std::log(x); }, 1e-30f, 0.6f) <= 2.0);
    CHECK(worst(table->log, [](double x) { return std::log(x); }, 0.6f, 1.5f) <= 2.0);
    CHECK(worst(table->tanh, [](double x) { return std::tanh(x); }, -12, 12) <= 2.0);
    CHECK(worst(table->tanh, [](double x) { return std::tanh(x); }, -0.7f, 0.7f) <= 2.0);
    CHECK(worst(table->sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, -80, 80) <= 3.0);
    CHECK(worst(table->decay, [](double x) { return std::exp(-0.60653065971263342 / (1 + std::exp(-x))); }, -30, 30) <= 2.0);
  }
}

TEST("exp keeps zero, overflow, underflow and NaN where they belong") {
  for (const auto* table : tables()) {
    const std::vector<float> x{0, -0.0f, 89, 1e30f, INFINITY, -110, -1e30f, -INFINITY, NAN};
    std::vector<float> y(x.size());
    table->exp(x.data(), y.data(), x.size());
    CHECK(y[0] == 1 && y[1] == 1);
    CHECK(y[2] == INFINITY && y[3] == INFINITY && y[4] == INFINITY);
    CHECK(y[5] == 0 && y[6] == 0 && y[7] == 0);
    CHECK(std::isnan(y[8]));
    const float one = 1;
    float zero = 1;
    table->log(&one, &zero, 1);
    CHECK(zero == 0);
  }
}

TEST("every table gives the same bits for every operation, at any length and offset") {
  test::Random random(4);
  const auto all = tables();
  for (int round = 0; round < 200; ++round) {
    const size_t groups = 1 + random.below(4), width = groups * (1 + random.below(90)), rows = 1 + random.below(4), n = rows * width;
    const float range = round % 2 ? 4.0f : 100.0f;
    const auto a = random.floats(n, -range, range), b = random.floats(n, -3, 3), c = random.floats(n, -1, 1), d = random.floats(n, -1, 1);
    const auto weight = random.floats(width, -1, 1), bias = random.floats(width, -1, 1);
    std::vector<std::vector<float>> first;
    for (const auto* k : all) {
      std::vector<std::vector<float>> out;
      const auto collect = [&](const auto& run) {
        out.emplace_back(n, 0.0f);
        run(out.back().data());
      };
      collect([&](float* y) { k->add(a.data(), b.data(), y, n); });
      collect([&](float* y) { k->mul(a.data(), b.data(), y, n); });
      collect([&](float* y) { k->lerp(a.data(), b.data(), c.data(), y, n); });
      for (const auto unary : {k->tanh, k->sigmoid, k->relu2, k->decay, k->exp}) collect([&](float* y) { unary(a.data(), y, n); });
      collect([&](float* y) { k->norm(a.data(), weight.data(), bias.data(), y, rows, width, groups, 1e-5f); });
      collect([&](float* y) { k->l2norm(b.data(), y, rows, width, groups, 1e-12f); });
      collect([&](float* y) { k->bonus(a.data(), b.data(), c.data(), weight.data(), d.data(), y, rows, width, groups); });
      out.push_back({k->max(a.data(), n), k->sum_exp(b.data(), 3, n)});
      std::vector<float> positive(n);
      for (size_t i = 0; i < n; ++i) positive[i] = std::abs(a[i]) + 0.001f;
      collect([&](float* y) { k->log(positive.data(), y, n); });
      if (first.empty()) first = out;
      for (size_t i = 0; i < out.size(); ++i) CHECK(same_bits(out[i], first[i]));
    }
  }
}

TEST("sums along a row follow the written order and are close to the exact sum") {
  test::Random random(5);
  for (const size_t n : {size_t{1}, size_t{15}, size_t{16}, size_t{17}, size_t{255}, size_t{256}, size_t{257}, size_t{1000}}) {
    const auto x = random.floats(n, -2, 2);
    float total = 0;
    double exact = 0;
    for (size_t block = 0; block < n; block += 256) {
      float partial[16] = {};
      for (size_t i = block; i < std::min(n, block + 256); ++i) {
        float e = 0;
        generic_kernels.exp(&x[i], &e, 1);
        partial[i % 16] += e;
        exact += std::exp(double{x[i]});
      }
      for (size_t half = 8; half > 0; half /= 2) {
        for (size_t lane = 0; lane < half; ++lane) partial[lane] += partial[lane + half];
      }
      total += partial[0];
    }
    for (const auto* table : tables()) CHECK(table->sum_exp(x.data(), 0, n) == total);
    CHECK(std::abs(total - exact) < 1e-5 * exact);
  }
}

TEST("wkv7: every table and every cut gives the same bits, close to double precision") {
  test::Random random(6);
  for (const size_t n : {size_t{1}, size_t{5}, size_t{16}, size_t{40}, size_t{64}}) {
    const size_t tokens = 7;
    const auto r = random.floats(tokens * n, -1, 1), w = random.floats(tokens * n, 0.55f, 1), k = random.floats(tokens * n, -1, 1), v = random.floats(tokens * n, -1, 1),
               a = random.floats(tokens * n, 0, 1), start = random.floats(n * n, -1, 1);
    std::vector<float> kk(tokens * n);
    generic_kernels.l2norm(k.data(), kk.data(), tokens, n, 1, 1e-12f);
    std::vector<double> S(start.begin(), start.end()), want(tokens * n);
    for (size_t t = 0; t < tokens; ++t) {
      for (size_t i = 0; i < n; ++i) {
        double s = 0, y = 0;
        for (size_t m = 0; m < n; ++m) s += S[m * n + i] * kk[t * n + m];
        for (size_t j = 0; j < n; ++j) {
          double& x = S[j * n + i];
          x = x * w[t * n + j] - s * kk[t * n + j] * a[t * n + j] + double{v[t * n + i]} * k[t * n + j];
          y += x * r[t * n + j];
        }
        want[t * n + i] = y;
      }
    }
    std::vector<float> first_y, first_state;
    for (const auto* table : tables()) {
      for (const size_t cut : {tokens, size_t{3}, size_t{1}}) {
        auto state = start;
        std::vector<float> y(tokens * n);
        for (size_t t = 0; t < tokens; t += cut) {
          const size_t at = t * n;
          const Wkv7Run run{state.data(), &r[at], &w[at], &k[at], &v[at], &kk[at], &a[at], &y[at], n, n, std::min(cut, tokens - t)};
          const size_t middle = random.below(n + 1);
          table->wkv7(run, 0, middle);
          table->wkv7(run, middle, n);
        }
        if (first_y.empty()) first_y = y, first_state = state;
        CHECK(same_bits(y, first_y) && same_bits(state, first_state));
      }
    }
    for (size_t i = 0; i < want.size(); ++i) CHECK(std::abs(first_y[i] - want[i]) < 1e-4);
  }
}

TEST("finite sees a single NaN or infinity anywhere") {
  for (const auto* table : tables()) {
    std::vector<float> x(37, 1e38f);
    CHECK(table->finite(x.data(), x.size()));
    for (size_t i = 0; i < x.size(); ++i) {
      for (const float bad : {NAN, INFINITY, -INFINITY}) {
        x[i] = bad;
        CHECK(!table->finite(x.data(), x.size()));
      }
      x[i] = 0;
    }
  }
}

// tools/arm64.mjs compares the printed line between two architectures.
TEST("every operation, product and chain has the bits that the line below sums up, on any architecture") {
  test::Random random(8);
  Chain chain;
  const auto fold = [&](const std::vector<float>& numbers) { chain.pulse(static_cast<int32_t>(numbers.size()), numbers); };
  const auto& k = *runnable_kernels().front();
  constexpr size_t rows = 7, groups = 3, width = 129, n = rows * width;
  const auto a = random.floats(n, -6, 6), b = random.floats(n, -3, 3), c = random.floats(n, 0, 1), weight = random.floats(width, -1, 1), bias = random.floats(width, -1, 1);
  const auto run = [&](const auto& op) {
    std::vector<float> y(n);
    op(y.data());
    fold(y);
  };
  for (const auto unary : {k.tanh, k.sigmoid, k.relu2, k.decay, k.exp}) run([&](float* y) { unary(a.data(), y, n); });
  run([&](float* y) { k.log(c.data(), y, n); });
  run([&](float* y) { k.lerp(a.data(), b.data(), c.data(), y, n); });
  run([&](float* y) { k.norm(a.data(), weight.data(), bias.data(), y, rows, width, groups, 1e-5f); });
  run([&](float* y) { k.l2norm(a.data(), y, rows, width, groups, 1e-12f); });
  run([&](float* y) { k.bonus(a.data(), b.data(), c.data(), weight.data(), b.data(), y, rows, width, groups); });
  fold({k.max(a.data(), n), k.sum_exp(a.data(), 6, n)});
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16, Dtype::q8, Dtype::ternary}) {
    PackedMatrix m{dtype, 100, width, 32, nullptr};
    const bool quantised = dtype == Dtype::q8 || dtype == Dtype::ternary;
    std::vector<uint16_t> weights(quantised ? m.tiles() * m.groups() * m.group_bytes() / 2 : m.tiles() * tile_lanes * m.inputs * size_of(dtype) / 2);
    // Bits whose every reading is a finite number of ordinary size; ternary codes 0 to 2.
    for (auto& bits : weights) bits = static_cast<uint16_t>(0x2AAA & random.next());
    m.data = weights.data();
    ThreadPool pool(2);
    Memory scratch(scratch_bytes(m, rows));
    std::vector<float> y(rows * m.outputs);
    multiply(pool, k, m, a.data(), y.data(), rows, scratch);
    fold(y);
  }
  const auto small = test::small_model(21, 40, 48, 3, Dtype::bf16);
  ThreadPool pool(2);
  auto model = Model::make(small.graph, small.image, pool);
  CHECK(model);
  Executor executor(*model, pool);
  Context context(*model);
  std::vector<int32_t> tokens(100);
  for (auto& token : tokens) token = static_cast<int32_t>(random.below(40));
  fold(test::hidden_vectors(executor, context, tokens));
  CHECK(!(chain == Chain{}));
  std::printf("     bits %s\n", chain.hex().c_str());
}
