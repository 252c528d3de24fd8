// Mamba-2's recurrence (Dao and Gu 2024, the scalar-identity form), token by token. With S[j][i], j the key (a channel
// of B and C) and i the channel of the head:
//   S[j][i] ← w S[j][i] + (dt x[i]) b[j]
//   y[i]    = Σ_j S[j][i] c[j] + D x[i]        (the new S)
// The sum runs over j from 0 by fma and ends with D x; a head has at most 256 keys, so it is a single block. Channels
// are the lanes. Some keys at a time go through all tokens, so that their state stays in registers; y holds the sum so
// far.
#pragma once

#include "backends/cpu/kernels/elementwise.h"

namespace continuo::CONTINUO_ISA {

template <class T, size_t Vectors, size_t Keys>
CONTINUO_INLINE void ssm_tile(const SsmRun& run, size_t lane, size_t key) {
  constexpr size_t step = sizeof(T) / sizeof(float);
  const bool begins = key == 0, ends = key + Keys == run.keys;
  float* const state = run.state + key * run.channels + lane;
  T s[Keys][Vectors];
#pragma GCC unroll 16
  for (size_t j = 0; j < Keys; ++j) {
#pragma GCC unroll 16
    for (size_t i = 0; i < Vectors; ++i) s[j][i] = load<T>(state + j * run.channels + i * step);
  }
  for (size_t t = 0; t < run.tokens; ++t) {
    const T w = splat<T>(run.w[t * run.heads]), dt = splat<T>(run.dt[t * run.heads]);
    const float *b = run.b + t * run.key_stride + key, *c = run.c + t * run.key_stride + key;
    const float* const in = run.x + t * run.stride + lane;
    float* const out = run.y + t * run.stride + lane;
    T x[Vectors], sum[Vectors];
#pragma GCC unroll 16
    for (size_t i = 0; i < Vectors; ++i) {
      x[i] = load<T>(in + i * step);
      sum[i] = begins ? T{} : load<T>(out + i * step);
    }
#pragma GCC unroll 16
    for (size_t j = 0; j < Keys; ++j) {
#pragma GCC unroll 16
      for (size_t i = 0; i < Vectors; ++i) {
        s[j][i] = fma(s[j][i], w, x[i] * dt * splat<T>(b[j]));
        sum[i] = fma(s[j][i], splat<T>(c[j]), sum[i]);
      }
    }
#pragma GCC unroll 16
    for (size_t i = 0; i < Vectors; ++i) store(out + i * step, ends ? fma(x[i], splat<T>(run.skip), sum[i]) : sum[i]);
  }
#pragma GCC unroll 16
  for (size_t j = 0; j < Keys; ++j) {
#pragma GCC unroll 16
    for (size_t i = 0; i < Vectors; ++i) store(state + j * run.channels + i * step, s[j][i]);
  }
}

template <class T, size_t Vectors> CONTINUO_INLINE void ssm_lanes(const SsmRun& run, size_t lane) {
  size_t key = 0;
  for (; key + 4 <= run.keys; key += 4) ssm_tile<T, Vectors, 4>(run, lane, key);
  for (; key < run.keys; ++key) ssm_tile<T, Vectors, 1>(run, lane, key);
}

inline void ssm(const SsmRun& run, size_t lane, size_t lane_end) {
  for (; lane + 2 * width <= lane_end; lane += 2 * width) ssm_lanes<Vec, 2>(run, lane);
  for (; lane + width <= lane_end; lane += width) ssm_lanes<Vec, 1>(run, lane);
  for (; lane < lane_end; ++lane) ssm_lanes<float, 1>(run, lane);
}

}  // namespace continuo::CONTINUO_ISA
