// The commands that the perspective family adds against the CPU's kernels and the rules of its executor, over random
// steps that are cut into ranges of rows or runs, and parts.
#include <numeric>

#include "test/cuda/steps.h"

namespace continuo::test::cuda_perspective_test {

using cuda::Family;

namespace {

// A member of a table for each run, of which some are missing.
struct Members {
  std::vector<std::vector<float>> numbers;  // [runs]; empty: missing
  std::vector<uint64_t> args;

  Members(Steps& steps, size_t n, bool wild) {
    for (size_t run = 0; run < steps.runs.size(); ++run) {
      const bool there = steps.random.below(6) != 0;
      numbers.push_back(there ? some_numbers(steps.random, n, wild) : std::vector<float>{});
      args.push_back(there ? arg_of(steps.in(numbers.back())) : 0);
    }
  }
  const float* of(size_t run) const { return numbers[run].empty() ? nullptr : numbers[run].data(); }
};

float dot(const float* a, const float* b, size_t n) { return cpu.dot(a, b, n); }

}  // namespace

TEST("cuda perspective: routes on a torus have the CPU's bits, with offsets of each run and without, in any parts") {
  Random random(501);
  for (int round = 0; round < 60; ++round) {
    Steps steps(random);
    const bool wild = round % 3 == 0, moved = random.below(2) == 0;
    const size_t experts = some_length(random);
    const auto z = some_numbers(random, steps.rows * 2, wild), positions = random.floats(experts * 2, 0, 1);
    const Members offsets(steps, experts * 2, wild);
    check_rows(
        steps, Task::torus, experts, 1 + static_cast<uint32_t>(random.below(4)),
        [&](Command& c) {
          c.in[0] = steps.in(z), c.in[1] = steps.in(positions), c.in_width = 2, c.constant = 2;
          c.count = moved;
          if (moved) c.run_arg = steps.args_of_runs({offsets.args});
        },
        [&](size_t row, float* out) {
          cpu.torus(&z[row * 2], positions.data(), moved ? offsets.of(steps.run_of[row]) : nullptr, out, experts);
        });
  }
}

TEST(
    "cuda perspective: the nearest of any ranks come in their order, of equal ones the lower first, NaN last; ranks "
    "that are not there are -1") {
  Random random(502);
  for (int round = 0; round < 120; ++round) {
    Steps steps(random);
    const size_t n = some_length(random), chosen = 1 + random.below(std::min<size_t>(n, round % 2 ? max_chosen : 3));
    auto d = some_numbers(random, steps.rows * n, round % 4 == 0);
    if (round % 3 == 0) {
      constexpr float kinds[] = {0.0f, -0.0f, 0.25f, 0.5f, NAN, INFINITY, -1.0f};
      for (auto& value : d) value = kinds[random.below(std::size(kinds))];
    }
    const bool ranked = random.below(2) == 0;
    std::vector<int32_t> ranks(steps.rows);
    for (auto& rank : ranks) rank = static_cast<int32_t>(random.below(std::min<size_t>(n + 2, 12))) - 1;
    Command c;
    Both<int32_t> places;
    c.task = Task::nearest, c.width = static_cast<uint32_t>(chosen), c.in_width = static_cast<uint32_t>(n);
    c.count = ranked ? 2 : 1;
    c.in[0] = steps.in(d), c.out = steps.out(places, steps.rows * chosen);
    if (ranked) c.in[1] = steps.in(ranks);
    const auto [first, rows] = some_range(random, steps.rows);
    for (size_t row = first; row < first + rows; ++row) {
      const auto far = [&](int32_t i) {
        const float x = d[row * n + static_cast<size_t>(i)];
        return std::isnan(x) ? INFINITY : x;
      };
      std::vector<int32_t> order(n);
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return far(a) < far(b); });
      const int32_t rank = ranked ? ranks[row] : 0;
      const bool there = rank >= 0 && static_cast<size_t>(rank) + chosen <= n;
      for (size_t k = 0; k < chosen; ++k)
        places.want[row * chosen + k] = there ? order[static_cast<size_t>(rank) + k] : -1;
    }
    steps.run({c}, Family::rows, first, rows, 1);
    CHECK(same(places));
  }
}

TEST("cuda perspective: a projection on half-spaces has the CPU's bits, whatever is not finite") {
  Random random(503);
  for (int round = 0; round < 60; ++round) {
    Steps steps(random);
    const bool wild = round % 4 == 0;
    const size_t n = some_length(random), spaces = 1 + random.below(9), sweeps = 1 + random.below(6);
    auto x = some_numbers(random, steps.rows * n, wild);
    // Rows that are not finite, in steps of others that are.
    if (random.below(4) == 0) x[random.below(x.size())] = random.below(2) ? NAN : INFINITY;
    const auto normals = random.floats(spaces * n, -1, 1), bounds = random.floats(spaces, -0.5f, 2);
    std::vector<float> inverse;
    for (size_t j = 0; j < spaces; ++j) inverse.push_back(1.0f / dot(&normals[j * n], &normals[j * n], n));
    Both<float> own;
    check_rows(
        steps, Task::project, n, 1,
        [&](Command& c) {
          c.in[0] = steps.in(x), c.in[1] = steps.in(normals), c.in[2] = steps.in(bounds), c.in[3] = steps.in(inverse);
          c.in[4] = steps.out(own, steps.rows * spaces);
          c.constant = 14, c.in_width = c.width, c.count = static_cast<uint32_t>(spaces);
          c.number = static_cast<int64_t>(sweeps);
        },
        [&](size_t row, float* y) {
          std::copy_n(&x[row * n], n, y);
          std::vector<float> corrections(spaces, 0.0f);
          bool changed = true;
          for (size_t sweep = 0; sweep < sweeps && changed; ++sweep) {
            changed = false;
            for (size_t j = 0; j < spaces; ++j) {
              const float c = corrections[j] + (dot(&normals[j * n], y, n) - bounds[j]) * inverse[j];
              const float next = c > 0 ? c : std::isnan(c) ? c : 0.0f;
              if (next == corrections[j]) continue;
              cpu.axpy(corrections[j] - next, &normals[j * n], y, n);
              corrections[j] = next;
              changed = true;
            }
          }
        });
  }
}

