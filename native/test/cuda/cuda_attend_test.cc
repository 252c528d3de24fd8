// Commands of attention over tables and rings, against the CPU's kernels with the executor's arguments.
#include "base/cast.h"
#include "test/cuda/walks.h"

namespace continuo::test::cuda_attend_test {

using cuda::Family;
using namespace walks;

TEST("cuda attend: attend has the CPU's bits for queries that share keys, rings and growing tables") {
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
    "cuda attend: attend and attend_weights of tables in blocks have the bits of one span, wherever the blocks lie, "
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
    "cuda attend: attend_window writes its rings and answers in the CPU's bits: windows, segments, contexts and "
    "learned "
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

}  // namespace continuo::test::cuda_attend_test
