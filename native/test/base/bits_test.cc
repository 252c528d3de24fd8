#include <cstdio>
#include <cstring>
#include <vector>

#include "backends/cpu/device.h"
#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/linear.h"
#include "test/image.h"

namespace continuo::test::bits_test {

// tools/arm64.mjs compares the printed line between two architectures.
TEST("every operation, product and chain has the bits that the line below sums up, on any architecture") {
  test::Random random(8);
  Chain chain;
  const auto fold = [&](const std::vector<float>& numbers) {
    chain.pulse(static_cast<int32_t>(numbers.size()), numbers);
  };
  const auto& k = *runnable_kernels().front();
  constexpr size_t rows = 7, groups = 3, width = 129, n = rows * width;
  const auto a = random.floats(n, -6, 6), b = random.floats(n, -3, 3), c = random.floats(n, 0, 1),
             weight = random.floats(width, -1, 1), bias = random.floats(width, -1, 1);
  const auto run = [&](const auto& op) {
    std::vector<float> y(n);
    op(y.data());
    fold(y);
  };
  for (const auto unary : {k.tanh, k.sigmoid, k.relu2, k.decay, k.exp, k.silu, k.gelu, k.softplus})
    run([&](float* y) { unary(a.data(), y, n); });
  run([&](float* y) { k.log(c.data(), y, n); });
  run([&](float* y) { k.lerp(a.data(), b.data(), c.data(), y, n); });
  run([&](float* y) { k.norm(a.data(), weight.data(), bias.data(), y, rows, width, groups, 1e-5f); });
  run([&](float* y) { k.l2norm(a.data(), y, rows, width, groups, 1e-12f); });
  run([&](float* y) { k.bonus(a.data(), b.data(), c.data(), weight.data(), b.data(), y, rows, width, groups); });
  fold({k.max(a.data(), n), k.sum_exp(a.data(), 6, n)});
  std::vector<float> attended(43);
  k.attend({{{c.data(), a.data(), b.data(), 43, 5, 20, 16}}, 1, attended.data(), 43, 0.3f});
  fold(attended);
  run([&](float* y) { k.rmsnorm(a.data(), weight.data(), y, rows, width, groups, 1e-5f); });
  run([&](float* y) { k.unit(a.data(), y, rows, width, groups, 1e-6f); });
  run([&](float* y) { k.range(a.data(), 0.01f, 0.5f, y, n); });
  run([&](float* y) { k.conv({a.data(), b.data(), c.data(), nullptr, y, rows, width, 4, true}, 0, width); });
  std::vector<uint32_t> increments(21);
  for (auto& increment : increments) increment = static_cast<uint32_t>(random.next());
  run([&](float* y) {
    std::fill(y, y + n, 0.0f);
    k.rope(a.data(), y, 3, 2 * increments.size(), increments.size(), increments.data(), 812);
  });
  constexpr size_t positions = 19;
  k.attend({{{c.data(), b.data(), a.data(), 43, 0, 6, 6},
             {b.data(), a.data(), b.data(), 43, 250, 261, 16},
             {b.data(), b.data(), a.data(), 43, 245, 261, positions}},
            3,
            attended.data(),
            43,
            0.3f});
  fold(attended);
  for (const auto rule : {Rule::titans, Rule::delta, Rule::hebbian}) {
    for (const auto retention :
         {Retention::none, Retention::l2, Retention::elastic, Retention::kl, Retention::sphere}) {
      const bool bounded = retention == Retention::kl || retention == Retention::sphere;
      const MemoryForm form{rule, retention, bounded ? 0.0f : 3.0f, 0.02f, 0.9f, 1.5f, 1e-12f};
      constexpr size_t channels = 29, matrix = channels * channels;
      std::vector<float> M(matrix), S(matrix), G(matrix), y(rows * width), mixed(matrix);
      k.memory_first(form, a.data(), M.data(), channels);
      for (const uint64_t period : {1, 3}) {
        k.memory(form, {M.data(), S.data(), G.data(), b.data(), weight.data(), a.data(), c.data(), c.data() + 1,
                        c.data() + 2, y.data(), channels, channels, 3, 4, 100, period, 0.4f, period == 1});
        fold(M), fold(S), fold(G);
      }
      k.mix(a.data(), 11, c.data(), 3, mixed.data(), matrix);
      k.recall(M.data(), a.data(), y.data(), 3, 31, channels);
      fold(y), fold(mixed);
    }
  }
  std::vector<float> shares(5);
  k.softmax(a.data(), 7, shares.data(), shares.size());
  fold(shares);
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16, Dtype::q8, Dtype::ternary}) {
    PackedMatrix m{dtype, 100, width, 32, nullptr};
    const bool quantised = dtype == Dtype::q8 || dtype == Dtype::ternary;
    std::vector<uint16_t> weights(quantised ? m.tiles() * m.groups() * m.group_bytes() / 2
                                            : m.tiles() * tile_lanes * m.inputs * size_of(dtype) / 2);
    // Bits whose every reading is a finite number of ordinary size; ternary codes 0 to 2.
    for (auto& bits : weights) bits = static_cast<uint16_t>(0x2AAA & random.next());
    m.data = weights.data();
    ThreadPool pool(2);
    Memory scratch(scratch_bytes(m, rows));
    std::vector<float> y(rows * m.outputs);
    const Product product{m, a.data(), y.data()};
    multiply(pool, k, {&product, 1}, rows, scratch);
    fold(y);
  }
  const auto small = test::small_model(21, 40, 48, 3, Dtype::bf16);
  ThreadPool pool(2);
  auto model = Model::make(small.graph, small.image, pool, cpu_device(*runnable_kernels().front()));
  CHECK(model);
  const auto executor = (*model)->device->executor(*model, pool, {});
  Context context(*model);
  std::vector<int32_t> tokens(100);
  for (auto& token : tokens) token = static_cast<int32_t>(random.below(40));
  fold(test::hidden_vectors(*executor, context, tokens));
  CHECK(!(chain == Chain{}));
  std::printf("     bits %s\n", chain.hex().c_str());
}

}  // namespace continuo::test::bits_test
