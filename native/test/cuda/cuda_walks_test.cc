// Commands that walk the rows of a run or read recurrent state, against the CPU's kernels with the executor's
// arguments.
#include "base/cast.h"
#include "test/cuda/walks.h"

namespace continuo::test::cuda_walks_test {

using cuda::Family;
using namespace walks;

TEST(
    "cuda walks: conv and the tail it leaves have the CPU's bits, with a bias or without, with silu or without, for "
    "runs shorter and longer than the taps, in any parts") {
  Random random(221);
  for (int round = 0; round < 80; ++round) {
    Steps steps(random);
    const Cut cut(steps);
    const size_t width = some_length(random), taps = 2 + random.below(8), kept = taps - 1;
    const auto x = some_numbers(random, steps.rows * width, round % 2),
               weights = some_numbers(random, width * taps, round % 2), bias = some_numbers(random, width, round % 2);
    const bool biased = random.below(2) == 0;
    const auto there = some_there(steps);
    Table tails(steps, kept * width, there);
    Command c;
    Both<float> y;
    c.task = Task::conv, c.width = narrow(width), c.taps = narrow(taps), c.constant = 6;
    c.silu = random.below(2) == 0;
    if (biased) c.in[2] = steps.in(bias);
    c.in[0] = steps.in(x), c.in[1] = steps.in(weights), c.out = steps.out(y, x.size());
    c.run_arg = steps.args_of_runs({tails.args});
    for (size_t run = 0; run < steps.runs.size(); ++run) {
      if (!cut.has(run) || !there[run]) continue;
      const auto [row, rows, clock, origin] = steps.runs[run];
      float* tail = tails.want(run);
      const float* in = &x[row * width];
      cpu.conv(
          {in, tail, weights.data(), biased ? bias.data() : nullptr, &y.want[row * width], rows, width, taps, c.silu},
          0, width);
      std::vector<float> all(tail, tail + kept * width);
      all.insert(all.end(), in, in + rows * width);
      std::copy(all.end() - static_cast<ptrdiff_t>(kept * width), all.end(), tail);
    }
    steps.run({c}, Family::rows, cut.first, cut.count, cut.parts);
    CHECK(same(y) && same(tails.numbers));
  }
}

TEST("cuda walks: sums of gates continue from the sums in the step arguments, in the executor's order") {
  Random random(222);
  for (int round = 0; round < 60; ++round) {
    Steps steps(random);
    const Cut cut(steps);
    const size_t levels = 1 + random.below(4), heads = 1 + random.below(5), row_gates = levels * heads,
                 runs = steps.runs.size();
    Command c;
    c.task = Task::gates, c.levels = narrow(levels), c.groups = narrow(heads), c.width = narrow(row_gates);
    std::vector<std::vector<float>> gates(3);
    for (size_t kind = 0; kind < 3; ++kind) {
      if (kind > 0 && random.below(2)) continue;
      gates[kind] = random.floats(steps.rows * row_gates, 0, 1);
      c.in[kind] = steps.in(gates[kind]);
    }
    std::vector<std::vector<uint64_t>> sums(levels * 3, std::vector<uint64_t>(runs)), want = sums;
    for (size_t arg = 0; arg < levels * 3; ++arg) {
      for (size_t run = 0; run < runs; ++run) {
        double sum = random.uniform(0, 1e6f) / 3.0;
        sums[arg][run] = std::bit_cast<uint64_t>(sum);
        if (!cut.has(run)) continue;
        for (size_t row = steps.runs[run].row;
             row < steps.runs[run].row + steps.runs[run].rows && !gates[arg % 3].empty(); ++row) {
          for (size_t head = 0; head < heads; ++head) sum += gates[arg % 3][(row * levels + arg / 3) * heads + head];
        }
        want[arg][run] = std::bit_cast<uint64_t>(sum);
      }
    }
    c.run_arg = steps.args_of_runs({std::vector<uint64_t>(runs, 3)}) + 1;
    (void)steps.args_of_runs(sums);
    steps.run({c}, Family::rows, cut.first, cut.count, cut.parts);
    for (size_t arg = 0; arg < levels * 3; ++arg) {
      for (size_t run = 0; run < runs; ++run)
        CHECK(steps.notes[cuda::run_arg_at(steps.rows, runs, c.run_arg + arg, run)] == want[arg][run]);
    }
  }
}

TEST(
    "cuda walks: wkv7 has the CPU's bits over runs of any length, in any parts of its heads, for states of any shape") {
  Random random(223);
  for (int round = 0; round < 80; ++round) {
    Steps steps(random);
    const Cut cut(steps);
    const Heads heads(random);
    const auto [groups, n, width] = heads;
    // With as many keys a column may stay in registers.
    const size_t keys = random.below(2) ? n : std::array<size_t, 4>{32, 64, 128, 1 + random.below(70)}[random.below(4)],
                 key_width = groups * keys;
    const auto there = some_there(steps);
    Table states(steps, groups * keys * n, there);
    std::vector<std::vector<float>> in;
    Command c;
    Both<float> y;
    c.task = Task::wkv7, c.width = narrow(width), c.groups = narrow(groups), c.count = narrow(keys);
    for (size_t i = 0; i < 6; ++i) {
      in.push_back(random.floats(steps.rows * (i == 3 ? width : key_width), i == 1 ? 0.5f : -0.5f, i == 1 ? 1 : 0.5f));
      c.in[i] = steps.in(in[i]);
    }
    c.out = steps.out(y, steps.rows * width);
    c.run_arg = steps.args_of_runs({states.args});
    for (size_t run = 0; run < steps.runs.size(); ++run) {
      if (!cut.has(run) || !there[run]) continue;
      for (size_t head = 0; head < groups; ++head) {
        const size_t at = steps.runs[run].row * width + head * n, key = steps.runs[run].row * key_width + head * keys;
        cpu.wkv7({states.want(run) + head * keys * n, &in[0][key], &in[1][key], &in[2][key], &in[3][at], &in[4][key],
                  &in[5][key], &y.want[at], n, keys, width, key_width, steps.runs[run].rows},
                 0, n);
      }
    }
    steps.run({c}, Family::recurrence, cut.first, cut.count, cut.parts);
    CHECK(same(y) && same(states.numbers));
  }
}

TEST("cuda walks: ssm has the CPU's bits over runs of any length, in any parts of its heads, for any groups of them") {
  Random random(231);
  for (int round = 0; round < 50; ++round) {
    Steps steps(random);
    const Cut cut(steps);
    const size_t shared = 1 + random.below(3), key_groups = 1 + random.below(3), keys = 1 + random.below(70),
                 heads = shared * key_groups, n = 1 + random.below(70), width = heads * n,
                 key_width = key_groups * keys;
    const auto there = some_there(steps);
    Table states(steps, heads * keys * n, there);
    const auto x = random.floats(steps.rows * width, -2, 2), dt = random.floats(steps.rows * heads, 0, 1),
               w = random.floats(steps.rows * heads, 0.5f, 1), b = random.floats(steps.rows * key_width, -1, 1),
               kc = random.floats(steps.rows * key_width, -1, 1), skip = random.floats(heads, -1, 1);
    Command c;
    Both<float> y;
    c.task = Task::ssm, c.width = narrow(width), c.groups = narrow(heads), c.shared = narrow(shared);
    c.count = narrow(keys), c.constant = 32;
    const std::vector<float>* in[] = {&x, &dt, &w, &b, &kc, &skip};
    for (size_t i = 0; i < 6; ++i) c.in[i] = steps.in(*in[i]);
    c.out = steps.out(y, steps.rows * width);
    c.run_arg = steps.args_of_runs({states.args});
    for (size_t run = 0; run < steps.runs.size(); ++run) {
      if (!cut.has(run) || !there[run]) continue;
      const auto [row, rows, clock, origin] = steps.runs[run];
      for (size_t head = 0; head < heads; ++head) {
        const size_t at = row * width + head * n, one = row * heads + head,
                     key = row * key_width + head / shared * keys;
        cpu.ssm({states.want(run) + head * keys * n, &x[at], &dt[one], &w[one], &b[key], &kc[key], skip[head],
                 &y.want[at], n, keys, width, heads, key_width, rows},
                0, n);
      }
    }
    steps.run({c}, Family::recurrence, cut.first, cut.count, cut.parts);
    CHECK(same(y) && same(states.numbers));
  }
}

TEST("cuda walks: memories of several levels, their first states, mixes and recalls have the CPU's bits") {
  Random random(226);
  for (int round = 0; round < 100; ++round) {
    Steps steps(random);
    const Cut cut(steps);
    const Heads heads(random);
    const auto [groups, n, width] = heads;
    const size_t levels = 1 + random.below(3), each = n * n, gates = levels * groups;
    MemoryForm form;
    form.rule = std::array{Rule::titans, Rule::delta, Rule::hebbian}[random.below(3)];
    form.retention = std::array{Retention::none, Retention::l2, Retention::elastic, Retention::kl,
                                Retention::sphere}[static_cast<size_t>(round) % 5];
    if (form.retention == Retention::elastic) form.elastic_l1 = 0.01f, form.elastic_l2 = 0.7f;
    if (form.retention == Retention::kl)
      form.floor = 1e-12f;
    else if (form.retention != Retention::sphere && random.below(2))
      form.norm_max = 2;
    const bool titans = form.rule == Rule::titans;
    std::vector<uint64_t> periods;
    for (size_t level = 0; level < levels; ++level)
      periods.push_back(level == 0 ? 1 + random.below(2) : 1 + random.below(5));
    const size_t slow =
        static_cast<size_t>(std::count_if(periods.begin(), periods.end(), [](uint64_t period) { return period > 1; }));
    const auto shares = random.floats(gates, 0, 1);
    const auto there = some_there(steps);
    const bool kl = form.retention == Retention::kl;
    // A memory of −0 that shrinks by −0: what nvcc makes of x < 0 ? x : 0 keeps the sign.
    const bool zero = form.retention == Retention::elastic && random.below(3) == 0;
    Table S(steps, gates * each, there), G(steps, std::max<size_t>(1, slow * groups * each), there);
    Table M(steps, gates * each, there,
            zero ? -0.0f
            : kl ? 0.01f
                 : -0.5f,
            zero ? -0.0f : 0.5f),
        mixed(steps, groups * each, there), M0(steps, gates * each, there);

    Command memory;
    Both<float> y, z;
    memory.task = Task::memory, memory.width = narrow(width), memory.groups = narrow(groups),
    memory.levels = narrow(levels), memory.form = form;
    const float length = 1.5f / std::sqrt(static_cast<float>(n));
    std::vector<std::vector<float>> in;
    for (size_t i = 0; i < 3; ++i) in.push_back(random.floats(steps.rows * width, -length, length));
    for (size_t i = 0; i < 1 + (titans ? 1u : 0u) + (form.retains() ? 1u : 0u); ++i)
      in.push_back(random.floats(steps.rows * gates, 0, 0.5f));
    if (zero) std::fill(in[2].begin(), in[2].end(), 0.0f), std::fill(in.back().begin(), in.back().end(), -0.0f);
    for (size_t i = 0; i < in.size(); ++i) memory.in[i] = steps.in(in[i]);
    memory.out = steps.out(y, steps.rows * width);
    memory.periods = steps.in(periods), memory.shares = steps.in(shares);

    Command mix = memory, recall = memory, first = memory;
    mix.task = Task::mix, mix.out = nullptr, mix.segment = random.below(2) ? 1 + random.below(3) : 0;
    recall.task = Task::recall, recall.in_width = memory.width, recall.in[0] = memory.in[1],
    recall.out = steps.out(z, steps.rows * width);
    const auto init = random.floats(gates * each, -1, 1);
    first.task = Task::memory_first, first.out = nullptr, first.count = narrow(random.below(2)),
    first.in[0] = first.count > 0 ? steps.in(init) : nullptr;
    // In the order of the step arguments: the target of M, the memory's own M, the M of the first state.
    mix.run_arg = steps.args_of_runs({M.args, mixed.args});
    memory.run_arg = steps.args_of_runs({titans ? S.args : std::vector<uint64_t>(steps.runs.size()),
                                         slow > 0 ? G.args : std::vector<uint64_t>(steps.runs.size()), M.args});
    recall.run_arg = mix.run_arg + 1;
    first.run_arg = steps.args_of_runs({M0.args});

    for (size_t run = 0; run < steps.runs.size(); ++run) {
      if (!cut.has(run) || !there[run]) continue;
      const auto [row, rows, clock, origin] = steps.runs[run];
      for (size_t head = 0; head < groups; ++head) {
        size_t buffered = 0;
        for (size_t level = 0; level < levels; ++level) {
          const size_t at = row * width + head * n, gate = row * gates + level * groups + head,
                       matrix = (level * groups + head) * each;
          MemoryRun job{M.want(run) + matrix,
                        titans ? S.want(run) + matrix : nullptr,
                        nullptr,
                        &in[0][at],
                        &in[1][at],
                        &in[2][at],
                        &in[3][gate],
                        nullptr,
                        nullptr,
                        &y.want[at],
                        n,
                        width,
                        gates,
                        rows,
                        clock,
                        periods[level],
                        shares[head * levels + level],
                        level == 0};
          if (periods[level] > 1) job.G = G.want(run) + (buffered++ * groups + head) * each;
          if (titans) job.eta = &in[4][gate];
          if (form.retains()) job.alpha = &in[titans ? 5 : 4][gate];
          cpu.memory(form, job);
          cpu.memory_first(form, first.count > 0 ? &init[matrix] : nullptr, M0.want(run) + matrix, n);
        }
      }
      if (mix.segment == 0 || clock % mix.segment == 0) {
        for (size_t head = 0; head < groups; ++head)
          cpu.mix(M.want(run) + head * each, groups * each, &shares[head * levels], levels,
                  mixed.want(run) + head * each, each);
      }
      for (size_t head = 0; head < groups; ++head) {
        cpu.recall(mixed.want(run) + head * each, &in[1][row * width + head * n], &z.want[row * width + head * n], rows,
                   width, n);
      }
    }
    // Launch by launch, as steps of more than one row are.
    steps.launch({memory}, Family::recurrence, cut.first, cut.count, cut.parts);
    steps.launch({mix}, Family::recurrence, cut.first, cut.count, cut.parts);
    size_t rows = 0, begin = steps.rows;
    for (size_t run = cut.first; run < cut.first + cut.count; ++run)
      begin = std::min<size_t>(begin, steps.runs[run].row), rows += steps.runs[run].rows;
    steps.launch({recall}, Family::recurrence, begin, rows, cut.parts);
    steps.run({first}, Family::recurrence, cut.first, cut.count, cut.parts);
    CHECK(same(y) && same(z) && same(S.numbers) && same(G.numbers) && same(M.numbers) && same(mixed.numbers) &&
          same(M0.numbers));
  }
}

TEST("cuda walks: heads of one row go through recurrence, norm, bonus and gate in one launch, each part by itself") {
  Random random(227);
  for (int round = 0; round < 30; ++round) {
    Steps steps(random, true);
    const Heads heads(random);
    const auto [groups, n, width] = heads;
    const size_t rows = steps.rows, floats = rows * width;
    const std::vector<bool> there(rows, true);
    Table states(steps, groups * n * n, there);
    std::vector<std::vector<float>> in;
    std::vector<const float*> on_device;
    for (int i = 0; i < 6; ++i)
      in.push_back(random.floats(floats, -0.5f, 0.5f)), on_device.push_back(steps.in(in.back()));
    const auto weight = random.floats(width, -1, 1), bias = random.floats(width, -1, 1);
    Both<float> y, normed, added, gated;
    const auto command = [&](Task task, std::vector<const float*> from, uint32_t constant, Both<float>& out) {
      Command c;
      c.task = task, c.width = narrow(width), c.groups = narrow(groups), c.eps = 1e-5f, c.constant = constant;
      std::copy(from.begin(), from.end(), c.in);
      c.out = steps.out(out, floats);
      return c;
    };
    std::vector<Command> commands;
    commands.push_back(command(Task::wkv7, on_device, 0, y));
    commands[0].count = narrow(n);
    commands[0].run_arg = steps.args_of_runs({states.args});
    const auto of = [&](size_t i) { return static_cast<const float*>(commands[i].out); };
    commands.push_back(command(Task::norm, {of(0), steps.in(weight), steps.in(bias)}, 6, normed));
    commands.push_back(
        command(Task::bonus, {of(1), on_device[0], on_device[2], steps.in(weight), on_device[3]}, 8, added));
    commands.push_back(command(Task::mul, {of(2), on_device[5]}, 0, gated));
    for (size_t row = 0; row < rows; ++row) {
      for (size_t head = 0; head < groups; ++head) {
        const size_t at = row * width + head * n;
        cpu.wkv7({states.want(row) + head * n * n, &in[0][at], &in[1][at], &in[2][at], &in[3][at], &in[4][at],
                  &in[5][at], &y.want[at], n, n, width, width, 1},
                 0, n);
      }
    }
    cpu.norm(y.want.data(), weight.data(), bias.data(), normed.want.data(), rows, width, groups, 1e-5f);
    cpu.bonus(normed.want.data(), in[0].data(), in[2].data(), weight.data(), in[3].data(), added.want.data(), rows,
              width, groups);
    cpu.mul(added.want.data(), in[5].data(), gated.want.data(), floats);
    // A number of parts that divides the heads, so that the columns of a part are those of its heads.
    uint32_t parts = 1 + narrow(random.below(groups));
    while (groups % parts != 0) --parts;
    steps.run(commands, Family::recurrence, 0, rows, parts);
    CHECK(same(y) && same(normed) && same(added) && same(gated) && same(states.numbers));
  }
}

}  // namespace continuo::test::cuda_walks_test
