// The rules of math.h for a single number: the same roundings in the same order, but with branches, nearbyint and ldexp
// where the kernels use selects and bit operations. Kernels must give these bits.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace continuo::test::reference {

// e^(x + tail) = fraction · 2^n.
struct Power {
  float fraction;
  int n;
};

inline Power power(float x, float tail = 0) {
  // The product of two f32 is exact in double: one rounding, to an integer.
  const int n = static_cast<int>(std::nearbyint(double{x} * double{1.44269504f}));
  float r = std::fma(static_cast<float>(n), -0x1.62e4p-1f, x);
  r = std::fma(static_cast<float>(n), -0x1.7f7d1cp-20f, r) + tail;
  float p = 0x1.69e2dp-10f;
  for (const float c : {0x1.123ab8p-7f, 0x1.55584cp-5f, 0x1.5554aep-3f, 0x1.000002p-1f}) p = std::fma(p, r, c);
  return {std::fma(p * r, r, r) + 1.0f, n};
}

inline float exp(float x) {
  if (std::isnan(x) || x == INFINITY) return x;
  if (x < -110) return 0;
  if (x > 90) return INFINITY;
  const auto [fraction, n] = power(x);
  return std::ldexp(fraction, n);
}

inline float log_sum(int n, float f) {
  const float s = f / (f + 2.0f), z = s * s;
  const float q = std::fma(std::fma(0x1.2ef818p-2f, z, 0x1.997b92p-2f), z, 0x1.55555cp-1f);
  const float high = static_cast<float>(n) * 0x1.62e4p-1f;
  const float sum = high + f;
  const float lost = f - (sum - high);
  return sum + std::fma(s, std::fma(z, q, -f), std::fma(static_cast<float>(n), 0x1.7f7d1cp-20f, lost));
}

inline float log(float x) {
  if (std::isnan(x) || x < 0) return NAN;
  if (x == 0) return -INFINITY;
  if (std::isinf(x)) return x;
  int n;
  float m = std::frexp(x, &n);  // in [½, 1)
  if (m < std::bit_cast<float>(0x3F3504F3)) m *= 2, --n;
  return log_sum(n, m - 1.0f);
}

inline float tanh(float x) {
  if (std::isnan(x)) return x;
  const float m = std::fabs(x);
  if (m < 0.625f) {
    const float z = m * m;
    float p = 0x1.1abac8p-9f;
    for (const float c : {-0x1.0c84eep-7f, 0x1.63ac7p-6f, -0x1.b9f218p-5f, 0x1.11107cp-3f, -0x1.555554p-2f})
      p = std::fma(p, z, c);
    return std::copysign(std::fma(p * z, m, m), x);
  }
  const float t = exp(-2.0f * std::fmin(m, 10.0f));
  return std::copysign(1.0f - 2.0f * t / (t + 1.0f), x);
}

inline float sigmoid(float x) {
  if (std::isnan(x)) return x;
  const float t = exp(-std::fabs(x));
  const float q = t / (t + 1.0f);
  return x < 0 ? std::fma(-t, q, t) : 1.0f - q;
}

inline float decay(float x) { return exp(sigmoid(x) * -0.60653066f); }

// x·σ(y), e^−|y| = fraction · 2^n.
inline float gated(float x, Power e) {
  const float t = std::ldexp(e.fraction, e.n);
  const float sum = t + 1.0f;
  const float q = t / sum;
  if (x > 110) return x;
  if (!(x < 0)) return std::copysign(std::fma(-x, q, x), x);
  const float residue = std::fma(-q, t - (sum - 1.0f), std::fma(-q, sum, t));
  const float q_tail = residue * (1.0f - q);
  const float bounded = std::fmax(x, -110.0f);
  const float raised = std::ldexp(e.fraction, e.n + 64);
  const float product = bounded * raised;
  const float lost = std::fma(bounded, raised, -product);
  return std::ldexp(product + std::fma(-product, q, std::fma(-product, q_tail, lost)), -64);
}

