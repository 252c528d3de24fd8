// One vector of floats, `Vec`, as wide as the instruction set this file is compiled for. Arithmetic is GCC's and
// Clang's vector extension; only fma and widening 16-bit weights use intrinsics. Everything lives in a namespace named
// after the instruction set: the same source is compiled several times, and the linker must never swap one copy for
// another. For the same reason nothing here calls a std:: template.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define CONTINUO_INLINE inline __attribute__((always_inline))
#define CONTINUO_LAMBDA __attribute__((always_inline))

#include "backends/bits.h"

namespace continuo::CONTINUO_ISA {

#if defined(__AVX512F__)
constexpr size_t width = 16;
#elif defined(__AVX2__)
constexpr size_t width = 8;
#else
constexpr size_t width = 4;
#endif

typedef float Vec __attribute__((vector_size(width * 4)));
typedef int32_t Ints __attribute__((vector_size(width * 4)));
typedef uint32_t Words __attribute__((vector_size(width * 4)));
typedef uint16_t Halves __attribute__((vector_size(width * 2)));

// The numbers of a vector's lanes, to be spelled out.
template <size_t... lane> struct Lanes {};
#if defined(__AVX512F__)
using AllLanes = Lanes<0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15>;
#elif defined(__AVX2__)
using AllLanes = Lanes<0, 1, 2, 3, 4, 5, 6, 7>;
#else
using AllLanes = Lanes<0, 1, 2, 3>;
#endif

template <> struct BitsOf<Vec> {
  using type = Ints;
};
template <> struct PhaseOf<Vec> {
  using type = Words;
};

CONTINUO_INLINE Vec to_float(Ints i) { return __builtin_convertvector(i, Vec); }
CONTINUO_INLINE Ints to_int(Vec x) { return __builtin_convertvector(x, Ints); }

template <class T> CONTINUO_INLINE T load(const float* p) {
  T v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}

template <class T> CONTINUO_INLINE void store(float* p, T v) { __builtin_memcpy(p, &v, sizeof v); }

template <class T> CONTINUO_INLINE T splat(float x) { return T{} + x; }
template <> CONTINUO_INLINE float splat<float>(float x) { return x; }
template <> CONTINUO_INLINE Vec splat<Vec>(float x) {
#if defined(__AVX512F__)
  return (Vec)_mm512_set1_ps(x);
#elif defined(__AVX2__)
  return (Vec)_mm256_set1_ps(x);
#else
  return Vec{x, x, x, x};
#endif
}

CONTINUO_INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
CONTINUO_INLINE Vec fma(Vec a, Vec b, Vec c) {
#if defined(__AVX512F__)
  return (Vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__)
  return (Vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__aarch64__)
  return (Vec)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
  Vec out;
  for (size_t i = 0; i < width; ++i) out[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return out;
#endif
}

CONTINUO_INLINE float sqrt(float x) { return __builtin_sqrtf(x); }
CONTINUO_INLINE Vec sqrt(Vec x) {
#if defined(__AVX512F__)
  return (Vec)_mm512_sqrt_ps((__m512)x);
#elif defined(__AVX2__)
  return (Vec)_mm256_sqrt_ps((__m256)x);
#else
  for (size_t i = 0; i < width; ++i) x[i] = __builtin_sqrtf(x[i]);
  return x;
#endif
}

// `width` stored weights, widened exactly.
CONTINUO_INLINE Vec load_weights(const float* p) { return load<Vec>(p); }

struct Bf16 {
  uint16_t bits;
};
CONTINUO_INLINE Vec load_weights(const Bf16* p) {
#if defined(__AVX512F__)
  return cast<Vec>((Words)_mm512_maskz_cvtepu16_epi32(0xFFFF, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))
                   << 16);
#elif defined(__AVX2__)
  return cast<Vec>((Words)_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))) << 16);
#else
  Halves halves;
  __builtin_memcpy(&halves, p, sizeof halves);
  return cast<Vec>(__builtin_convertvector(halves, Words) << 16);
#endif
}

struct F16 {
  uint16_t bits;
};
CONTINUO_INLINE Vec load_weights(const F16* p) {
#if defined(__AVX512F__)
  return (Vec)_mm512_maskz_cvtph_ps(0xFFFF, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#elif defined(__AVX2__)
  return (Vec)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#elif defined(__aarch64__)
  return (Vec)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(&p->bits)));
#else
  // dtype.h widen_f16, lane by lane without branches.
  Halves halves;
  __builtin_memcpy(&halves, p, sizeof halves);
  const Words bits = __builtin_convertvector(halves, Words);
  const Words sign = (bits & 0x8000) << 16;
  const Words magnitude = bits & 0x7FFF;
  const Words normal = (magnitude << 13) + ((127u - 15u) << 23);
  const Words special = 0x7F800000 | (magnitude & 0x3FF) << 13;
  const Words subnormal = cast<Words>(__builtin_convertvector(magnitude, Vec) * splat<Vec>(0x1p-24f));
  const Words finite = magnitude >= 0x0400 ? normal : subnormal;
  return cast<Vec>(sign | (magnitude >= 0x7C00 ? special : finite));
#endif
}

}  // namespace continuo::CONTINUO_ISA
