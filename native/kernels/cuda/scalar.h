// The words in which math.h is written, for one thread of the device: T is float, and a vector is the block's threads. Everything
// lives in namespace continuo::cuda. As on the CPU, contraction is off (-fmad=false), fma is written out, and division and square
// root are IEEE's (nvcc's default, which no flag here changes).
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda.h"

#define CONTINUO_ISA cuda
#define CONTINUO_INLINE __device__ __forceinline__
#define CONTINUO_LAMBDA

namespace continuo::cuda {

template <class T> struct BitsOf;
template <> struct BitsOf<float> { using type = int32_t; };
template <class T> using Bits = typename BitsOf<T>::type;

template <class T> struct PhaseOf;
template <> struct PhaseOf<float> { using type = uint32_t; };
template <class T> using Phase = typename PhaseOf<T>::type;

template <class To, class From>
CONTINUO_INLINE To cast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

template <class T>
CONTINUO_INLINE T splat(float x) {
  return x;
}

CONTINUO_INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
CONTINUO_INLINE float sqrt(float x) { return __builtin_sqrtf(x); }
CONTINUO_INLINE float to_float(int32_t i) { return static_cast<float>(i); }
CONTINUO_INLINE int32_t to_int(float x) { return static_cast<int32_t>(x); }

}  // namespace continuo::cuda

#include "../math.h"
