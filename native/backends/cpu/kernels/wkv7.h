// RWKV-7's recurrence (notes: lines 16 and 17), token by token. With S[j][i], j the key channel and i the value
// channel:
//   s_i     = Σ_j S[j][i] kk[j]
//   S[j][i] ← S[j][i] w[j] + v[i] k[j] − s_i (kk[j] a[j])
//   y_i     = Σ_j S[j][i] r[j]            (the new S)
// Value channels are independent of each other: they are the lanes. Both sums run over j from 0 by fma; a head has at
// most 256 key channels, so each is a single block. It may have more or fewer value channels.
#pragma once

#include "backends/cpu/kernels/elementwise.h"

namespace continuo::CONTINUO_ISA {

template <class T, size_t Vectors> CONTINUO_INLINE void wkv7_lanes(const Wkv7Run& run, size_t lane) {
  constexpr size_t step = sizeof(T) / sizeof(float);
  const size_t keys = run.keys, channels = run.channels;
  float* const state = run.state + lane;
  // s of the first token; that of every later one is summed while the state of the token before it is written.
  T removed[Vectors] = {};
  for (size_t j = 0; j < keys; ++j) {
#pragma GCC unroll 16
    for (size_t i = 0; i < Vectors; ++i)
      removed[i] = fma(load<T>(state + j * channels + i * step), splat<T>(run.kk[j]), removed[i]);
  }
  for (size_t t = 0; t < run.tokens; ++t) {
    const size_t at = t * run.stride + lane, key = t * run.key_stride;
    const float *r = run.r + key, *w = run.w + key, *k = run.k + key, *kk = run.kk + key, *a = run.a + key;
    const float* next_kk = t + 1 < run.tokens ? kk + run.key_stride : kk;
    T next_removed[Vectors] = {}, read[Vectors] = {}, v[Vectors];
#pragma GCC unroll 16
    for (size_t i = 0; i < Vectors; ++i) v[i] = load<T>(run.v + at + i * step);
    for (size_t j = 0; j < keys; ++j) {
      float* s = state + j * channels;
      const T learn = splat<T>(-(kk[j] * a[j]));
#pragma GCC unroll 16
      for (size_t i = 0; i < Vectors; ++i) {
        T next = fma(load<T>(s + i * step), splat<T>(w[j]), v[i] * splat<T>(k[j]));
        next = fma(removed[i], learn, next);
        store(s + i * step, next);
        read[i] = fma(next, splat<T>(r[j]), read[i]);
        next_removed[i] = fma(next, splat<T>(next_kk[j]), next_removed[i]);
      }
    }
#pragma GCC unroll 16
    for (size_t i = 0; i < Vectors; ++i) {
      store(run.y + at + i * step, read[i]);
      removed[i] = next_removed[i];
    }
  }
}

inline void wkv7(const Wkv7Run& run, size_t lane, size_t lane_end) {
  if (run.tokens == 0) return;
  // Enough sums side by side hide the latency of fma.
  for (; lane + 4 * width <= lane_end; lane += 4 * width) wkv7_lanes<Vec, 4>(run, lane);
  for (; lane + 2 * width <= lane_end; lane += 2 * width) wkv7_lanes<Vec, 2>(run, lane);
  for (; lane + width <= lane_end; lane += width) wkv7_lanes<Vec, 1>(run, lane);
  for (; lane < lane_end; ++lane) wkv7_lanes<float, 1>(run, lane);
}

}  // namespace continuo::CONTINUO_ISA