inline float silu(float x) { return std::isnan(x) ? x : gated(x, power(-std::fmin(std::fabs(x), 110.0f))); }

inline float gelu(float x) {
  if (std::isnan(x)) return x;
  const float a = 0x1.988454p+0f, b = 0x1.2444f2p-4f;
  const float m = std::fmin(std::fabs(x), 10.9f);
  const float square = m * m, square_tail = std::fma(m, m, -square);
  const float cubic = square * b, cubic_tail = std::fma(square, b, -cubic);
  const float slope = cubic + a, part = slope - cubic;
  const float small = std::fma(square_tail, b, std::fma(square, 0x1.49b16ap-29f, -0x1.857936p-25f));
  const float slope_tail = (cubic - (slope - part)) + (a - part) + cubic_tail + small;
  const float y = m * slope;
  return gated(x, power(-y, -std::fma(m, slope_tail, std::fma(m, slope, -y))));
}

inline float gelu_erf(float x) {
  if (std::isnan(x)) return x;
  const float m = std::fmin(std::fabs(x), 14.8f);
  const float square = m * m, square_tail = std::fma(m, m, -square);
  const float q = (m - 4.0f) / (m + 4.0f);
  float p = -0x1.94e756p-14f;
  for (const float c : {-0x1.fc9848p-14f, 0x1.5e54ap-11f, -0x1.1646f2p-12f, -0x1.463a6ap-8f, 0x1.25cf4cp-6f,
                        -0x1.07d0d6p-5f, 0x1.d49718p-6f, 0x1.cac1bp-7f, -0x1.8c18f2p-4f, 0x1.e361eap-2f})
    p = std::fma(p, q, c);
  const float weight = m * (p / (m + 1.0f));
  const auto [fraction, n] = power(square * -0.5f, -(square_tail * 0.5f));
  if (x < 0) return -std::ldexp(weight * std::ldexp(fraction, n + 64), -64);
  return std::copysign(std::fma(-weight, std::ldexp(fraction, n), x), x);
}

inline float softplus(float x) {
  if (std::isnan(x)) return x;
  const float t = exp(-std::fabs(x));
  const float rest = t > 0.41421356f ? log_sum(1, std::fma(t, 0.5f, -0.5f)) : log_sum(0, t);
  return std::fmax(x, 0.0f) + rest;
}

struct SinCos {
  float sin, cos;
};

// Of the angle 2π·phase/2³².
inline SinCos sincos(uint32_t phase) {
  const uint32_t quarter = (phase + 0x20000000u) >> 30;
  const auto rest = static_cast<int32_t>(phase - (quarter << 30));
  const float units = static_cast<float>(rest);
  const float left = static_cast<float>(rest - static_cast<int32_t>(units));
  const float radians = 0x1.921fb6p-30f, a = units * radians;
  const float tail = std::fma(units, radians, -a) + std::fma(units, -0x1.777a5cp-55f, left * radians);
  const float z = a * a, most = 1.0f - z * 0.5f, lost = (1.0f - most) - z * 0.5f;
  float p = 0x1.77e21p-19f;
  for (const float coefficient : {-0x1.a04866p-13f, 0x1.111164p-7f, -0x1.555556p-3f}) p = std::fma(p, z, coefficient);
  const float s = a + std::fma(p * z, a, tail * most);
  float r = 0x1.99e914p-16f;
  for (const float coefficient : {-0x1.6c0c2ap-10f, 0x1.55554ap-5f}) r = std::fma(r, z, coefficient);
  const float c = most + std::fma(z * z, r, std::fma(-s, tail, lost));
  switch (quarter) {
    case 0: return {s + 0.0f, c + 0.0f};
    case 1: return {c + 0.0f, -s + 0.0f};
    case 2: return {-s + 0.0f, -c + 0.0f};
    default: return {-c + 0.0f, s + 0.0f};
  }
}

}  // namespace continuo::test::reference
