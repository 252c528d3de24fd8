// The products of the CUDA kernels as an executor launches them: several at once, over a range of rows, with epilogues.
#include "backends/cpu/linear.h"
#include "backends/cuda/kernels/kernels.h"
#include "test/cuda/weights.h"
#include "test/kernel_inputs.h"

namespace continuo::test::cuda_multiply_test {

namespace {

constexpr float untouched = 12345.678f;

// A packed matrix of ordinary numbers, the rows x, and the products y.
struct Task {
  PackedMatrix matrix;
  std::vector<uint8_t> packed;
  std::vector<float> x;
  bool epilogue;
  cuda::Task by;
};

constexpr cuda::Task functions[] = {cuda::Task::tanh, cuda::Task::sigmoid, cuda::Task::relu2,
                                    cuda::Task::silu, cuda::Task::gelu,    cuda::Task::softplus};

void epilogue_on_cpu(const Kernels& table, cuda::Task by, const float* from, float* to, size_t n) {
  switch (by) {
    case cuda::Task::tanh: return table.tanh(from, to, n);
    case cuda::Task::sigmoid: return table.sigmoid(from, to, n);
    case cuda::Task::relu2: return table.relu2(from, to, n);
    case cuda::Task::silu: return table.silu(from, to, n);
    case cuda::Task::gelu: return table.gelu(from, to, n);
    default: return table.softplus(from, to, n);
  }
}

// Makes one call over rows [first, first + rows) with other rows around them. Compares all rows of y, also those that
// the call must not change, with linear.h's multiply on the CPU.
void compare(std::vector<Task>& tasks, uint32_t first, uint32_t rows) {
  const Kernels& table = *runnable_kernels().back();
  const size_t all = first + rows + 1;
  std::vector<OnDevice<uint8_t>> weights;
  std::vector<OnDevice<float>> x, y, epilogue_out;
  std::vector<cuda::Product> products;
  for (const auto& task : tasks) {
    weights.emplace_back(task.packed);
    x.emplace_back(task.x);
    const std::vector<float> before(all * task.matrix.outputs, untouched);
    y.emplace_back(before);
    epilogue_out.emplace_back(before);
    cuda::Product product;
    product.dtype = task.matrix.dtype;
    product.outputs = static_cast<uint32_t>(task.matrix.outputs);
    product.inputs = static_cast<uint32_t>(task.matrix.inputs);
    product.group = static_cast<uint32_t>(task.matrix.group);
    product.data = weights.back().data();
    product.x = x.back().data();
    product.y = y.back().data();
    product.epilogue = task.epilogue;
    product.epilogue_task = task.by;
    product.epilogue_out = task.epilogue ? epilogue_out.back().data() : nullptr;
    products.push_back(product);
  }
  const auto count = static_cast<uint32_t>(products.size());
  const OnDevice<uint8_t> scratch(std::vector<uint8_t>(cuda::scratch_bytes(products.data(), count, rows), 0xFF));
  cuda::multiply(products.data(), count, first, rows, scratch.data(), nullptr);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);

  ThreadPool pool(1);
  for (size_t i = 0; i < tasks.size(); ++i) {
    auto& task = tasks[i];
    task.matrix.data = task.packed.data();
    const size_t outputs = task.matrix.outputs, inputs = task.matrix.inputs;
    Memory memory(scratch_bytes(task.matrix, rows));
    std::vector<float> want(all * outputs, untouched), want_epilogue = want;
    const Product product{task.matrix, task.x.data() + first * inputs, want.data() + first * outputs};
    multiply(pool, table, {&product, 1}, rows, memory);
    if (task.epilogue)
      epilogue_on_cpu(table, task.by, want.data() + first * outputs, want_epilogue.data() + first * outputs,
                      rows * outputs);
    CHECK(same(y[i].values(), want));
    CHECK(same(epilogue_out[i].values(), want_epilogue));
  }
}

Task some_task(Random& random, Dtype dtype, size_t outputs, size_t inputs, size_t rows, bool wild) {
  const bool blocks = dtype == Dtype::q4_k || dtype == Dtype::q6_k;
  if (blocks) inputs = (inputs + 255) / 256 * 256;
  const bool narrow = blocks || random.below(2) == 1;
  Task task{{dtype, outputs, inputs, narrow ? size_t{32} : size_t{64}, nullptr},
            {},
            {},
            random.below(2) == 0,
            functions[random.below(std::size(functions))]};
  task.packed = some_weights(random, task.matrix);
  task.x = wild ? every_kind(random, rows * inputs) : random.floats(rows * inputs, -2, 2);
  return task;
}

constexpr Dtype plain[] = {Dtype::f32, Dtype::f16, Dtype::bf16};
constexpr Dtype quantised[] = {Dtype::q8, Dtype::ternary, Dtype::q4, Dtype::q4_k, Dtype::q6_k};

}  // namespace

