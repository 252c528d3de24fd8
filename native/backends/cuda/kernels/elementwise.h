// Functions of numbers, one thread a number.
#pragma once

#include "backends/cuda/kernels/reduce.h"

namespace continuo::cuda {

// Applies `f(float…) → float` along arrays by the threads of the block. `out` may be one of the inputs. Four numbers a
// turn, so that their loads do not wait for each other's stores.
template <class F, class... In> CONTINUO_INLINE void map(size_t n, float* out, const F& f, const In*... in) {
  const size_t step = blockDim.x;
  size_t i = threadIdx.x;
  for (; i + 3 * step < n; i += 4 * step) {
    const float a = f(in[i]...), b = f(in[i + step]...), c = f(in[i + 2 * step]...), d = f(in[i + 3 * step]...);
    out[i] = a;
    out[i + step] = b;
    out[i + 2 * step] = c;
    out[i + 3 * step] = d;
  }
  for (; i < n; i += step) out[i] = f(in[i]...);
}

// The same by the calling half warp.
template <class F, class... In> CONTINUO_INLINE void half_warp_map(size_t n, float* out, const F& f, const In*... in) {
  for (size_t i = threadIdx.x % partials; i < n; i += partials) out[i] = f(in[i]...);
}

CONTINUO_INLINE float lerp(float a, float b, float t) { return fma(b - a, t, a); }

}  // namespace continuo::cuda
