// What backends/cpu/kernels/pdr.h and the CPU's executor have for the perspective family beside its recurrence: routes
// on a torus, a projection on half-spaces, whole numbers under one scale, and adapters. Of one row, by the threads of a
// block.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/elementwise.h"

namespace continuo::cuda {

// The fractional part z − ⌊z⌋, in [0, 1]. A tiny negative z may round to 1, which is the same point of the torus as 0.
// NaN where z is not finite.
CONTINUO_INLINE float frac(float z) {
  if (!(z < 0x1p23f && z > -0x1p23f)) return z - z;
  const float whole = static_cast<float>(static_cast<int32_t>(z));
  return z - (whole > z ? whole - 1.0f : whole);
}

// Squared distances on a torus of 1 × 1 from z to experts [begin, end). `offsets` may be null.
CONTINUO_INLINE void torus(const float* z, const float* positions, const float* offsets, float* d, size_t begin,
                           size_t end) {
  const float at[2] = {frac(z[0]), frac(z[1])};
  for (size_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
    float delta[2];
#pragma unroll
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

// A distance and its place as one number, ordered by distance, then by place. NaN is as far as infinity; zeros of both
// signs are equal.
CONTINUO_INLINE uint64_t rank_key(float d, size_t place) {
  const float far = d == d ? d + 0.0f : __builtin_inff();
  const auto bits = cast<uint32_t>(far);
  const uint32_t ordered = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
  return uint64_t{ordered} << 32 | place;
}

// A block reduction: the minimum of `own` over the threads of the block, returned in every thread.
CONTINUO_INLINE uint64_t least_of_block(uint64_t own) {
  __shared__ uint64_t least[32];
#pragma unroll
  for (int by = 16; by > 0; by /= 2) {
    const uint64_t other = __shfl_xor_sync(0xFFFFFFFFu, own, by);
    own = other < own ? other : own;
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) least[threadIdx.x / 32] = own;
  __syncthreads();
  for (unsigned int warp = 0; warp < blockDim.x / 32; ++warp) own = least[warp] < own ? least[warp] : own;
  return own;
}

// The places of ranks first … first + chosen − 1 of n < 2³² distances, in their order; of equal ones the lower place
// first. −1 where there are no such ranks. One rank after the other: a block looks for the least that lies behind the
// last one. Few ranks are asked for.
CONTINUO_INLINE void nearest(const float* d, size_t n, int64_t first, int32_t* out, size_t chosen) {
  const bool there = first >= 0 && static_cast<uint64_t>(first) + chosen <= n;
  if (!there) {
    for (size_t i = threadIdx.x; i < chosen; i += blockDim.x) out[i] = -1;
    return;
  }
  constexpr uint64_t none = ~uint64_t{0};
  uint64_t last = 0;
  for (size_t rank = 0; rank < static_cast<size_t>(first) + chosen; ++rank) {
    uint64_t own = none;
    for (size_t i = threadIdx.x; i < n; i += blockDim.x) {
      const uint64_t key = rank_key(d[i], i);
      if ((rank == 0 || key > last) && key < own) own = key;
    }
    last = least_of_block(own);
    if (threadIdx.x == 0 && rank >= static_cast<size_t>(first))
      out[rank - static_cast<size_t>(first)] = static_cast<int32_t>(last & 0xFFFFFFFFu);
  }
}

CONTINUO_INLINE auto products(const float* a, const float* b) {
  return [=](float acc, size_t i) { return fma(a[i], b[i], acc); };
}

// Dykstra's algorithm (cpu/executor_perspective.cc). normals [spaces][n]; inverse, bounds [spaces]; corrections
// [spaces], which hold nothing before and after. y is not x.
CONTINUO_INLINE void project(const float* x, const float* normals, const float* inverse, const float* bounds,
                             float* corrections, float* y, size_t n, size_t spaces, int64_t sweeps) {
  for (size_t i = threadIdx.x; i < n; i += blockDim.x) y[i] = x[i];
  for (size_t j = threadIdx.x; j < spaces; j += blockDim.x) corrections[j] = 0.0f;
  __syncthreads();
  Turn turn;
  bool changed = true;
  for (int64_t sweep = 0; sweep < sweeps && changed; ++sweep) {
    changed = false;
    for (size_t j = 0; j < spaces; ++j) {
      const float* const normal = normals + j * n;
      // Read before the sum's barrier, behind which thread 0 may write it.
      const float before = corrections[j];
      const float s = (reduce(turn, n, products(normal, y)) - bounds[j]) * inverse[j];
      const float c = before + s, next = c > 0.0f ? c : c == c ? 0.0f : c;
      if (next == before) continue;
      const float factor = before - next;
      map(n, y, [=](float a, float b) { return fma(factor, a, b); }, normal, y);
      if (threadIdx.x == 0) corrections[j] = next;
      changed = true;
      __syncthreads();
    }
  }
}

// x as whole numbers under one scale, which is dropped: s = max|x| / 127, x / s to the nearest, ties to even, clamped
// to ±127. All 0 where s is 0 or not finite.
CONTINUO_INLINE void whole(const float* x, int8_t* out, size_t n) {
  // The bits without the sign are ordered as the numbers are, then infinity, then NaN; so the largest has the least
  // complement.
  uint64_t own = ~uint64_t{0};
  for (size_t i = threadIdx.x; i < n; i += blockDim.x) {
    const uint64_t complement = 0x7FFFFFFFu - (cast<uint32_t>(x[i]) & 0x7FFFFFFFu);
    own = complement < own ? complement : own;
  }
  const float most = cast<float>(static_cast<uint32_t>(0x7FFFFFFFu - least_of_block(own)));
  const float s = most / 127.0f;
  const bool usable = s > 0.0f && s - s == 0.0f;
  for (size_t i = threadIdx.x; i < n; i += blockDim.x) {
    const float q = usable ? x[i] / s + to_nearest - to_nearest : 0.0f;
    out[i] = static_cast<int8_t>(q > 127.0f ? 127.0f : q < -127.0f ? -127.0f : q);
  }
}

// y + B (A x). A [rank][inputs], B [outputs][rank]; low [rank] holds nothing before and after.
CONTINUO_INLINE void adapter(const float* y, const float* x, const float* A, const float* B, float* low, float* out,
                             size_t inputs, size_t outputs, size_t rank) {
  const size_t half_warps = blockDim.x / partials, own = threadIdx.x / partials;
  const bool first = threadIdx.x % partials == 0;
  for (size_t i = own; i < rank; i += half_warps) {
    const float sum = half_warp_reduce(inputs, products(A + i * inputs, x));
    if (first) low[i] = sum;
  }
  __syncthreads();
  for (size_t i = own; i < outputs; i += half_warps) {
    const float sum = half_warp_reduce(rank, products(B + i * rank, low));
    if (first) out[i] = y[i] + sum;
  }
}

}  // namespace continuo::cuda
