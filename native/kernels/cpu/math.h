// Elementary functions from fma, add, mul, divide and exponent tricks, over T = float or Vec with the same bits.
// Polynomials were fitted by iteratively reweighted least squares to minimise the largest relative error; the
// tests compare every function with double precision and state the bounds.
#pragma once

#include "simd.h"

namespace continuo::CONTINUO_ISA {

// e^x, at most 1 ulp off where the result is normal. NaN stays NaN; overflow gives infinity, underflow 0.
template <class T>
CONTINUO_INLINE T exp(T x) {
  // Both bounds are past where the result leaves f32's range, and keep n within what two scalings can express.
  x = x < -110.0f ? splat<T>(-110.0f) : x;
  x = x > 90.0f ? splat<T>(90.0f) : x;
  // x = n·ln 2 + r, |r| ≤ ln 2 / 2. Adding 1.5·2²³ rounds to the nearest integer, which then sits in the low mantissa bits.
  const T shifter = splat<T>(12582912.0f);
  const T shifted = fma(x, splat<T>(1.44269504088896341f), shifter);
  const T n = shifted - shifter;
  // ln 2 in two parts, the first with enough trailing zeros that n times it is exact.
  T r = fma(n, splat<T>(-0x1.62e4p-1f), x);
  r = fma(n, splat<T>(-0x1.7f7d1cp-20f), r);
  T p = splat<T>(0x1.6a2448p-10f);
  p = fma(p, r, splat<T>(0x1.1239d4p-7f));
  p = fma(p, r, splat<T>(0x1.5558f2p-5f));
  p = fma(p, r, splat<T>(0x1.555492p-3f));
  p = fma(p, r, splat<T>(0x1.fffffcp-2f));
  p = fma(p * r, r, r) + 1.0f;
  // 2ⁿ in two factors, since n may exceed the exponent range at both ends.
  const Bits<T> whole = cast<Bits<T>>(shifted) - cast<Bits<T>>(shifter);
  const Bits<T> half = whole >> 1;
  const T scale_a = cast<T>((half + 127) << 23);
  const T scale_b = cast<T>((whole - half + 127) << 23);
  return p * scale_a * scale_b;
}

// Natural logarithm for x ≥ 2⁻¹²⁶, at most 2 ulp off outside the neighbourhood of 1 (there the error is below 2⁻²⁴ absolute).
template <class T>
CONTINUO_INLINE T log(T x) {
  // x = 2ⁿ·m with m in [√½, √2): subtracting the bits of √½ makes the exponent field the n we want.
  const Bits<T> bits = cast<Bits<T>>(x);
  const Bits<T> n = (bits - 0x3F3504F3) >> 23;
  const T m = cast<T>(bits - (n << 23));
  // log m = 2 artanh(s), s = (m − 1)/(m + 1).
  const T f = m - 1.0f;
  const T s = f / (m + 1.0f);
  const T z = s * s;
  T q = splat<T>(0.23582768f);
  q = fma(q, z, splat<T>(0.2853728f));
  q = fma(q, z, splat<T>(0.40000334f));
  q = fma(q, z, splat<T>(0.6666666f));
  // 2s = f − s·f, and f is exact: the small correction carries all the rounding.
  const T small = fma(s * z, q, -(s * f));
  // n is an integer below 2⁸, so the float made by exponent tricks is exact.
  const T exponent = cast<T>(n + 0x4B400000) - 12582912.0f;
  const T high = exponent * splat<T>(0x1.62e4p-1f);
  const T low = fma(exponent, splat<T>(0x1.7f7d1cp-20f), small);
  return high + (f + low);
}

template <class T>
CONTINUO_INLINE T sigmoid(T x) {
  return 1.0f / (1.0f + exp(-x));
}

template <class T>
CONTINUO_INLINE T tanh(T x) {
  const Bits<T> sign = cast<Bits<T>>(x) & static_cast<int32_t>(0x80000000);
  const T magnitude = cast<T>(cast<Bits<T>>(x) & 0x7FFFFFFF);
  // Near zero 1 − 2/(e²ˣ + 1) cancels; an odd polynomial takes over below 0.625.
  const T z = x * x;
  T p = splat<T>(0.002147537f);
  p = fma(p, z, splat<T>(-0.008182674f));
  p = fma(p, z, splat<T>(0.021702968f));
  p = fma(p, z, splat<T>(-0.053947203f));
  p = fma(p, z, splat<T>(0.1333321f));
  p = fma(p, z, splat<T>(-0.3333333f));
  const T near = fma(p * z, magnitude, magnitude);
  const T far = 1.0f - 2.0f / (exp(magnitude + magnitude) + 1.0f);
  const T value = magnitude < 0.625f ? near : far;
  return cast<T>(cast<Bits<T>>(value) | sign);
}

// exp(−e^(−1/2) · σ(x)): RWKV-7's decay, in (0.5452, 1).
template <class T>
CONTINUO_INLINE T decay(T x) {
  return exp(sigmoid(x) * splat<T>(-0.60653066f));
}

}  // namespace continuo::CONTINUO_ISA
