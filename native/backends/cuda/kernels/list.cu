// Lays the list of an external memory: a block of threads has the key or the value of one slot in one layer.
#include "backends/cuda/kernels/launch.h"
#include "backends/cuda/kernels/list.h"

namespace continuo::cuda {

namespace {

constexpr unsigned int most_threads_of_row = 256;

__global__ void rerotate_kv(ListLaying list) {
  rerotate_row(list, blockIdx.x, blockIdx.y / keys_and_values, blockIdx.y % keys_and_values);
}

}  // namespace

cudaError_t load_list() { return load_kernels(rerotate_kv); }

void lay(const ListLaying& list, cudaStream_t stream) {
  if (list.slots == 0) return;
  const uint32_t units = list.heads * (list.channels - list.pairs);
  const unsigned int threads = units < most_threads_of_row ? (units + 31) / 32 * 32 : most_threads_of_row;
  launch(rerotate_kv, dim3(list.slots, list.layers * static_cast<uint32_t>(keys_and_values)), threads, stream, list);
}

}  // namespace continuo::cuda
