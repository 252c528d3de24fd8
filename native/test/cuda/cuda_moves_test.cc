// Commands that move, cast and compare elements of any type against the executor of the CPU; and what fills memory and
// finds strange numbers.
#include "base/cast.h"
#include "test/cuda/steps.h"

namespace continuo::test::cuda_moves_test {

using cuda::Family;

namespace {

constexpr Type types[] = {Type::f32, Type::f16, Type::bf16, Type::f8,     Type::i8,
                          Type::u8,  Type::i32, Type::i64,  Type::boolean};

}  // namespace

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

}  // namespace continuo::test::cuda_moves_test
