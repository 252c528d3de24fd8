// Elementary functions from fma, add, mul, divide and operations on the exponent bits, over T = float or Vec with the
// same bits: no branches, no tables, no C library. All are total: infinities, subnormals and both zeros give the
// mathematical result, NaN gives NaN. Polynomials are minimax fits with f32 coefficients; the coefficients of exp were
// then moved by some units in the last place to minimise the largest error of the whole function. docs/arithmetic.md
// has the measured error of each function over all 2³² inputs; native/test/kernels/ulp.h states the bounds that the
// tests check.
//
// Compiled once for every instruction set and once for CUDA. Before including it, define CONTINUO_ISA (the namespace),
// Bits, Phase, cast, splat, fma, to_float and to_int (cpu/simd.h, cuda/scalar.h).
#pragma once

#include <cstdint>

namespace continuo::CONTINUO_ISA {

// ln 2 in two parts, the first with enough trailing zeros that n times it is exact for |n| < 2⁹.
constexpr float ln2_high = 0x1.62e4p-1f, ln2_low = 0x1.7f7d1cp-20f;
// Adding 1.5·2²³ rounds to the nearest integer, which then sits in the low mantissa bits.
constexpr float to_nearest = 12582912.0f;

// e^x = fraction · 2^exponent, fraction in [0.7, 1.42]. For |x| ≤ 110; NaN gives a fraction of NaN and some exponent.
template <class T> struct Power {
  T fraction;
  Bits<T> exponent;
};

// e^(x + tail), where tail is at most a rounding error of x.
template <class T, class Tail> CONTINUO_INLINE Power<T> power(T x, Tail tail) {
  // x = n·ln 2 + r, |r| ≤ ln 2 / 2.
  const T shifted = fma(x, splat<T>(1.44269504088896341f), splat<T>(to_nearest));
  const T n = shifted - to_nearest;
  const T r = tail(fma(n, splat<T>(-ln2_low), fma(n, splat<T>(-ln2_high), x)));
  T p = splat<T>(0x1.69e2dp-10f);
  p = fma(p, r, splat<T>(0x1.123ab8p-7f));
  p = fma(p, r, splat<T>(0x1.55584cp-5f));
  p = fma(p, r, splat<T>(0x1.5554aep-3f));
  p = fma(p, r, splat<T>(0x1.000002p-1f));
  return {fma(p * r, r, r) + 1.0f, cast<Bits<T>>(shifted) - static_cast<int32_t>(0x4B400000)};
}
template <class T> CONTINUO_INLINE Power<T> power(T x) {
  return power(x, [](T r) CONTINUO_LAMBDA { return r; });
}

// fraction · 2^(exponent + bias), exact where exponent + bias is in [−126, 127].
template <class T> CONTINUO_INLINE T scaled(Power<T> e, int32_t bias) {
  return e.fraction * cast<T>((e.exponent + (127 + bias)) << 23);
}

// e^(x)·2⁶⁴ for x ≤ 0. With this factor a result that underflows stays exact until the caller's last multiplication, by
// 2⁻⁶⁴, which rounds it once. At −110, e^x has long rounded to 0.
template <class T> CONTINUO_INLINE T raised_exp(T x) { return scaled(power(x < -110.0f ? splat<T>(-110.0f) : x), 64); }

template <class T> CONTINUO_INLINE T magnitude(T x) { return cast<T>(cast<Bits<T>>(x) & 0x7FFFFFFF); }

template <class T> CONTINUO_INLINE Bits<T> sign_of(T x) { return cast<Bits<T>>(x) & static_cast<int32_t>(0x80000000); }

template <class T> CONTINUO_INLINE T exp(T x) {
  // Beyond both bounds the result is out of f32's range anyway; within them two scalings can express the exponent.
  x = x < -110.0f ? splat<T>(-110.0f) : x;
  x = x > 90.0f ? splat<T>(90.0f) : x;
  const auto e = power(x);
  const Bits<T> half = e.exponent >> 1;
  return e.fraction * cast<T>((half + 127) << 23) * cast<T>((e.exponent - half + 127) << 23);
}

// n·ln 2 + log(1 + f) for 1 + f in [√½, √2] and an integer n, |n| ≤ 149.
template <class T> CONTINUO_INLINE T log_sum(T n, T f) {
  // log(1 + f) = 2 artanh(s), s = f/(2 + f); and 2s = f − s·f, where f is exact and the rest small.
  const T s = f / (f + 2.0f);
  const T z = s * s;
  T q = splat<T>(0x1.2ef818p-2f);
  q = fma(q, z, splat<T>(0x1.997b92p-2f));
  q = fma(q, z, splat<T>(0x1.55555cp-1f));
  // The sum of the two large terms is rounded to `sum`; what that loses (exact, as |n ln 2| > |f| or n = 0) joins the
  // small terms.
  const T high = n * splat<T>(ln2_high);
  const T sum = high + f;
  const T lost = f - (sum - high);
  return sum + fma(s, fma(z, q, -f), fma(n, splat<T>(ln2_low), lost));
}

template <class T> CONTINUO_INLINE T log(T x) {
  // A subnormal is brought to the normal range, and the integer that becomes n is read 23 lower.
  const auto tiny = x < 0x1p-126f;
  const Bits<T> bits = cast<Bits<T>>(tiny ? x * 0x1p23f : x) & 0x7FFFFFFF;
  // x = 2ⁿ·m with m in [√½, √2): subtracting the bits of √½ makes the exponent field the n we want.
  const Bits<T> n = (bits - 0x3F3504F3) >> 23;
  const T m = cast<T>(bits - (n << 23));
  const T finite =
      log_sum(cast<T>(n + 0x4B400000) - (tiny ? splat<T>(to_nearest + 23.0f) : splat<T>(to_nearest)), m - 1.0f);
  const T edge = x == 0.0f ? splat<T>(-__builtin_inff()) : splat<T>(__builtin_nanf(""));
  const T value = x > 0.0f ? finite : edge;
  return x == __builtin_inff() ? x : value;
}

// With t = e^−|x| and q = t/(1 + t): 1 − q for x ≥ 0, t − t·q below, as the rounding of q counts less than that of 1/(1
// + t).
template <class T> CONTINUO_INLINE T sigmoid(T x) {
  const T t = raised_exp(-magnitude(x)) * 0x1p-64f;
  const T base = x < 0.0f ? t : splat<T>(1.0f);
  return fma(-base, t / (t + 1.0f), base);
}

template <class T> CONTINUO_INLINE T tanh(T x) {
  const T m = magnitude(x);
  // Near zero 1 − 2t/(1 + t) with t = e^−2|x| cancels; an odd polynomial takes over below 0.625.
  const T z = x * x;
  T p = splat<T>(0x1.1abac8p-9f);
  p = fma(p, z, splat<T>(-0x1.0c84eep-7f));
  p = fma(p, z, splat<T>(0x1.63ac7p-6f));
  p = fma(p, z, splat<T>(-0x1.b9f218p-5f));
  p = fma(p, z, splat<T>(0x1.11107cp-3f));
  p = fma(p, z, splat<T>(-0x1.555554p-2f));
  const T near = fma(p * z, m, m);
  // From 10 on the result is 1.
  const T t = scaled(power((m > 10.0f ? splat<T>(10.0f) : m) * -2.0f), 0);
  const T far = 1.0f - (t + t) / (t + 1.0f);
  return cast<T>(cast<Bits<T>>(m < 0.625f ? near : far) | sign_of(x));
}

// max(x, 0)²; NaN stays NaN.
template <class T> CONTINUO_INLINE T relu2(T x) {
  const T positive = x < 0.0f ? splat<T>(0.0f) : x;
  return positive * positive;
}

// NaN stays NaN.
template <class T> CONTINUO_INLINE T clamp(T x, float low, float high) {
  const T least = x < low ? splat<T>(low) : x;
  return least > high ? splat<T>(high) : least;
}

template <class T> CONTINUO_INLINE T add(T x, T y) { return x + y; }
template <class T> CONTINUO_INLINE T mul(T x, T y) { return x * y; }

// exp(−e^(−1/2) · σ(x)): RWKV-7's decay, in (0.5452, 1).
template <class T> CONTINUO_INLINE T decay(T x) { return scaled(power(sigmoid(x) * -0.60653066f), 0); }

// x·σ(y) as in `sigmoid`, where x and y have one sign and `raised` is raised_exp(−|y|). A result that underflows does
// so in the last product.
template <class T> CONTINUO_INLINE T gated(T x, T raised) {
  const T t = raised * 0x1p-64f;
  // t/(1 + t) = q + q_tail: what the sum and the quotient lose, over 1 + t, which is the same as times 1 − q.
  const T sum = t + 1.0f;
  const T q = t / sum;
  const T residue = fma(-q, t - (sum - 1.0f), fma(-q, sum, t));
  const T q_tail = residue * (1.0f - q);
  // Beyond 110 either way the result is x or −0; ∞ · 0 stays away. Below 0 what the product loses is carried along.
  const T bounded = x < -110.0f ? splat<T>(-110.0f) : x;
  const T product = bounded * raised;
  const T lost = fma(bounded, raised, -product);
  const T below = (product + fma(-product, q, fma(-product, q_tail, lost))) * 0x1p-64f;
  const T above = x > 110.0f ? x : fma(-x, q, x);
  const T value = x < 0.0f ? below : above;
  return cast<T>(cast<Bits<T>>(value) | sign_of(x));  // −0 stays −0
}

// x·σ(x).
template <class T> CONTINUO_INLINE T silu(T x) { return gated(x, raised_exp(-magnitude(x))); }

// 0.5·x·(1 + tanh(√(2/π)(x + 0.044715x³))), GPT-2's gelu. As (1 + tanh u)/2 = σ(2u), it is x·σ(x(a + b·x²)): nothing
// cancels. For negative x the relative error of e^−2|u| is the absolute error of 2u, up to 110: so 2u carries a tail.
template <class T> CONTINUO_INLINE T gelu(T x) {
  constexpr float a = 0x1.988454p+0f, a_tail = -0x1.857936p-25f;  // 2√(2/π)
  constexpr float b = 0x1.2444f2p-4f, b_tail = 0x1.49b16ap-29f;   // 0.044715·a
  // At 10.9, 2u is 109.8 and the result x or −0.
  const T m = magnitude(x) > 10.9f ? splat<T>(10.9f) : magnitude(x);
  const T square = m * m;
  const T square_tail = fma(m, m, -square);
  const T cubic = square * b;
  const T cubic_tail = fma(square, splat<T>(b), -cubic);
  const T slope = cubic + a;
  const T part = slope - cubic;
  const T slope_tail = (cubic - (slope - part)) + (a - part) + cubic_tail +
                       fma(square_tail, splat<T>(b), fma(square, splat<T>(b_tail), splat<T>(a_tail)));
  const T y = m * slope;
  const T y_tail = fma(m, slope_tail, fma(m, slope, -y));
  return gated(x, scaled(power(-y, [=](T r) CONTINUO_LAMBDA { return r - y_tail; }), 64));
}

// x·Φ(x), Φ the normal distribution's: Φ(−m) = e^(−m²/2) · p(q) / (1 + m) with q = (m − 4)/(m + 4), where p hardly
// changes. The relative error of e^(−m²/2) is the absolute error of m²/2, up to 110: so m² carries a tail.
template <class T> CONTINUO_INLINE T gelu_erf(T x) {
  // At 14.8 the result is x or −0.
  const T m = magnitude(x) > 14.8f ? splat<T>(14.8f) : magnitude(x);
  const T square = m * m;
  const T square_tail = fma(m, m, -square);
  const T q = (m - 4.0f) / (m + 4.0f);
  T p = splat<T>(-0x1.94e756p-14f);
  p = fma(p, q, splat<T>(-0x1.fc9848p-14f));
  p = fma(p, q, splat<T>(0x1.5e54ap-11f));
  p = fma(p, q, splat<T>(-0x1.1646f2p-12f));
  p = fma(p, q, splat<T>(-0x1.463a6ap-8f));
  p = fma(p, q, splat<T>(0x1.25cf4cp-6f));
  p = fma(p, q, splat<T>(-0x1.07d0d6p-5f));
  p = fma(p, q, splat<T>(0x1.d49718p-6f));
  p = fma(p, q, splat<T>(0x1.cac1bp-7f));
  p = fma(p, q, splat<T>(-0x1.8c18f2p-4f));
  p = fma(p, q, splat<T>(0x1.e361eap-2f));
  const T weight = m * (p / (m + 1.0f));
  const T raised = scaled(power(square * -0.5f, [=](T r) CONTINUO_LAMBDA { return r - square_tail * 0.5f; }), 64);
  const T value = x < 0.0f ? weight * raised * 0x1p-64f : fma(-weight, raised * 0x1p-64f, x);
  return cast<T>((cast<Bits<T>>(value) & 0x7FFFFFFF) | sign_of(x));
}

// log(1 + e^x) = max(x, 0) + log(1 + t), t = e^−|x|.
template <class T> CONTINUO_INLINE T softplus(T x) {
  const T t = raised_exp(-magnitude(x)) * 0x1p-64f;
  // 1 + t = 2ⁿ(1 + f), without ever rounding 1 + t.
  const auto large = t > 0.41421356f;
  const T f = large ? fma(t, splat<T>(0.5f), splat<T>(-0.5f)) : t;
  const T rest = log_sum(large ? splat<T>(1.0f) : T{}, f);
  return (x < 0.0f ? T{} : x) + rest;
}

template <class T> struct SinCos {
  T sin, cos;
};

// Both of the angle 2π·phase/2³². Eight-fold symmetry is exact: phases at the same distance from a multiple of a
// quarter turn share their magnitudes. Zeros are positive.
template <class T> CONTINUO_INLINE SinCos<T> sincos_phase(Phase<T> phase) {
  // The nearest quarter turn, and what is left: |rest| ≤ 2²⁹, an eighth of a turn.
  const Phase<T> quarter = (phase + 0x20000000u) >> 30;
  const Bits<T> rest = cast<Bits<T>>(phase - (quarter << 30));
  // The angle in radians as a + tail. `rest` has up to 30 bits: what its f32 loses goes into the tail.
  constexpr float radians = 0x1.921fb6p-30f, radians_tail = -0x1.777a5cp-55f;  // 2π/2³²
  const T units = to_float(rest);
  const T left = to_float(rest - to_int(units));
  const T a = units * radians;
  const T tail = fma(units, splat<T>(radians), -a) + fma(units, splat<T>(radians_tail), left * radians);
  const T z = a * a;
  // 1 − z/2 is rounded; what that loses joins the small terms.
  const T most = 1.0f - z * 0.5f;
  const T lost = (1.0f - most) - z * 0.5f;
  T s = splat<T>(0x1.77e21p-19f);
  s = fma(s, z, splat<T>(-0x1.a04866p-13f));
  s = fma(s, z, splat<T>(0x1.111164p-7f));
  s = fma(s, z, splat<T>(-0x1.555556p-3f));
  s = a + fma(s * z, a, tail * most);
  T c = splat<T>(0x1.99e914p-16f);
  c = fma(c, z, splat<T>(-0x1.6c0c2ap-10f));
  c = fma(c, z, splat<T>(0x1.55554ap-5f));
  c = most + fma(z * z, c, fma(-s, tail, lost));
  // Quarter q turns (s, c) into (s, c), (c, −s), (−s, −c), (−c, s).
  const auto odd = (quarter & 1u) != 0u;
  const Phase<T> sin_sign = (quarter & 2u) << 30;
  const Phase<T> cos_sign = ((quarter + 1u) & 2u) << 30;
  return {cast<T>(cast<Phase<T>>(odd ? c : s) ^ sin_sign) + 0.0f,
          cast<T>(cast<Phase<T>>(odd ? s : c) ^ cos_sign) + 0.0f};
}

}  // namespace continuo::CONTINUO_ISA
