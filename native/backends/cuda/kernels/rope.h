// Rotary positions: what backends/cpu/kernels/rope.h has, of heads [head, head_end) of one row. One thread a pair.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/elementwise.h"

namespace continuo::cuda {

CONTINUO_INLINE void rope(const float* x, float* y, size_t head, size_t head_end, size_t channels, size_t pairs,
                          const uint32_t* increments, uint32_t position) {
  const size_t all = (head_end - head) * pairs, rest = channels - 2 * pairs;
  for (size_t index = threadIdx.x; index < all; index += blockDim.x) {
    const size_t i = index % pairs, at = (head + index / pairs) * channels + i;
    const auto [sin, cos] = sincos_phase<float>(increments[i] * position);
    const float a = x[at], b = x[at + pairs];
    y[at] = fma(a, cos, -(b * sin));
    y[at + pairs] = fma(b, cos, a * sin);
  }
  for (size_t index = threadIdx.x; index < (head_end - head) * rest; index += blockDim.x) {
    const size_t at = (head + index / rest) * channels + 2 * pairs + index % rest;
    y[at] = x[at];
  }
}

}  // namespace continuo::cuda