TEST(
    "cuda multiply: several products of any format and size have the CPU's bits, whatever the rows, and nothing else "
    "is written") {
  Random random(200);
  for (const bool integers : {false, true}) {
    for (const uint32_t rows : {1u, 2u, 3u, 4u, 5u, 7u, 8u, 9u, 15u, 21u, 32u, 33u, 64u, 65u, 129u}) {
      std::vector<Task> tasks;
      const auto first = static_cast<uint32_t>(random.below(4));
      for (size_t i = rows > 30 ? 3 : 2 + random.below(cuda::most_products - 1); i > 0; --i) {
        const Dtype dtype = integers ? quantised[random.below(std::size(quantised))] : plain[random.below(3)];
        tasks.push_back(some_task(random, dtype, 1 + random.below(150), some_length(random), first + rows + 1,
                                  random.below(5) == 0));
      }
      compare(tasks, first, rows);
    }
  }
}

TEST(
    "cuda multiply: every format of a single product, one output and one input, and inputs beyond one turn of the "
    "block") {
  Random random(201);
  struct Shape {
    size_t outputs, inputs;
  };
  for (const auto& [outputs, inputs] :
       {Shape{1, 1}, Shape{1, 31}, Shape{64, 256}, Shape{63, 4096}, Shape{5, 8193}, Shape{33, 9000}}) {
    for (const Dtype dtype :
         {Dtype::f32, Dtype::f16, Dtype::bf16, Dtype::q8, Dtype::ternary, Dtype::q4, Dtype::q4_k, Dtype::q6_k}) {
      for (const uint32_t rows : {1u, 2u, 3u, 6u, 40u}) {
        if (left_out(random)) continue;
        std::vector<Task> tasks{some_task(random, dtype, outputs, inputs, rows + 1, false)};
        compare(tasks, 0, rows);
      }
    }
  }
}

TEST("cuda multiply: wide products take 32 outputs a block, narrow ones 16, with the same bits") {
  Random random(202);
  for (const Dtype dtype : plain) {
    for (const uint32_t rows : {1u, 2u, 4u, 8u}) {
      if (left_out(random)) continue;
      std::vector<Task> tasks;
      for (const size_t outputs : {8500, 70}) tasks.push_back(some_task(random, dtype, outputs, 300, rows + 1, false));
      compare(tasks, 0, rows);
    }
  }
  // Squares of 128 rows are used only where there are enough rows.
  for (const Dtype dtype : plain) {
    std::vector<Task> tasks{some_task(random, dtype, 8450, 40, 301, false)};
    compare(tasks, 0, 300);
  }
}

TEST("cuda multiply: f16 and bf16 weights of every bit pattern widen as on the CPU") {
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
    uint32_t pattern = 0;
    while (pattern < 1 << 16) {
      std::vector<Task> tasks;
      while (tasks.size() < cuda::most_products) {
        Task task{{dtype, tile_lanes, 1, 0, nullptr}, {}, {1.0f, 1.0f}, false, {}};
        for (size_t i = 0; i < tile_lanes; ++i, ++pattern)
          task.packed.insert(task.packed.end(), {static_cast<uint8_t>(pattern), static_cast<uint8_t>(pattern >> 8)});
        tasks.push_back(std::move(task));
      }
      compare(tasks, 0, 1);
    }
  }
}

}  // namespace continuo::test::cuda_multiply_test
