// The causal convolution of backends/cpu/kernels/conv.h, one thread a channel.
#pragma once

#include "backends/cuda/kernels/elementwise.h"

namespace continuo::cuda {

// Row `at` of the tail's rows followed by those of x, at one channel.
CONTINUO_INLINE float conv_row(const float* x, const float* tail, size_t channels, size_t taps, size_t at,
                               size_t channel) {
  return at < taps - 1 ? tail[at * channels + channel] : x[(at - (taps - 1)) * channels + channel];
}

CONTINUO_INLINE void conv(const float* x, const float* tail, const float* weights, float* y, size_t rows,
                          size_t channels, size_t taps, size_t channel, size_t channel_end) {
  for (channel += threadIdx.x; channel < channel_end; channel += blockDim.x) {
    const float* w = weights + channel * taps;
    for (size_t row = 0; row < rows; ++row) {
      float sum = 0.0f;
      for (size_t j = 0; j < taps; ++j) sum = fma(w[j], conv_row(x, tail, channels, taps, row + j, channel), sum);
      y[row * channels + channel] = silu(sum);
    }
  }
}

// The tail that these rows leave behind. Each thread moves the channels that it convolved, towards older rows, so
// nobody waits.
CONTINUO_INLINE void conv_tail(const float* x, float* tail, size_t rows, size_t channels, size_t taps, size_t channel,
                               size_t channel_end) {
  for (channel += threadIdx.x; channel < channel_end; channel += blockDim.x) {
    for (size_t at = 0; at < taps - 1; ++at)
      tail[at * channels + channel] = conv_row(x, tail, channels, taps, at + rows, channel);
  }
}

}  // namespace continuo::cuda