TEST("cuda perspective: whole numbers under one scale are the CPU's, of ties, zeros and what is not finite too") {
  Random random(504);
  for (int round = 0; round < 80; ++round) {
    Steps steps(random);
    const size_t n = some_length(random);
    auto x = some_numbers(random, steps.rows * n, round % 3 == 0);
    if (round % 3 == 1) {
      for (auto& value : x) value = std::floor(value * 20) + 0.5f;
      for (size_t row = 0; row < steps.rows; ++row)
        x[row * n] = random.below(4) ? 127.0f : random.below(2) ? NAN : 0.0f;
    }
    Command c;
    Both<int8_t> out;
    c.task = Task::whole, c.width = c.in_width = static_cast<uint32_t>(n);
    c.in[0] = steps.in(x), c.out = steps.out(out, steps.rows * n);
    const auto [first, rows] = some_range(random, steps.rows);
    for (size_t row = first; row < first + rows; ++row) cpu.whole(&x[row * n], &out.want[row * n], n);
    steps.run({c}, Family::rows, first, rows, 1);
    CHECK(same(out));
  }
}

TEST("cuda perspective: an adapter of each run adds B (A x) with the CPU's bits; a run without one is left alone") {
  Random random(505);
  for (int round = 0; round < 50; ++round) {
    Steps steps(random);
    const bool wild = round % 3 == 0;
    const size_t inputs = some_length(random), outputs = some_length(random),
                 rank = 1 + random.below(round % 2 ? 8 : 300);
    const auto x = some_numbers(random, steps.rows * inputs, wild),
               y = some_numbers(random, steps.rows * outputs, wild);
    const Members A(steps, rank * inputs, wild);
    std::vector<std::vector<float>> B;
    std::vector<uint64_t> of_B;
    for (size_t run = 0; run < steps.runs.size(); ++run) {
      B.push_back(some_numbers(random, outputs * rank, wild));
      of_B.push_back(A.of(run) ? arg_of(steps.in(B.back())) : 0);
    }
    Both<float> own;
    check_rows(
        steps, Task::adapter, outputs, 1,
        [&](Command& c) {
          c.in[0] = steps.in(y), c.in[1] = steps.in(x), c.in[2] = steps.out(own, steps.rows * rank);
          c.in_width = c.width, c.from = static_cast<uint32_t>(inputs), c.count = static_cast<uint32_t>(rank);
          c.run_arg = steps.args_of_runs({A.args, of_B});
        },
        [&](size_t row, float* out) {
          const size_t run = steps.run_of[row];
          if (!A.of(run)) return;
          std::vector<float> low(rank);
          for (size_t i = 0; i < rank; ++i) low[i] = dot(A.of(run) + i * inputs, &x[row * inputs], inputs);
          for (size_t i = 0; i < outputs; ++i) out[i] = y[row * outputs + i] + dot(&B[run][i * rank], low.data(), rank);
        });
  }
}

TEST("cuda perspective: its recurrence has the CPU's bits over runs of any length, in any parts of its channels") {
  Random random(506);
  for (int round = 0; round < 60; ++round) {
    Steps steps(random);
    const bool wild = round % 4 == 0;
    const size_t width = some_length(random), keys = 1 + random.below(70);
    const auto [begin, count] = some_range(random, steps.runs.size());
    const size_t first = begin, end = begin + count;
    const auto gamma = wild ? every_kind(random, steps.rows * width) : random.floats(steps.rows * width, 0, 1);
    const auto v = some_numbers(random, steps.rows * width, wild), k = some_numbers(random, steps.rows * keys, wild),
               q = some_numbers(random, steps.rows * keys, wild);
    Both<float> y, state;
    Command c;
    c.task = Task::pdr, c.width = static_cast<uint32_t>(width), c.count = static_cast<uint32_t>(keys);
    c.convex = random.below(2) == 0;
    c.in[0] = steps.in(gamma), c.in[1] = steps.in(k), c.in[2] = steps.in(q), c.in[3] = steps.in(v);
    c.out = steps.out(y, steps.rows * width);
    const size_t each = keys * width;
    const float* states = steps.both(state, some_numbers(random, steps.runs.size() * each, wild));
    std::vector<uint64_t> args;
    for (size_t run = 0; run < steps.runs.size(); ++run) {
      const bool there = random.below(6) != 0;
      args.push_back(there ? arg_of(states + run * each) : 0);
      if (!there || run < first || run >= end) continue;
      const size_t row = steps.runs[run].row;
      cpu.pdr({&state.want[run * each], &gamma[row * width], &v[row * width], &k[row * keys], &q[row * keys],
               &y.want[row * width], width, keys, steps.runs[run].rows, c.convex},
              0, width);
    }
    c.run_arg = steps.args_of_runs({args});
    steps.run({c}, Family::recurrence, first, count, 1 + static_cast<uint32_t>(random.below(4)));
    CHECK(same(y) && same(state));
  }
}

}  // namespace continuo::test::cuda_perspective_test
