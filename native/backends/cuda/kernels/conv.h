// The causal convolution of backends/cpu/kernels/conv.h, one thread a channel.
#pragma once

#include "backends/cuda/kernels/elementwise.h"
#include "backends/jobs.h"

namespace continuo::cuda {

// Row `at` of the tail's rows followed by those of x, at one channel.
CONTINUO_INLINE float conv_row(const ConvRun& run, size_t at, size_t channel) {
  const size_t before = run.taps - 1;
  return at < before ? run.tail[at * run.channels + channel] : run.x[(at - before) * run.channels + channel];
}

CONTINUO_INLINE void conv(const ConvRun& run, size_t channel, size_t channel_end) {
  for (channel += threadIdx.x; channel < channel_end; channel += blockDim.x) {
    const float* w = run.weights + channel * run.taps;
    const float first = run.bias ? run.bias[channel] : 0.0f;
    for (size_t row = 0; row < run.rows; ++row) {
      float sum = first;
      for (size_t j = 0; j < run.taps; ++j) sum = fma(w[j], conv_row(run, row + j, channel), sum);
      run.y[row * run.channels + channel] = run.silu ? silu(sum) : sum;
    }
  }
}

// The tail that these rows leave behind; `tail` is that of the run. Each thread moves the channels that it convolved,
// towards older rows, so nobody waits.
CONTINUO_INLINE void conv_tail(const ConvRun& run, float* tail, size_t channel, size_t channel_end) {
  for (channel += threadIdx.x; channel < channel_end; channel += blockDim.x) {
    for (size_t at = 0; at < run.taps - 1; ++at)
      tail[at * run.channels + channel] = conv_row(run, at + run.rows, channel);
  }
}

}  // namespace continuo::cuda
