// What a row of logits says: the largest, Σ exp, and the surprisal of a token (native/runtime/sampling/sampler.cc).
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/elementwise.h"

namespace continuo::cuda {

// The largest of a[i], i mod 16 fixed, and where it stands. NaN is passed over; of equal numbers, which can only be
// zeros of both signs, the first is kept, as the CPU does when it walks them in order.
struct Largest {
  float value = -__builtin_inff();
  uint32_t at = 0;
};
CONTINUO_INLINE Largest larger(Largest x, Largest y) {
  return y.value > x.value || (y.value == x.value && y.at < x.at) ? y : x;
}

// The largest of n < 2³² numbers; every thread gets it.
CONTINUO_INLINE float max(const float* a, size_t n) {
  __shared__ float values[32][partials];
  __shared__ uint32_t places[32][partials];
  const unsigned int lane = threadIdx.x % partials, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  Largest best;
  for (size_t i = threadIdx.x; i < n; i += blockDim.x) best = larger(best, {a[i], static_cast<uint32_t>(i) + 1});
  best = larger(best, {__shfl_xor_sync(0xFFFFFFFFu, best.value, 16), __shfl_xor_sync(0xFFFFFFFFu, best.at, 16)});
  __syncthreads();
  if (threadIdx.x % 32 < partials) {
    values[warp][lane] = best.value;
    places[warp][lane] = best.at;
  }
  __syncthreads();
  // Every half warp joins the warps' numbers lane by lane, then the lanes by halving.
  for (unsigned int i = 0; i < warps; ++i) best = larger(best, {values[i][lane], places[i][lane]});
  float value = best.value;
  for (int half = partials / 2; half > 0; half /= 2) {
    const float other = __shfl_down_sync(half_warp(), value, static_cast<unsigned int>(half), partials);
    value = other > value ? other : value;
  }
  return __shfl_sync(half_warp(), value, 0, partials);
}

CONTINUO_INLINE float sum_exp(const float* a, float shift, size_t n) {
  return reduce(n, [=](float acc, size_t i) { return acc + exp(a[i] - shift); });
}

CONTINUO_INLINE float surprisal(const float* logits, size_t n, size_t token) {
  const float most = max(logits, n);
  const float sum = sum_exp(logits, most, n);
  return (most - logits[token]) + log(sum);
}

}  // namespace continuo::cuda
