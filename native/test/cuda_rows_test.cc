// Commands without state against the executor of the CPU, over random steps that are cut into ranges of rows and parts.
#include "base/cast.h"
#include "runtime/sampler.h"
#include "test/cuda/steps.h"

using namespace continuo;
using namespace continuo::test;
using cuda::Family;

namespace {

using Task = cuda::Task;
const Kernels& cpu = generic_kernels;

constexpr Type types[] = {Type::f32, Type::f16, Type::bf16, Type::f8,     Type::i8,
                          Type::u8,  Type::i32, Type::i64,  Type::boolean};

// One command whose output is rows of floats. `fill(command)` sets its operands and width; `want(row)` gives the row
// that the CPU makes.
template <class Fill, class Want>
void check_rows(Steps& steps, Task task, size_t width, uint32_t parts, const Fill& fill, const Want& want) {
  Command c;
  c.task = task;
  c.width = static_cast<uint32_t>(width);
  Both<float> y;
  c.out = steps.out(y, steps.rows * width);
  fill(c);
  const auto [first, count] = some_range(steps.random, steps.rows);
  for (size_t row = first; row < first + count; ++row) want(row, &y.want[row * width]);
  steps.run({c}, Family::rows, first, count, parts);
  CHECK(same(y));
}

std::vector<uint8_t> some_bytes(Random& random, size_t n) {
  std::vector<uint8_t> out(n);
  for (auto& byte : out) byte = static_cast<uint8_t>(random.next());
  return out;
}

std::byte* bytes(std::vector<uint8_t>& of) { return reinterpret_cast<std::byte*>(of.data()); }
const std::byte* bytes(const std::vector<uint8_t>& of) { return reinterpret_cast<const std::byte*>(of.data()); }

}  // namespace

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

TEST("cuda rows: casts between all types give native/base/cast.cc's bytes, for every kind of number") {
  Random random(204);
  // All patterns of 16 bits, and numbers near halves, bounds and the ends of the narrow formats.
  std::vector<uint8_t> pool = some_bytes(random, 1 << 16);
  for (const float size : {0.5f,
                           1.5f,
                           2.5f,
                           127.5f,
                           128.5f,
                           254.5f,
                           255.5f,
                           448.0f,
                           464.0f,
                           480.0f,
                           65504.0f,
                           65519.996f,
                           65520.0f,
                           2147483520.0f,
                           2147483648.0f,
                           9.2233720e18f,
                           3.4e38f,
                           0x1p-6f,
                           0x1p-9f,
                           0x1p-10f,
                           0x1.8p-10f,
                           0x1p-11f,
                           0x1p-14f,
                           0x1p-24f,
                           0x1p-25f,
                           0x1.000002p-25f,
                           0x1p-126f,
                           0x1p-133f,
                           0x1p-134f,
                           0x1p-149f,
                           0.0f,
                           INFINITY,
                           NAN}) {
    for (const float x : {size, -size, std::nextafter(size, 0.0f), -std::nextafter(size, INFINITY)}) {
      const auto* raw = reinterpret_cast<const uint8_t*>(&x);
      pool.insert(pool.begin(), raw, raw + 4);
    }
  }
  for (const float x : every_kind(random, 1000)) {
    const auto* raw = reinterpret_cast<const uint8_t*>(&x);
    pool.insert(pool.end(), raw, raw + 4);
  }
  for (uint32_t bits = 0; bits < 1 << 16; ++bits)
    pool.push_back(static_cast<uint8_t>(bits)), pool.push_back(static_cast<uint8_t>(bits >> 8));
  for (const Type from : types) {
    for (const Type to : types) {
      Steps steps(random);
      const size_t n = pool.size() / size_of(from) / steps.rows;
      const std::vector<uint8_t> in(pool.begin(),
                                    pool.begin() + static_cast<ptrdiff_t>(n * steps.rows * size_of(from)));
      Command c;
      Both<uint8_t> out;
      c.task = Task::cast, c.type = from, c.type_out = to, c.width = static_cast<uint32_t>(n);
      c.in[0] = steps.in(in), c.out = steps.out(out, n * steps.rows * size_of(to));
      cast(bytes(in), from, bytes(out.want), to, n * steps.rows);
      steps.run({c}, Family::rows, 0, steps.rows, 3);
      CHECK(same(out));
    }
  }
}

