// `sincos_phase` of math.h for each instruction set, as the kernels compile it. Each phases_*.cc defines CONTINUO_ISA
// before it includes this header; callers include it without.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace continuo::test {

using Phases = void (*)(const uint32_t* phase, float* sin, float* cos, size_t n);
void phases_generic(const uint32_t* phase, float* sin, float* cos, size_t n);
void phases_avx2(const uint32_t* phase, float* sin, float* cos, size_t n);
void phases_avx512(const uint32_t* phase, float* sin, float* cos, size_t n);

// The versions that this CPU can run, in the order of runnable_kernels().
std::vector<Phases> runnable_phases();

}  // namespace continuo::test

#if defined(CONTINUO_ISA)
#include "backends/cpu/kernels/simd.h"
#include "backends/math.h"

namespace continuo::CONTINUO_ISA {

// Whole vectors, then single numbers: both run the same operations.
inline void phases(const uint32_t* phase, float* sin, float* cos, size_t n) {
  size_t i = 0;
  for (; i + width <= n; i += width) {
    Words turn;
    __builtin_memcpy(&turn, phase + i, sizeof turn);
    const auto both = sincos_phase<Vec>(turn);
    store(sin + i, both.sin);
    store(cos + i, both.cos);
  }
  for (; i < n; ++i) {
    const auto both = sincos_phase<float>(phase[i]);
    sin[i] = both.sin;
    cos[i] = both.cos;
  }
}

}  // namespace continuo::CONTINUO_ISA
#endif
