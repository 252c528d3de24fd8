// A causal convolution of each channel with its own taps, and silu: z[c] = Σ_j w[c, j] x_{t−taps+1+j}[c], by fma over j
// from 0. The last tap meets the row itself. Channels are the lanes.
#pragma once

#include "backends/cpu/kernels/elementwise.h"

namespace continuo::CONTINUO_ISA {

template <class T> CONTINUO_INLINE void conv_lanes(const float* x, const float* tail, const float* weights, float* y,
                                                   size_t rows, size_t channels, size_t taps, size_t channel) {
  constexpr size_t lanes = sizeof(T) / sizeof(float);
  T w[max_taps];
  for (size_t j = 0; j < taps; ++j) {
    float column[lanes];
    for (size_t lane = 0; lane < lanes; ++lane) column[lane] = weights[(channel + lane) * taps + j];
    w[j] = load<T>(column);
  }
  for (size_t row = 0; row < rows; ++row) {
    T sum{};
    for (size_t j = 0; j < taps; ++j) {
      const size_t at = row + j;  // of the tail's rows followed by the call's
      const float* in = at < taps - 1 ? tail + at * channels : x + (at - (taps - 1)) * channels;
      sum = fma(w[j], load<T>(in + channel), sum);
    }
    store(y + row * channels + channel, silu(sum));
  }
}

inline void conv(const float* x, const float* tail, const float* weights, float* y, size_t rows, size_t channels,
                 size_t taps, size_t channel, size_t channel_end) {
  for (; channel + width <= channel_end; channel += width)
    conv_lanes<Vec>(x, tail, weights, y, rows, channels, taps, channel);
  for (; channel < channel_end; ++channel) conv_lanes<float>(x, tail, weights, y, rows, channels, taps, channel);
}

}  // namespace continuo::CONTINUO_ISA
