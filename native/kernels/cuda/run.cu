#include "kernels.h"
#include "launch.h"

namespace continuo::cuda {

namespace {

constexpr unsigned int block_threads = 256;

__host__ unsigned int blocks_for(size_t n) {
  const size_t blocks = (n + block_threads - 1) / block_threads;
  return static_cast<unsigned int>(blocks < 4096 ? blocks : 4096);
}

__global__ void find_strange(const float* numbers, size_t n, uint32_t* flag) {
  bool strange = false;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += size_t{gridDim.x} * blockDim.x) strange = strange || !(numbers[i] - numbers[i] == 0.0f);
  if (strange) *flag = 1;  // whoever comes writes the same
}

template <class T>
__global__ void write_all(T* to, size_t n, T value) {
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += size_t{gridDim.x} * blockDim.x) to[i] = value;
}

template <class T>
void write_all_of(void* to, size_t n, uint64_t pattern, cudaStream_t stream) {
  launch(write_all<T>, blocks_for(n), block_threads, stream, static_cast<T*>(to), n, static_cast<T>(pattern));
}

}  // namespace

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