TEST("cuda rows: slice, read, write and gather move bytes of any type, and skip rows that have no address") {
  Random random(205);
  for (int round = 0; round < 60; ++round) {
    const Type type = types[random.below(std::size(types))];
    const size_t each = size_of(type), width = some_length(random), in_width = width + random.below(40),
                 from = random.below(in_width - width + 1);
    const auto parts = 1 + static_cast<uint32_t>(random.below(4));
    for (const Task task : {Task::slice, Task::read, Task::write, Task::gather}) {
      if (task == Task::read && type == Type::i64) continue;  // i64 means the value of a counter, not a member
      Steps steps(random);
      const size_t row_bytes = width * each, wide_bytes = (task == Task::slice ? in_width : width) * each;
      const auto in = some_bytes(random, steps.rows * wide_bytes);
      Command c;
      Both<uint8_t> out, table;
      c.task = task, c.type = type, c.width = static_cast<uint32_t>(width), c.from = static_cast<uint32_t>(from);
      c.in_width = static_cast<uint32_t>(task == Task::slice ? in_width : row_bytes);
      c.in[0] = steps.in(in);
      c.out = steps.out(out, steps.rows * row_bytes);
      // A member for each row, in a random order, with a gap before each.
      const size_t stride = row_bytes + 8;
      std::byte* members = reinterpret_cast<std::byte*>(steps.out(table, steps.rows * stride + 8));
      const auto [first, count] = some_range(random, steps.rows);
      std::vector<uint64_t> addresses;
      const size_t turn = random.below(steps.rows);
      for (size_t row = 0; row < steps.rows; ++row) {
        const size_t at = (row + turn) % steps.rows * stride + 8;
        const bool there = random.below(5) != 0;
        addresses.push_back(there ? arg_of(members + at) : 0);
        if (row < first || row >= first + count) continue;
        if (task == Task::slice)
          std::copy_n(&in[row * wide_bytes + from * each], row_bytes, &out.want[row * row_bytes]);
        else if (there && task == Task::write)
          std::copy_n(&in[row * row_bytes], row_bytes, &table.want[at]);
        else if (there)
          std::copy_n(&table.want[at], row_bytes, &out.want[row * row_bytes]);
      }
      c.row_arg = steps.args_of_rows({addresses});
      steps.run({c}, Family::rows, first, count, parts);
      CHECK(same(out) && same(table));
    }
  }
  Steps steps(random);
  Command c;
  Both<int32_t> out;
  c.task = Task::read, c.type = Type::i64, c.width = 1, c.out = steps.out(out, steps.rows);
  std::vector<uint64_t> counts;
  for (size_t row = 0; row < steps.rows; ++row)
    counts.push_back(random.below(3) * 1000), out.want[row] = static_cast<int32_t>(counts.back());
  c.row_arg = steps.args_of_rows({counts});
  steps.run({c}, Family::rows, 0, steps.rows, 2);
  CHECK(same(out));
}

TEST("cuda rows: less, equal and remainder are the executor's, with values and with a number") {
  Random random(206);
  for (int round = 0; round < 60; ++round) {
    const size_t width = some_length(random);
    const bool number = round % 2, floats = round % 3 == 0;
    for (const Task task : {Task::less, Task::equal, Task::remainder}) {
      if (floats && task == Task::remainder) continue;
      Steps steps(random);
      std::vector<int32_t> a(steps.rows * width), b(a.size());
      std::vector<float> x = every_kind(random, a.size()), y = every_kind(random, a.size());
      for (size_t i = 0; i < a.size(); ++i) {
        a[i] = random.below(5)   ? static_cast<int32_t>(random.below(9)) - 4
               : random.below(2) ? INT32_MIN
                                 : static_cast<int32_t>(random.next());
        b[i] = random.below(4) ? static_cast<int32_t>(random.below(9)) - 2 : static_cast<int32_t>(random.next());
        if (random.below(3) == 0) y[i] = x[i];
      }
      Command c;
      c.task = task, c.type = floats ? Type::f32 : Type::i32, c.width = static_cast<uint32_t>(width);
      c.count = number ? 1 : 2, c.number = static_cast<int64_t>(random.below(7)) + (task == Task::remainder ? 1 : -3);
      if (floats)
        c.in[0] = steps.in(x), c.in[1] = steps.in(y);
      else
        c.in[0] = steps.in(a), c.in[1] = steps.in(b);
      Both<uint8_t> truths;
      Both<int32_t> rests;
      c.out = task == Task::remainder ? static_cast<void*>(steps.out(rests, a.size())) : steps.out(truths, a.size());
      const auto [first, count] = some_range(random, steps.rows);
      for (size_t i = first * width; i < (first + count) * width; ++i) {
        const int32_t right = number ? static_cast<int32_t>(c.number) : b[i];
        const float right_float = number ? static_cast<float>(c.number) : y[i];
        if (task == Task::remainder) {
          const int64_t rest = right > 0 ? a[i] % int64_t{right} : 0;
          rests.want[i] = static_cast<int32_t>(rest < 0 ? rest + right : rest);
        } else if (task == Task::less) {
          truths.want[i] = floats ? x[i] < right_float : a[i] < right;
        } else {
          truths.want[i] = floats ? x[i] == right_float : a[i] == right;
        }
      }
      steps.run({c}, Family::rows, first, count, 1 + static_cast<uint32_t>(random.below(4)));
      CHECK(same(truths) && same(rests));
    }
  }
}

