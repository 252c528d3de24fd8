// RWKV-7's recurrence (cpu/wkv7.h has the equations). A thread has one value channel, whose column of S stays in
// registers from the first token of a run to the last, where a head has 32, 64 or 128 channels of keys and as many of
// values; what a token brings to every value channel goes through shared memory.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/scalar.h"
#include "backends/cuda/kernels/words.h"
#include "backends/jobs.h"

namespace continuo::cuda {

// A token's r, w, k and −(kk·a), and the kk of the token after it, over the key channels.
template <uint32_t N> struct Wkv7Token {
  Four r[N / 4], w[N / 4], k[N / 4], learn[N / 4], next_kk[N / 4];
};

// What a thread brings of a token: every key channel of its own, before it puts them where all can read them.
struct Wkv7Brought {
  float r, w, k, learn, next_kk;
};
CONTINUO_INLINE Wkv7Brought wkv7_bring(const Wkv7Run& run, size_t token, uint32_t key) {
  const size_t at = token * run.key_stride + key;
  const size_t next = token + 1 < run.tokens ? at + run.key_stride : at;
  return {run.r[at], run.w[at], run.k[at], -(run.kk[at] * run.a[at]), run.kk[next]};
}
template <uint32_t N> CONTINUO_INLINE void wkv7_put(Wkv7Token<N>& token, uint32_t key, const Wkv7Brought& brought) {
  const auto at = [=](Four* row) { return reinterpret_cast<float*>(row) + key; };
  *at(token.r) = brought.r;
  *at(token.w) = brought.w;
  *at(token.k) = brought.k;
  *at(token.learn) = brought.learn;
  *at(token.next_kk) = brought.next_kk;
}

// Of N keys and N values: with rows of another width the addresses of all rows would take registers too. At most
// blockDim.x lanes, and N ≤ blockDim.x; shared [2].
template <uint32_t N>
CONTINUO_INLINE void wkv7_registers(const Wkv7Run& run, size_t lane, size_t lane_end, Wkv7Token<N>* shared) {
  const uint32_t t = threadIdx.x;
  const bool brings = t < N, own = lane + t < lane_end;
  float* const state = run.state + lane + t;
  float s[N];
#pragma unroll
  for (uint32_t j = 0; j < N; ++j) s[j] = own ? state[j * N] : 0.0f;
  if (brings) wkv7_put(shared[0], t, wkv7_bring(run, 0, t));
  float removed = 0.0f;
#pragma unroll
  for (uint32_t j = 0; j < N; ++j) removed = fma(s[j], run.kk[j], removed);
  __syncthreads();
  for (size_t token = 0; token < run.tokens; ++token) {
    const Wkv7Token<N>& now = shared[token % 2];
    const size_t at = token * run.stride + lane + t;
    const bool more = token + 1 < run.tokens;
    Wkv7Brought next{};
    if (more && brings) next = wkv7_bring(run, token + 1, t);
    const float v = own ? run.v[at] : 0.0f;
    float read = 0.0f, next_removed = 0.0f;
#pragma unroll
    for (uint32_t j = 0; j < N; j += 4) {
      const Four r = now.r[j / 4], w = now.w[j / 4], k = now.k[j / 4], learn = now.learn[j / 4],
                 next_kk = now.next_kk[j / 4];
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) {
        s[j + i] = fma(removed, learn.at[i], fma(s[j + i], w.at[i], v * k.at[i]));
        read = fma(s[j + i], r.at[i], read);
        next_removed = fma(s[j + i], next_kk.at[i], next_removed);
      }
    }
    removed = next_removed;
    if (own) run.y[at] = read;
    // Its other half was last read before the barrier of the token before this one.
    if (more && brings) wkv7_put(shared[(token + 1) % 2], t, next);
    __syncthreads();
  }
  if (!own) return;
#pragma unroll
  for (uint32_t j = 0; j < N; ++j) state[j * N] = s[j];
}

// One lane, its column of S where it lies.
__device__ inline void wkv7_lane(const Wkv7Run& run, size_t lane) {
  const size_t keys = run.keys, channels = run.channels;
  float* const state = run.state + lane;
  float removed = 0.0f;
  for (size_t j = 0; j < keys; ++j) removed = fma(state[j * channels], run.kk[j], removed);
  for (size_t token = 0; token < run.tokens; ++token) {
    const size_t at = token * run.stride + lane, key = token * run.key_stride;
    const float *r = run.r + key, *w = run.w + key, *k = run.k + key, *kk = run.kk + key, *a = run.a + key;
    const float* const next_kk = token + 1 < run.tokens ? kk + run.key_stride : kk;
    const float v = run.v[at];
    float read = 0.0f, next_removed = 0.0f;
    some_at_once<8>(keys, [&]<uint32_t Side>(size_t j) {
      float s[Side];
#pragma unroll
      for (uint32_t i = 0; i < Side; ++i) s[i] = state[(j + i) * channels];
#pragma unroll
      for (uint32_t i = 0; i < Side; ++i) {
        s[i] = fma(removed, -(kk[j + i] * a[j + i]), fma(s[i], w[j + i], v * k[j + i]));
        read = fma(s[i], r[j + i], read);
        next_removed = fma(s[i], next_kk[j + i], next_removed);
      }
#pragma unroll
      for (uint32_t i = 0; i < Side; ++i) state[(j + i) * channels] = s[i];
    });
    run.y[at] = read;
    removed = next_removed;
  }
}

// Every thread of the block.
__device__ inline void wkv7(const Wkv7Run& run, size_t lane, size_t lane_end) {
  if (run.tokens == 0 || lane >= lane_end) return;
  __shared__ Wkv7Token<128> shared[2];
  const size_t n = run.keys;
  if (n == run.channels && n <= blockDim.x && lane_end - lane <= blockDim.x) {
    if (n == 32) return wkv7_registers(run, lane, lane_end, reinterpret_cast<Wkv7Token<32>*>(shared));
    if (n == 64) return wkv7_registers(run, lane, lane_end, reinterpret_cast<Wkv7Token<64>*>(shared));
    if (n == 128) return wkv7_registers(run, lane, lane_end, shared);
  }
  for (size_t at = lane + threadIdx.x; at < lane_end; at += blockDim.x) wkv7_lane(run, at);
}

}  // namespace continuo::cuda
