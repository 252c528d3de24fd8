// Puts a kernel into a stream. Arguments are taken by value, as CUDA takes them.
#pragma once

#include <tuple>
#include <type_traits>

#include "backends/cuda/kernels/cuda.h"

namespace continuo::cuda {

#if defined(CONTINUO_EMULATE) || defined(__CUDACC__)
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, cudaStream_t stream, const Arguments&... arguments) {
#if defined(CONTINUO_EMULATE)
  emulate::enqueue(stream, grid, block, [kernel, values = std::tuple<std::decay_t<Parameters>...>(arguments...)] {
    std::apply(kernel, values);
  });
#else
  // clang-format off
  kernel<<<grid, block, 0, stream>>>(arguments...);
  // clang-format on
#endif
}

// Loads kernels, which CUDA otherwise does when each is first launched. Gives the first error.
template <class... Kernels> cudaError_t load_kernels(Kernels*... kernels) {
  cudaError_t error = cudaSuccess;
  cudaFuncAttributes attributes;
  (void)(((error = cudaFuncGetAttributes(&attributes, kernels)) == cudaSuccess) && ...);
  return error;
}
#endif

}  // namespace continuo::cuda
