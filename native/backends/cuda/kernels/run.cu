// The interpreter of commands, and two kernels beside it.
#include "backends/cuda/kernels/kernels.h"
#include "backends/cuda/kernels/launch.h"
#include "backends/cuda/kernels/multiply.h"
#include "backends/cuda/kernels/walks.h"

namespace continuo::cuda {

namespace {

constexpr unsigned int block_threads = 256;

__host__ unsigned int blocks_for(size_t n) {
  const size_t blocks = (n + block_threads - 1) / block_threads;
  return static_cast<unsigned int>(blocks < 4096 ? blocks : 4096);
}

// The two commands that a block works on and reads next. Not as Commands, which would have to be made in shared memory.
constexpr size_t command_words = sizeof(Command) / 8;
static_assert(sizeof(Command) % 8 == 0);

// Block (i, p): part p of row or run first + i.
template <Family family> __global__ void __launch_bounds__(most_threads(family), 1)
    run_commands(const Command* commands, uint32_t count, Step step, uint32_t first) {
  __shared__ uint64_t slots[2][command_words];
  const size_t index = first + blockIdx.x;
  const Part part{blockIdx.y, gridDim.y};
  const auto fetch = [=](uint32_t i) {
    for (size_t word = threadIdx.x; word < command_words; word += blockDim.x)
      slots[i % 2][word] = reinterpret_cast<const uint64_t*>(commands + i)[word];
  };
  fetch(0);
  for (uint32_t i = 0; i < count; ++i) {
    // The command is there, what the one before wrote can be read, and its slot is free.
    __syncthreads();
    if (i + 1 < count) fetch(i + 1);
    const Command& command = *reinterpret_cast<const Command*>(slots[i % 2]);
    if constexpr (family != Family::rows) {
      if (run_family<family>(command, step, index, part)) continue;
    }
    if (command.task == Task::conv)
      run_conv(command, step, index, part);
    else if (command.task == Task::gates)
      run_gates(command, step, index, part);
    else
      run_row(command, step, index, part);
  }
}

__global__ void find_strange(const float* numbers, size_t n, uint32_t* flag) {
  bool strange = false;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += size_t{gridDim.x} * blockDim.x)
    strange = strange || !(numbers[i] - numbers[i] == 0.0f);
  if (strange) *flag = 1;  // whoever comes writes the same
}

template <class T> __global__ void write_all(T* to, size_t n, T value) {
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += size_t{gridDim.x} * blockDim.x)
    to[i] = value;
}

template <class T> void write_all_of(void* to, size_t n, uint64_t pattern, cudaStream_t stream) {
  launch(write_all<T>, blocks_for(n), block_threads, stream, static_cast<T*>(to), n, static_cast<T>(pattern));
}

}  // namespace

cudaError_t load() {
  const cudaError_t error =
      load_kernels(run_commands<Family::rows>, run_commands<Family::attention>, run_commands<Family::recurrence>,
                   find_strange, write_all<uint8_t>, write_all<uint16_t>, write_all<uint32_t>, write_all<uint64_t>);
  if (error != cudaSuccess) return error;
  for (const auto part : {load_list, load_experts, load_products}) {
    if (const cudaError_t failed = part(); failed != cudaSuccess) return failed;
  }
  return cudaSuccess;
}

void run(const Command* commands, uint32_t count, const Step& step, uint32_t first, uint32_t indices, uint32_t parts,
         uint32_t threads, cudaStream_t stream, Family family) {
  if (count == 0 || indices == 0) return;
  const uint32_t most = most_threads(family);
  const auto start = [&](auto kernel) {
    launch(kernel, dim3(indices, parts), threads < most ? threads : most, stream, commands, count, step, first);
  };
  switch (family) {
    case Family::rows: return start(run_commands<Family::rows>);
    case Family::attention: return start(run_commands<Family::attention>);
    case Family::recurrence: return start(run_commands<Family::recurrence>);
  }
}

void finite(const float* numbers, size_t n, uint32_t* flag, cudaStream_t stream) {
  if (n > 0) launch(find_strange, blocks_for(n), block_threads, stream, numbers, n, flag);
}

void fill(void* to, size_t n, uint64_t pattern, uint32_t bytes, cudaStream_t stream) {
  if (n == 0) return;
  switch (bytes) {
    case 1: return write_all_of<uint8_t>(to, n, pattern, stream);
    case 2: return write_all_of<uint16_t>(to, n, pattern, stream);
    case 4: return write_all_of<uint32_t>(to, n, pattern, stream);
    default: return write_all_of<uint64_t>(to, n, pattern, stream);
  }
}

}  // namespace continuo::cuda
