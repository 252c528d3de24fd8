// The routing commands of CUDA (top-k, gather, combine) against the CPU's kernels, over random steps that are cut into
// ranges of rows.
#include "test/cuda/steps.h"

namespace continuo::test::cuda_routing_test {

using cuda::Family;

TEST("cuda rows: what routes has the CPU's bits, for any width, part and kind of number") {
  Random random(210);
  for (int round = 0; round < 40; ++round) {
    const bool wild = round % 2;
    const size_t width = some_length(random), count = 1 + random.below(std::min<size_t>(width, 12));
    const auto parts = 1 + static_cast<uint32_t>(random.below(4));
    {
      Steps steps(random);
      const auto x = some_numbers(random, steps.rows * width, wild);
      const float factor = random.uniform(-9, 9);
      check_rows(
          steps, Task::scale, width, parts, [&](Command& c) { c.in[0] = steps.in(x), c.scale = factor; },
          [&](size_t row, float* out) { cpu.scale(&x[row * width], factor, out, width); });
    }
    for (const Task task : {Task::softmax, Task::normalise}) {
      Steps steps(random);
      const auto x = some_numbers(random, steps.rows * width, wild);
      check_rows(
          steps, task, width, 1, [&](Command& c) { c.in[0] = steps.in(x); },
          [&](size_t row, float* out) {
            (task == Task::softmax ? cpu.softmax_rows : cpu.normalise)(&x[row * width], out, 1, width);
          });
    }
    {
      Steps steps(random);
      const auto x = some_numbers(random, steps.rows * count * width, wild),
                 w = some_numbers(random, steps.rows * count, wild);
      check_rows(
          steps, Task::combine, width, parts,
          [&](Command& c) {
            c.in[0] = steps.in(x), c.in[1] = steps.in(w);
            c.in_width = static_cast<uint32_t>(count * width), c.count = static_cast<uint32_t>(count);
          },
          [&](size_t row, float* out) { cpu.combine(&x[row * count * width], &w[row * count], out, count, width); });
    }
    {
      Steps steps(random);
      const auto x = some_numbers(random, steps.rows * width, wild);
      std::vector<int32_t> ids(steps.rows * count);
      for (auto& id : ids) id = static_cast<int32_t>(random.below(width + 2)) - 1;
      check_rows(
          steps, Task::gather_numbers, count, parts,
          [&](Command& c) {
            c.in[0] = steps.in(x), c.in[1] = steps.in(ids), c.in_width = static_cast<uint32_t>(width);
          },
          [&](size_t row, float* out) {
            for (size_t k = 0; k < count; ++k) {
              const int32_t id = ids[row * count + k];
              out[k] = id >= 0 && static_cast<size_t>(id) < width ? x[row * width + static_cast<size_t>(id)] : NAN;
            }
          });
    }
  }
}

TEST("cuda rows: topk gives the places of the largest in ascending order, of equal ones the first; NaN is the least") {
  Random random(211);
  for (int round = 0; round < 60; ++round) {
    Steps steps(random);
    const size_t width = some_length(random), count = 1 + random.below(std::min<size_t>(width, max_chosen));
    auto x = some_numbers(random, steps.rows * width, round % 2);
    // Numbers of few kinds, so that many are equal.
    if (round % 3 == 0) {
      for (auto& value : x) value = random.below(9) ? static_cast<float>(random.below(4)) : -INFINITY;
    }
    Command c;
    Both<int32_t> places;
    c.task = Task::topk, c.width = static_cast<uint32_t>(count), c.in_width = static_cast<uint32_t>(width);
    c.in[0] = steps.in(x), c.out = steps.out(places, steps.rows * count);
    const auto [first, rows] = some_range(random, steps.rows);
    for (size_t row = first; row < first + rows; ++row) {
      std::vector<int32_t> order(width);
      for (size_t i = 0; i < width; ++i) order[i] = static_cast<int32_t>(i);
      const auto score = [&](int32_t i) {
        const float value = x[row * width + static_cast<size_t>(i)];
        return std::isnan(value) ? -INFINITY : value;
      };
      std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return score(a) > score(b); });
      std::sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(count));
      std::copy_n(order.begin(), count, places.want.begin() + static_cast<ptrdiff_t>(row * count));
    }
    steps.run({c}, Family::rows, first, rows, 1);
    CHECK(same(places));
  }
}

}  // namespace continuo::test::cuda_routing_test
