// Puts a kernel into a stream. Arguments are taken by value, as CUDA takes them.
#pragma once

#include <tuple>
#include <type_traits>

#include "cuda.h"

namespace continuo::cuda {

#if defined(CONTINUO_EMULATE) || defined(__CUDACC__)
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, cudaStream_t stream, const Arguments&... arguments) {
#if defined(CONTINUO_EMULATE)
  emulate::enqueue(stream, grid, block, [kernel, values = std::tuple<std::decay_t<Parameters>...>(arguments...)] { std::apply(kernel, values); });
#else
  kernel<<<grid, block, 0, stream>>>(arguments...);
#endif
}
#endif

}  // namespace continuo::cuda
