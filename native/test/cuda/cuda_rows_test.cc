// Commands on the numbers of a row against the kernels of the CPU, over random steps that are cut into ranges of rows
// and parts.
#include "runtime/sampling/sampler.h"
#include "test/cuda/steps.h"

namespace continuo::test::cuda_rows_test {

using cuda::Family;

TEST("cuda rows: functions of one number have the CPU's bits, for any width, part and range of rows") {
  using Unary = void (*Kernels::*)(const float*, float*, size_t);
  const std::pair<Task, Unary> maps[] = {{Task::tanh, &Kernels::tanh},         {Task::sigmoid, &Kernels::sigmoid},
                                         {Task::relu2, &Kernels::relu2},       {Task::silu, &Kernels::silu},
                                         {Task::gelu, &Kernels::gelu},         {Task::gelu_erf, &Kernels::gelu_erf},
                                         {Task::softplus, &Kernels::softplus}, {Task::decay, &Kernels::decay}};
  Random random(201);
  for (int round = 0; round < 12; ++round) {
    for (const auto& [task, map] : maps) {
      Steps steps(random);
      const size_t width = some_length(random);
      const auto x = some_numbers(random, steps.rows * width, round % 2);
      check_rows(
          steps, task, width, 1 + static_cast<uint32_t>(random.below(5)), [&](Command& c) { c.in[0] = steps.in(x); },
          [&](size_t row, float* out) { (cpu.*map)(&x[row * width], out, width); });
    }
  }
}

TEST(
    "cuda rows: add, mul, lerp, range, clamp, slices of groups, repeat and embed have the CPU's bits, with values and "
    "with constants in the last "
    "place") {
  Random random(202);
  for (int round = 0; round < 40; ++round) {
    const bool constant = round % 2, wild = round % 3 == 0;
    const size_t width = some_length(random);
    const auto parts = 1 + static_cast<uint32_t>(random.below(5));
    for (const Task task : {Task::add, Task::mul, Task::lerp}) {
      Steps steps(random);
      const int inputs = task == Task::lerp ? 3 : 2;
      std::vector<std::vector<float>> in;
      for (int i = 0; i < inputs; ++i)
        in.push_back(some_numbers(random, (constant && i == inputs - 1 ? 1 : steps.rows) * width, wild));
      check_rows(
          steps, task, width, parts,
          [&](Command& c) {
            for (int i = 0; i < inputs; ++i) c.in[i] = steps.in(in[static_cast<size_t>(i)]);
            c.constant = constant ? 1u << (inputs - 1) : 0;
          },
          [&](size_t row, float* out) {
            const float *a = &in[0][row * width], *b = &in[1][inputs == 2 && constant ? 0 : row * width];
            if (task == Task::add)
              cpu.add(a, b, out, width);
            else if (task == Task::mul)
              cpu.mul(a, b, out, width);
            else
              cpu.lerp(a, b, &in[2][constant ? 0 : row * width], out, width);
          });
    }
    for (const Task task : {Task::range, Task::clamp}) {
      Steps steps(random);
      const size_t levels = 1 + random.below(4), each = 1 + width % 40, n = levels * each;
      const auto x = some_numbers(random, steps.rows * n, wild), low = random.floats(levels, -1, 0),
                 high = random.floats(levels, 0, 2);
      check_rows(
          steps, task, n, parts,
          [&](Command& c) {
            c.in[0] = steps.in(x), c.in[1] = steps.in(low), c.in[2] = steps.in(high);
            c.levels = static_cast<uint32_t>(levels);
          },
          [&](size_t row, float* out) {
            for (size_t level = 0; level < levels; ++level) {
              const auto kernel = task == Task::range ? cpu.range : cpu.clamp;
              kernel(&x[row * n + level * each], low[level], high[level], out + level * each, each);
            }
          });
    }
    {
      Steps steps(random);
      const size_t groups = 2 + random.below(5), each = 1 + width % 40, from = random.below(each),
                   n = 1 + random.below(each - from);
      const auto x = some_numbers(random, steps.rows * groups * each, wild);
      check_rows(
          steps, Task::slice, groups * n, parts,
          [&](Command& c) {
            c.in[0] = steps.in(x), c.in_width = static_cast<uint32_t>(groups * each);
            c.groups = static_cast<uint32_t>(groups), c.from = static_cast<uint32_t>(from);
          },
          [&](size_t row, float* out) {
            for (size_t group = 0; group < groups; ++group)
              std::copy_n(&x[(row * groups + group) * each + from], n, out + group * n);
          });
    }
    {
      Steps steps(random);
      const size_t groups = 1 + random.below(6), times = 1 + random.below(6), each = 1 + width % 40, n = groups * each;
      const auto x = some_numbers(random, steps.rows * n, wild);
      check_rows(
          steps, Task::repeat, n * times, parts,
          [&](Command& c) {
            c.in[0] = steps.in(x), c.in_width = static_cast<uint32_t>(n);
            c.groups = static_cast<uint32_t>(groups), c.count = static_cast<uint32_t>(times);
          },
          [&](size_t row, float* out) {
            for (size_t group = 0; group < groups; ++group) {
              for (size_t i = 0; i < times; ++i, out += each) std::copy_n(&x[row * n + group * each], each, out);
            }
          });
    }
    {
      Steps steps(random);
      const auto dtype = std::array{Dtype::f32, Dtype::f16, Dtype::bf16}[random.below(3)];
      const size_t table_rows = 1 + random.below(50);
      const auto table = some_bytes(random, table_rows * width * size_of(dtype));
      std::vector<int32_t> ids(steps.rows);
      for (auto& id : ids)
        id = random.below(6)   ? static_cast<int32_t>(random.below(table_rows))
             : random.below(2) ? -1 - static_cast<int32_t>(random.below(3))
                               : static_cast<int32_t>(table_rows);
      check_rows(
          steps, Task::embed, width, parts,
          [&](Command& c) {
            c.in[0] = steps.in(ids), c.in[1] = steps.in(table);
            c.constant = 2, c.dtype = dtype, c.in_width = static_cast<uint32_t>(table_rows);
          },
          [&](size_t row, float* out) {
            const bool there = ids[row] >= 0 && static_cast<size_t>(ids[row]) < table_rows;
            for (size_t i = 0; i < width; ++i) {
              out[i] = there ? read_element(bytes(table), dtype, static_cast<size_t>(ids[row]) * width + i) : NAN;
            }
          });
    }
  }
}

TEST("cuda rows: norms, bonus and rope have the CPU's bits for any number of groups and parts, also in place") {
  Random random(203);
  for (int round = 0; round < 60; ++round) {
    const bool wild = round % 2;
    const size_t groups = 1 + random.below(round % 3 ? 4 : 40),
                 n = round % 3 ? some_length(random) : 1 + random.below(70), width = groups * n;
    const auto parts = 1 + static_cast<uint32_t>(random.below(4));
    const auto weight = some_numbers(random, width, wild), bias = some_numbers(random, width, wild);
    const float eps = random.below(2) ? 1e-5f : 1e-12f;
    for (const Task task : {Task::norm, Task::rmsnorm, Task::unit, Task::l2norm}) {
      Steps steps(random);
      const auto x = some_numbers(random, steps.rows * width, wild);
      Command c;
      c.task = task, c.width = static_cast<uint32_t>(width), c.groups = static_cast<uint32_t>(groups), c.eps = eps;
      Both<float> y;
      c.constant = 6, c.in[1] = steps.in(weight), c.in[2] = steps.in(bias);
      if (random.below(2))
        c.in[0] = c.out = steps.both(y, x);
      else
        c.in[0] = steps.in(x), c.out = steps.out(y, x.size());
      const auto [first, count] = some_range(random, steps.rows);
      const float* in = &x[first * width];
      float* out = &y.want[first * width];
      switch (task) {
        case Task::norm: cpu.norm(in, weight.data(), bias.data(), out, count, width, groups, eps); break;
        case Task::rmsnorm: cpu.rmsnorm(in, weight.data(), out, count, width, groups, eps); break;
        case Task::unit: cpu.unit(in, out, count, width, groups, eps); break;
        default: cpu.l2norm(in, out, count, width, groups, eps);
      }
      steps.run({c}, Family::rows, first, count, parts);
      CHECK(same(y));
    }
    {
      Steps steps(random);
      std::vector<std::vector<float>> in;
      for (int i = 0; i < 5; ++i) in.push_back(some_numbers(random, (i == 3 ? 1 : steps.rows) * width, wild));
      check_rows(
          steps, Task::bonus, width, parts,
          [&](Command& c) {
            for (size_t i = 0; i < 5; ++i) c.in[i] = steps.in(in[i]);
            c.constant = 8, c.groups = static_cast<uint32_t>(groups);
          },
          [&](size_t row, float* out) {
            const size_t at = row * width;
            cpu.bonus(&in[0][at], &in[1][at], &in[2][at], in[3].data(), &in[4][at], out, 1, width, groups);
          });
    }
    {
      Steps steps(random);
      const size_t pairs = 1 + random.below(40), channels = 2 * pairs + (round % 4 ? 0 : random.below(9)),
                   all = groups * channels;
      const auto x = some_numbers(random, steps.rows * all, wild);
      std::vector<uint32_t> increments(pairs);
      for (auto& increment : increments) increment = static_cast<uint32_t>(random.next());
      std::vector<uint64_t> positions(steps.rows);
      for (auto& position : positions) position = static_cast<uint32_t>(random.next());
      check_rows(
          steps, Task::rope, all, parts,
          [&](Command& c) {
            c.in[0] = steps.in(x), c.in[1] = steps.in(increments);
            c.constant = 2, c.groups = static_cast<uint32_t>(groups), c.count = static_cast<uint32_t>(pairs);
            c.row_arg = steps.args_of_rows({positions});
          },
          [&](size_t row, float* out) {
            cpu.rope(&x[row * all], out, groups, channels, pairs, increments.data(),
                     static_cast<uint32_t>(positions[row]));
          });
    }
  }
}

TEST("cuda rows: a surprisal has the sampler's bits, for one logit and for many thousands") {
  Random random(208);
  for (const size_t width : {size_t{1}, size_t{2}, size_t{17}, size_t{256}, size_t{1000}, size_t{65536 + 77}}) {
    for (int round = 0; round < 4; ++round) {
      Steps steps(random, width > 1000);
      auto logits = some_numbers(random, steps.rows * width, round == 3);
      if (round == 1)
        for (auto& x : logits) x = random.below(3) ? -0.0f : 0.0f;
      std::vector<uint64_t> tokens;
      Command c;
      Both<float> nats;
      c.task = Task::surprisal, c.width = static_cast<uint32_t>(width), c.in[0] = steps.in(logits),
      c.out = steps.out(nats, steps.rows);
      const auto [first, count] = some_range(random, steps.rows);
      for (size_t row = 0; row < steps.rows; ++row) {
        tokens.push_back(random.below(width));
        if (row < first || row >= first + count) continue;
        nats.want[row] = surprisal(cpu, {&logits[row * width], width}, static_cast<int32_t>(tokens.back()));
      }
      c.row_arg = steps.args_of_rows({tokens});
      steps.run({c}, Family::rows, first, count, 1 + static_cast<uint32_t>(random.below(2)));
      CHECK(same(nats));
    }
  }
}

TEST("cuda rows: within one launch a command reads the results of earlier commands in its row") {
  Random random(209);
  for (int round = 0; round < 40; ++round) {
    // norm → shift → lerp → tanh → l2norm of heads → mul, of one row of each of several contexts.
    Steps steps(random, true);
    const size_t heads = 1 + random.below(6), n = 1 + random.below(64), width = heads * n, rows = steps.rows;
    const auto x = some_numbers(random, rows * width, false), weight = some_numbers(random, width, false),
               bias = some_numbers(random, width, false), t = random.floats(width, 0, 1);
    Both<float> normed, shifted, between, epilogue_out, directed, product, kept;
    const auto command = [&](Task task, const void* a, const void* b, Both<float>& out) {
      Command c;
      c.task = task, c.width = static_cast<uint32_t>(width), c.eps = 1e-5f;
      c.in[0] = a, c.in[1] = b, c.out = steps.out(out, rows * width);
      return c;
    };
    float* members = steps.both(kept, some_numbers(random, rows * width, false));
    std::vector<uint64_t> addresses;
    for (size_t row = 0; row < rows; ++row) addresses.push_back(arg_of(members + row * width));
    std::vector<Command> commands;
    commands.push_back(command(Task::norm, steps.in(x), steps.in(weight), normed));
    commands[0].in[2] = steps.in(bias), commands[0].constant = 6;
    commands.push_back(command(Task::shift, commands[0].out, nullptr, shifted));
    commands[1].run_arg = steps.args_of_runs({addresses});
    commands.push_back(command(Task::lerp, commands[0].out, commands[1].out, between));
    commands[2].in[2] = steps.in(t), commands[2].constant = 4;
    commands.push_back(command(Task::tanh, commands[2].out, nullptr, epilogue_out));
    commands.push_back(command(Task::l2norm, commands[3].out, nullptr, directed));
    commands[4].groups = static_cast<uint32_t>(heads);
    commands.push_back(command(Task::mul, commands[4].out, commands[0].out, product));

    cpu.norm(x.data(), weight.data(), bias.data(), normed.want.data(), rows, width, 1, 1e-5f);
    shifted.want = kept.want;
    kept.want = normed.want;
    for (size_t at = 0; at < rows * width; at += width)
      cpu.lerp(&normed.want[at], &shifted.want[at], t.data(), &between.want[at], width);
    cpu.tanh(between.want.data(), epilogue_out.want.data(), rows * width);
    cpu.l2norm(epilogue_out.want.data(), directed.want.data(), rows, width, heads, 1e-5f);
    cpu.mul(directed.want.data(), normed.want.data(), product.want.data(), rows * width);
    steps.run(commands, Family::rows, 0, rows, 1);
    CHECK(same(normed) && same(shifted) && same(between) && same(epilogue_out) && same(directed) && same(product) &&
          same(kept));
  }
}

}  // namespace continuo::test::cuda_rows_test