TEST(
    "cuda rows: shift gives each row the one before it in its run, and keeps the run's last, whichever blocks take "
    "them") {
  Random random(207);
  for (int round = 0; round < 60; ++round) {
    Steps steps(random);
    const size_t width = some_length(random), runs = steps.runs.size();
    const auto x = some_numbers(random, steps.rows * width, true);
    Command c;
    Both<float> out, kept;
    c.task = Task::shift, c.width = static_cast<uint32_t>(width), c.in[0] = steps.in(x);
    c.out = steps.out(out, x.size());
    float* members = steps.both(kept, some_numbers(random, runs * width, true));
    std::vector<uint64_t> addresses;
    for (size_t run = 0; run < runs; ++run) {
      addresses.push_back(random.below(6) ? arg_of(members + run * width) : 0);
      if (addresses.back() == 0) continue;
      const auto [row, rows, clock, origin] = steps.runs[run];
      float* member = &kept.want[run * width];
      std::copy_n(member, width, &out.want[row * width]);
      std::copy_n(&x[row * width], (rows - 1) * width, &out.want[(row + 1) * width]);
      std::copy_n(&x[(row + rows - 1) * width], width, member);
    }
    c.run_arg = steps.args_of_runs({std::vector<uint64_t>(runs, 7), addresses}) + 1;
    steps.run({c}, Family::rows, 0, steps.rows, 1 + static_cast<uint32_t>(random.below(4)));
    CHECK(same(out) && same(kept));
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

TEST("finite finds a NaN or an infinity anywhere; fill writes elements of every width, and nothing beyond") {
  for (const size_t n : {size_t{1}, size_t{255}, size_t{70000}}) {
    float* numbers = nullptr;
    uint32_t *flag = nullptr, seen = 0;
    CHECK(cudaMalloc(&numbers, n * 4) == cudaSuccess && cudaMalloc(&flag, 4) == cudaSuccess);
    const auto looked = [&](size_t at, float value) {
      CHECK(cudaMemset(numbers, 0, n * 4) == cudaSuccess && cudaMemset(flag, 0, 4) == cudaSuccess);
      CHECK(cudaMemcpy(numbers + at, &value, 4, cudaMemcpyHostToDevice) == cudaSuccess);
      cuda::finite(numbers, n, flag, nullptr);
      CHECK(cudaMemcpy(&seen, flag, 4, cudaMemcpyDeviceToHost) == cudaSuccess);
      return seen;
    };
    for (const size_t at : {size_t{0}, n / 2, n - 1}) {
      CHECK(looked(at, 3e38f) == 0 && looked(at, __builtin_inff()) == 1 && looked(at, __builtin_nanf("")) == 1);
    }
    CHECK(cudaFree(numbers) == cudaSuccess && cudaFree(flag) == cudaSuccess);
  }
  for (const uint32_t bytes : {1u, 2u, 4u, 8u}) {
    unsigned char host[80], *device = nullptr;
    CHECK(cudaMalloc(&device, sizeof host) == cudaSuccess && cudaMemset(device, 7, sizeof host) == cudaSuccess);
    cuda::fill(device + 8, 8, 0x0807060504030201u, bytes, nullptr);
    CHECK(cudaMemcpy(host, device, sizeof host, cudaMemcpyDeviceToHost) == cudaSuccess &&
          cudaFree(device) == cudaSuccess);
    bool right = true;
    for (size_t i = 0; i < sizeof host; ++i)
      right = right && host[i] == (i < 8 || i >= 8 + 8 * bytes ? 7 : (i - 8) % bytes + 1);
    CHECK(right);
  }
}
