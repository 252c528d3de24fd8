// The words in which math.h is written, for one thread of the device: T is float, and a vector is the block's threads.
// Everything lives in namespace continuo::cuda. As on the CPU, contraction is off (-fmad=false), fma is written out,
// and division and square root are IEEE's (nvcc's default, which no flag here changes).
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cuda/kernels/cuda.h"

#define CONTINUO_ISA cuda
#define CONTINUO_INLINE __device__ __forceinline__
#define CONTINUO_LAMBDA

#include "backends/bits.h"

namespace continuo::cuda {

template <class T> CONTINUO_INLINE T splat(float x) { return x; }

CONTINUO_INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
CONTINUO_INLINE float sqrt(float x) { return __builtin_sqrtf(x); }

}  // namespace continuo::cuda

#include "backends/math.h"
