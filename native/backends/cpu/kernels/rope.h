// Rotary positions in fixed point: pair i turns by the phase increments[i] · position, modulo 2³², where 2³² is a full
// turn. So the angle is exact at any position. Su, Lu, Pan, Murtadha, Wen, Liu, "RoFormer" (2021), with the pairs (i, i
// + pairs) of the Llama models. Channels of a head behind its pairs stay as they are.
#pragma once

#include <cstdint>

#include "backends/cpu/kernels/elementwise.h"

namespace continuo::CONTINUO_ISA {

template <class T> CONTINUO_INLINE void rope_lanes(const float* x, float* y, size_t heads, size_t channels,
                                                   size_t pairs, const uint32_t* increments, uint32_t position,
                                                   size_t i) {
  Phase<T> phase;
  __builtin_memcpy(&phase, increments + i, sizeof phase);
  const auto [sin, cos] = sincos_phase<T>(phase * position);
  for (size_t head = 0; head < heads; ++head) {
    const size_t at = head * channels + i;
    const T a = load<T>(x + at), b = load<T>(x + at + pairs);
    store(y + at, fma(a, cos, -(b * sin)));
    store(y + at + pairs, fma(b, cos, a * sin));
  }
}

inline void rope(const float* x, float* y, size_t heads, size_t channels, size_t pairs, const uint32_t* increments,
                 uint32_t position) {
  size_t i = 0;
  for (; i + width <= pairs; i += width) rope_lanes<Vec>(x, y, heads, channels, pairs, increments, position, i);
  for (; i < pairs; ++i) rope_lanes<float>(x, y, heads, channels, pairs, increments, position, i);
  for (size_t head = 0; head < heads && 2 * pairs < channels; ++head) {
    const size_t at = head * channels + 2 * pairs;
    __builtin_memcpy(y + at, x + at, (channels - 2 * pairs) * sizeof(float));
  }
}

}  // namespace continuo::CONTINUO_ISA
