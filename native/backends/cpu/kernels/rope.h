// Rotary positions in fixed point: pair i turns by the phase increments[i] · clock, modulo 2³², where 2³² is a full
// turn. So the angle is exact at any clock. Su, Lu, Pan, Murtadha, Wen, Liu, "RoFormer" (2021), with the pairs (i, i +
// half) of the Llama models.
#pragma once

#include "backends/cpu/kernels/elementwise.h"

namespace continuo::CONTINUO_ISA {

template <class T> CONTINUO_INLINE void rope_lanes(const float* x, float* y, size_t heads, size_t pairs,
                                                   const uint32_t* increments, uint32_t clock, size_t i) {
  Phase<T> phase;
  __builtin_memcpy(&phase, increments + i, sizeof phase);
  const auto [sin, cos] = sincos_phase<T>(phase * clock);
  for (size_t head = 0; head < heads; ++head) {
    const size_t at = head * 2 * pairs + i;
    const T a = load<T>(x + at), b = load<T>(x + at + pairs);
    store(y + at, fma(a, cos, -(b * sin)));
    store(y + at + pairs, fma(b, cos, a * sin));
  }
}

inline void rope(const float* x, float* y, size_t heads, size_t pairs, const uint32_t* increments, uint32_t clock) {
  size_t i = 0;
  for (; i + width <= pairs; i += width) rope_lanes<Vec>(x, y, heads, pairs, increments, clock, i);
  for (; i < pairs; ++i) rope_lanes<float>(x, y, heads, pairs, increments, clock, i);
}

}  // namespace continuo::CONTINUO_ISA
