// The perspective decay recurrence, token by token (docs/perspective.md), and what else its family needs. With S[b][a],
// b a key and a a channel:
//   u[a]    = (1 − γ[a]) v[a]                            plain: v[a]
//   S[b][a] ← fma(γ[a], S[b][a], k[b] u[a])
//   o[a]    = Σ_b S[b][a] q[b]                           by fma over b from 0, of the new S
// Channels are the lanes. Some keys at a time go through all tokens, so that their state stays in registers; y holds
// the sum so far.
#pragma once

#include <cstdint>

#include "backends/cpu/kernels/elementwise.h"

namespace continuo::CONTINUO_ISA {

template <class T, size_t Keys> CONTINUO_INLINE void pdr_tile(const PdrRun& run, size_t lane, size_t key) {
  float* const state = run.state + key * run.channels + lane;
  T s[Keys];
#pragma GCC unroll 16
  for (size_t b = 0; b < Keys; ++b) s[b] = load<T>(state + b * run.channels);
  for (size_t t = 0; t < run.tokens; ++t) {
    const size_t at = t * run.channels + lane;
    const float *k = run.k + t * run.keys + key, *q = run.q + t * run.keys + key;
    const T gamma = load<T>(run.gamma + at), v = load<T>(run.v + at);
    const T u = run.convex ? (splat<T>(1.0f) - gamma) * v : v;
    T sum = key == 0 ? T{} : load<T>(run.y + at);
#pragma GCC unroll 16
    for (size_t b = 0; b < Keys; ++b) {
      s[b] = fma(gamma, s[b], splat<T>(k[b]) * u);
      sum = fma(s[b], splat<T>(q[b]), sum);
    }
    store(run.y + at, sum);
  }
#pragma GCC unroll 16
  for (size_t b = 0; b < Keys; ++b) store(state + b * run.channels, s[b]);
}

template <class T> CONTINUO_INLINE void pdr_lanes(const PdrRun& run, size_t lane) {
  size_t key = 0;
  for (; key + 8 <= run.keys; key += 8) pdr_tile<T, 8>(run, lane, key);
  for (; key < run.keys; ++key) pdr_tile<T, 1>(run, lane, key);
}

inline void pdr(const PdrRun& run, size_t lane, size_t lane_end) {
  for (; lane + width <= lane_end; lane += width) pdr_lanes<Vec>(run, lane);
  for (; lane < lane_end; ++lane) pdr_lanes<float>(run, lane);
}

// What pdr reads, of a state that stays as it is: y[a] = Σ_b S[b][a] q[b] of one head.
template <class T>
CONTINUO_INLINE void recall_lanes(const float* S, const float* q, float* y, size_t keys, size_t channels, size_t lane) {
  T sum{};
  for (size_t b = 0; b < keys; ++b) sum = fma(load<T>(S + b * channels + lane), splat<T>(q[b]), sum);
  store(y + lane, sum);
}

inline void recall_keys(const float* S, const float* q, float* y, size_t keys, size_t channels) {
  size_t lane = 0;
  for (; lane + width <= channels; lane += width) recall_lanes<Vec>(S, q, y, keys, channels, lane);
  for (; lane < channels; ++lane) recall_lanes<float>(S, q, y, keys, channels, lane);
}

// Of a number its share behind the point, 0 … 1; of a tiny negative one it may round to 1, which is the point 0. Not
// finite: NaN.
CONTINUO_INLINE float frac(float z) {
  if (!(z < 0x1p23f && z > -0x1p23f)) return z - z;
  const float whole = static_cast<float>(static_cast<int32_t>(z));
  return z - (whole > z ? whole - 1.0f : whole);
}

// Squared distances on a torus of 1 × 1: δ = |c − z|, δ = min(δ, 1 − δ), d = fma(δ₁, δ₁, δ₀ δ₀).
inline void torus(const float* z, const float* positions, const float* offsets, float* d, size_t n) {
  const float at[2] = {frac(z[0]), frac(z[1])};
  for (size_t i = 0; i < n; ++i) {
    float delta[2];
    for (size_t axis = 0; axis < 2; ++axis) {
      const float p = positions[2 * i + axis];
      const float c = frac(offsets ? p + offsets[2 * i + axis] : p);
      const float apart = c > at[axis] ? c - at[axis] : at[axis] - c, around = 1.0f - apart;
      delta[axis] = apart < around ? apart : around;
      if (apart != apart) delta[axis] = apart;
    }
    d[i] = fma(delta[1], delta[1], delta[0] * delta[0]);
  }
}

// y ← fma(factor, x, y).
inline void axpy(float factor, const float* x, float* y, size_t n) {
  map(n, y, [=](auto a, auto b) CONTINUO_LAMBDA { return fma(splat<decltype(a)>(factor), a, b); }, x, y);
}

// A vector as whole numbers under one scale, which is dropped: s = max|x| / 127, x / s to the nearest, ties to even,
// clamped to ±127. All 0 where s is 0 or not finite.
inline void whole(const float* x, int8_t* out, size_t n) {
  float most = 0.0f;
  for (size_t i = 0; i < n; ++i) {
    const float size = x[i] < 0.0f ? -x[i] : x[i];
    if (size > most || size != size) most = size;
  }
  const float s = most / 127.0f;
  const bool usable = s > 0.0f && s - s == 0.0f;
  for (size_t i = 0; i < n; ++i) {
    const float q = usable ? x[i] / s + to_nearest - to_nearest : 0.0f;
    out[i] = static_cast<int8_t>(q > 127.0f ? 127.0f : q < -127.0f ? -127.0f : q);
  }
}

}  // namespace continuo::CONTINUO_ISA
