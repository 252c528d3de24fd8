// A causal convolution of each channel with its own taps: z[c] = b[c] + Σ_j w[c, j] x_{t−taps+1+j}[c], by fma over j
// from 0, and silu of that where the run says so. The last tap meets the row itself. Channels are the lanes.
#pragma once

#include "backends/cpu/kernels/elementwise.h"

namespace continuo::CONTINUO_ISA {

template <class T> CONTINUO_INLINE void conv_lanes(const ConvRun& run, size_t channel) {
  constexpr size_t lanes = sizeof(T) / sizeof(float);
  const auto& [x, tail, weights, bias, y, rows, channels, taps, activated] = run;
  T w[max_taps];
  for (size_t j = 0; j < taps; ++j) {
    float column[lanes];
    for (size_t lane = 0; lane < lanes; ++lane) column[lane] = weights[(channel + lane) * taps + j];
    w[j] = load<T>(column);
  }
  const T first = bias ? load<T>(bias + channel) : T{};
  for (size_t row = 0; row < rows; ++row) {
    T sum = first;
    for (size_t j = 0; j < taps; ++j) {
      const size_t at = row + j;  // of the tail's rows followed by the call's
      const float* in = at < taps - 1 ? tail + at * channels : x + (at - (taps - 1)) * channels;
      sum = fma(w[j], load<T>(in + channel), sum);
    }
    store(y + row * channels + channel, activated ? silu(sum) : sum);
  }
}

inline void conv(const ConvRun& run, size_t channel, size_t channel_end) {
  for (; channel + width <= channel_end; channel += width) conv_lanes<Vec>(run, channel);
  for (; channel < channel_end; ++channel) conv_lanes<float>(run, channel);
}

}  // namespace continuo::CONTINUO_ISA
