// Commands that walk the rows of a run or read recurrent state, against the CPU's kernels with the executor's
// arguments.
#include "base/cast.h"
#include "test/cuda/steps.h"

namespace continuo::test::cuda_walks_test {

using cuda::Family;

namespace {

// A table with a member for each run of a step, of which some are missing.
struct Table {
  Both<float> numbers;
  size_t each;
  std::vector<uint64_t> args;

  Table(Steps& steps, size_t n, const std::vector<bool>& there, float low = -1, float high = 1) : each(n) {
    const size_t count = steps.runs.size() * n;
    const float* members =
        steps.both(numbers, low == high ? std::vector<float>(count, low) : steps.random.floats(count, low, high));
    for (size_t run = 0; run < steps.runs.size(); ++run) args.push_back(there[run] ? arg_of(members + run * n) : 0);
  }
  Table(const Table&) = delete;
  float* want(size_t run) { return &numbers.want[run * each]; }
};

// A ring of each run, in one span or in blocks of 256 places that lie in the opposite order.
struct Ring {
  Table table;
  size_t stride, blocks;
  std::vector<std::vector<BlockAt>> lists;  // [runs]
  std::vector<uint64_t> args;

  Ring(Steps& steps, size_t slots, size_t of, size_t count, const std::vector<bool>& there)
      : table(steps, slots * of, there), stride(of), blocks(count), args(table.args) {
    for (size_t run = 0; run < args.size() && blocks > 0; ++run) {
      const auto listed = [&](const float* base) {
        std::vector<BlockAt> list;
        for (size_t i = blocks; i-- > 0;)
          list.push_back({reinterpret_cast<const std::byte*>(base + i * block_positions * stride), block_positions});
        return list;
      };
      lists.push_back(listed(table.want(run)));
      if (there[run]) args[run] = arg_of(steps.in(listed(reinterpret_cast<const float*>(table.args[run]))));
    }
  }
  BlockList list(size_t run, size_t channel) const {
    return blocks > 0 ? BlockList{lists[run].data(), blocks, 0, channel} : BlockList{};
  }
  float* place(size_t run, size_t position, size_t slots) {
    if (blocks == 0) return table.want(run) + position % slots * stride;
    return reinterpret_cast<float*>(const_cast<std::byte*>(list(run, 0).at(position, stride, sizeof(float))));
  }
};

std::vector<bool> some_there(Steps& steps) {
  std::vector<bool> there;
  for (size_t run = 0; run < steps.runs.size(); ++run) there.push_back(steps.random.below(8) != 0);
  return there;
}

// Runs [first, first + count) of a step, and the parts of a launch.
struct Cut {
  size_t first, count;
  uint32_t parts;
  explicit Cut(Steps& steps) {
    std::tie(first, count) = some_range(steps.random, steps.runs.size());
    parts = 1 + static_cast<uint32_t>(steps.random.below(4));
  }
  bool has(size_t run) const { return run >= first && run < first + count; }
};

uint32_t narrow(size_t n) { return static_cast<uint32_t>(n); }

struct Heads {
  size_t groups, n, width;
  explicit Heads(Random& random)
      : groups(1 + random.below(5)),
        n(random.below(3) ? 1 + random.below(40) : std::array<size_t, 3>{16, 32, 64}[random.below(3)]),
        width(groups * n) {}
};

}  // namespace

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

TEST("cuda walks: attend has the CPU's bits for queries that share keys, rings and growing tables") {
  Random random(224);
  for (int round = 0; round < 50; ++round) {
    Steps steps(random);
    const size_t shared = 1 + random.below(3), keys = 1 + random.below(3), n = 1 + random.below(70),
                 groups = keys * shared, width = groups * n, stride = keys * n;
    const auto parts = narrow(1 + random.below(4));
    const float scale = random.uniform(0.1f, 1);
    const size_t slots = 1 + random.below(random.below(3) ? 40 : 700);
    const auto q = random.floats(steps.rows * width, -2, 2);
    // A ring or a growing table for each run; each row attends to a range of positions of its own.
    const std::vector<bool> all(steps.runs.size(), true);
    Table K(steps, slots * stride, all), V(steps, slots * stride, all);
    Command c;
    Both<float> y;
    c.task = Task::attend, c.width = narrow(width), c.groups = narrow(groups), c.shared = narrow(shared),
    c.scale = scale;
    c.in[0] = steps.in(q), c.out = steps.out(y, q.size());
    const auto [first, count] = some_range(random, steps.rows);
    std::vector<std::vector<uint64_t>> args(5);
    for (size_t row = 0; row < steps.rows; ++row) {
      const size_t run = steps.run_of[row];
      const size_t last = random.below(2) ? 1 + random.below(slots) : slots + random.below(3000),
                   from = last > slots ? last - slots : 0;
      const bool there = random.below(8) != 0;
      const uint64_t row_args[] = {there ? K.args[run] : 0, there ? V.args[run] : 0, from, last, slots};
      for (size_t arg = 0; arg < 5; ++arg) args[arg].push_back(row_args[arg]);
      for (size_t head = 0; there && row >= first && row < first + count && head < groups; ++head) {
        const size_t at = row * width + head * n, key = head / shared * n;
        cpu.attend(
            {{{&q[at], K.want(run) + key, V.want(run) + key, stride, from, last, slots}}, 1, &y.want[at], n, scale});
      }
    }
    (void)steps.args_of_rows({std::vector<uint64_t>(steps.rows, 5)});
    c.row_arg = steps.args_of_rows(args);
    steps.run({c}, Family::attention, first, count, parts);
    CHECK(same(y) && same(K.numbers) && same(V.numbers));
  }
}

TEST(
    "cuda walks: attend and attend_weights of tables in blocks have the bits of one span, wherever the blocks lie, "
    "whatever their room and type") {
  Random random(225);
  for (int round = 0; round < 60; ++round) {
    const Type type = std::array{Type::f32, Type::f16, Type::bf16}[random.below(3)];
    Steps steps(random);
    const size_t shared = 1 + random.below(3), keys = 1 + random.below(3), n = 1 + random.below(70),
                 groups = keys * shared, width = groups * n, stride = keys * n, outer = 1 + random.below(3);
    const size_t positions = 1 + random.below(random.below(3) ? 300 : 1800), member = random.below(outer);
    const float scale = random.uniform(0.1f, 1);
    const auto q = random.floats(steps.rows * width, -2, 2);
    Command c;
    Both<float> y;
    c.task = Task::attend, c.width = narrow(width), c.groups = narrow(groups), c.shared = narrow(shared),
    c.scale = scale;
    c.dtype = stored_as(type);
    c.in[0] = steps.in(q), c.out = steps.out(y, q.size());
    Command w = c;
    Both<float> weights;
    const size_t given = 1 + random.below(40);
    w.task = Task::attend_weights, w.count = narrow(given), w.in_width = c.width, w.width = narrow(groups * given);
    w.out = steps.out(weights, steps.rows * groups * given);
    // Keys and values as one span for the CPU, and in blocks for the device.
    std::vector<float> spans[2];
    const BlockAt* lists[2];
    for (const size_t which : {0, 1}) {
      // Numbers that the type holds.
      spans[which] = random.floats(positions * stride, -1, 1);
      for (auto& number : spans[which]) {
        std::byte stored[4];
        write_number(stored, type, 0, number);
        number = static_cast<float>(read_number(stored, type, 0));
      }
      std::vector<BlockAt> list;
      for (size_t base = 0; base < positions; base += 256) {
        const size_t there = std::min<size_t>(256, positions - base);
        const size_t room = base + 256 < positions ? 256 : there + random.below(257 - there);
        auto block = random.floats(outer * room * stride, -1, 1);
        std::copy_n(&spans[which][base * stride], there * stride, &block[member * room * stride]);
        std::vector<std::byte> stored(block.size() * size_of(type));
        for (size_t i = 0; i < block.size(); ++i) write_number(stored.data(), type, i, block[i]);
        list.push_back({steps.in(stored), room});
      }
      lists[which] = steps.in(list);
    }
    const auto [first, count] = some_range(random, steps.rows);
    std::vector<std::vector<uint64_t>> args(cuda::attend_args), weights_args(cuda::attend_weights_args);
    for (size_t row = 0; row < steps.rows; ++row) {
      const size_t last = 1 + random.below(positions), from = random.below(2) * random.below(last);
      const size_t blocks = (positions + 255) / 256, shown = random.below(positions + 50);
      const uint64_t row_args[] = {arg_of(lists[0]), arg_of(lists[1]), from, last, 0, member, member, blocks};
      const uint64_t own_args[] = {arg_of(lists[0]), member, blocks, last, shown};
      for (size_t arg = 0; arg < cuda::attend_weights_args; ++arg) weights_args[arg].push_back(own_args[arg]);
      for (size_t arg = 0; arg < cuda::attend_args; ++arg) args[arg].push_back(row_args[arg]);
      for (size_t head = 0; row >= first && row < first + count && head < groups; ++head) {
        const size_t at = row * width + head * n, key = head / shared * n;
        cpu.attend(
            {{{&q[at], &spans[0][key], &spans[1][key], stride, from, last, positions}}, 1, &y.want[at], n, scale});
        cpu.attend_shares({{{&q[at], &spans[0][key], nullptr, stride, 0, last, positions}}, 1, nullptr, n, scale},
                          shown, given, &weights.want[(row * groups + head) * given]);
      }
    }
    c.row_arg = steps.args_of_rows(args);
    w.row_arg = steps.args_of_rows(weights_args);
    steps.launch({c}, Family::attention, first, count, narrow(1 + random.below(4)));
    steps.run({w}, Family::attention, first, count, narrow(1 + random.below(4)));
    CHECK(same(y) && same(weights));
  }
}

TEST(
    "cuda walks: attend_window writes its rings and answers in the CPU's bits: windows, segments, contexts and learned "
    "positions") {
  Random random(225);
  for (int round = 0; round < 80; ++round) {
    Steps steps(random);
    const Cut cut(steps);
    const size_t shared = 1 + random.below(3), keys = 1 + random.below(3), n = 1 + random.below(20),
                 groups = keys * shared, width = groups * n, stride = keys * n;
    const size_t segment = random.below(2) ? 1 + random.below(30) : 0, blocks = random.below(3),
                 slots = blocks > 0    ? blocks * block_positions
                         : segment > 0 ? segment
                                       : 1 + random.below(random.below(4) ? 30 : 600),
                 learned = random.below(2) * (1 + random.below(5));
    const bool context = random.below(2) == 0;
    const float scale = random.uniform(0.1f, 1);
    // A step stays within a segment, and an origin is never after the clock.
    for (auto& run : steps.runs) {
      if (segment > 0)
        run.clock -= run.clock % segment, run.clock += segment > run.rows ? random.below(segment - run.rows + 1) : 0;
      run.origin = std::min(run.origin, run.clock);
    }
    const size_t base = context ? 5 : 3;
    std::vector<std::vector<float>> in;
    for (size_t i = 0; i < base; ++i) in.push_back(random.floats(steps.rows * (i == 0 ? width : stride), -1, 1));
    if (learned > 0) {
      in.push_back(random.floats(steps.rows * width, -1, 1));
      for (int i = 0; i < 2; ++i) in.push_back(random.floats(keys * learned * n, -1, 1));
    }
    const auto there = some_there(steps);
    Ring K(steps, slots, stride, blocks, there), V(steps, slots, stride, blocks, there),
        CK(steps, slots, stride, blocks, there), CV(steps, slots, stride, blocks, there);
    Command c;
    Both<float> y;
    c.task = Task::attend_window, c.width = narrow(width), c.groups = narrow(groups), c.shared = narrow(shared),
    c.scale = scale;
    c.count = context ? 4 : 2, c.slots = narrow(slots), c.blocks = narrow(blocks), c.learned = narrow(learned),
    c.segment = segment;
    for (size_t i = 0; i < in.size(); ++i) c.in[i] = steps.in(in[i]);
    c.out = steps.out(y, steps.rows * width);
    auto args = context ? std::vector{K.args, V.args, CK.args, CV.args} : std::vector{K.args, V.args};
    const std::vector<uint64_t> member(steps.runs.size(), 0);
    args.resize(blocks > 0 ? 2 * args.size() : args.size(), member);
    c.run_arg = steps.args_of_runs(args);
    for (size_t run = 0; run < steps.runs.size(); ++run) {
      if (!cut.has(run) || !there[run]) continue;
      const auto [first_row, rows, first_clock, origin] = steps.runs[run];
      for (size_t i = 0; i < rows; ++i) {
        const size_t row = first_row + i;
        const uint64_t clock = first_clock + i,
                       reach = segment > 0 ? clock - clock % segment : clock - std::min<uint64_t>(clock, slots - 1),
                       from = std::max(reach, origin);
        for (size_t ring = 0; ring < (context ? 4 : 2); ++ring) {
          Ring& table = *std::array{&K, &V, &CK, &CV}[ring];
          std::copy_n(&in[1 + ring][row * stride], stride, table.place(run, clock, slots));
        }
        for (size_t query = 0; query < groups; ++query) {
          const size_t key = query / shared, at = row * width + query * n;
          AttendRun job{{}, 0, &y.want[at], n, scale};
          if (learned > 0)
            job.parts[job.count++] = {
                &in[base][at], &in[base + 1][key * learned * n], &in[base + 2][key * learned * n], n, 0, learned,
                learned};
          const auto seen = [&](Ring& own_keys, Ring& own_values) {
            job.parts[job.count++] = {&in[0][at],
                                      own_keys.table.want(run) + key * n,
                                      own_values.table.want(run) + key * n,
                                      stride,
                                      from,
                                      clock + 1,
                                      blocks > 0 ? 0 : slots,
                                      own_keys.list(run, key * n),
                                      own_values.list(run, key * n)};
          };
          if (context) seen(CK, CV);
          seen(K, V);
          cpu.attend(job);
        }
      }
    }
    steps.run({c}, Family::attention, cut.first, cut.count, cut.parts);
    CHECK(same(y));
    for (const Ring* ring : {&K, &V, &CK, &CV}) CHECK(same(ring->table.numbers));
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
