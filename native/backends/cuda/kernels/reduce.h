// Sums along a row by the threads of a block, in the order of backends/cpu/kernels/reduce.h: blocks of 256 terms,
// sixteen partial sums by i mod 16, halving, block sums in order from 0. A half warp takes a block of terms, a lane for
// each partial sum, so neighbours read neighbours; a block's sum knows nothing of the others, so many are made at once,
// and every thread adds them up in order.
#pragma once

#include "backends/cuda/kernels/scalar.h"
#include "backends/jobs.h"

namespace continuo::cuda {

constexpr size_t partials = 16;
constexpr unsigned int most_half_warps = 1024 / partials;

// The lanes of the calling thread's half warp.
CONTINUO_INLINE unsigned int half_warp() { return 0xFFFFu << (threadIdx.x & 16u); }

// The partial sums of one block of terms, of which lane i mod 16 holds partial i, joined: every lane of the half warp
// gets the sum.
CONTINUO_INLINE float join(float partial) {
  const unsigned int lanes = half_warp();
#pragma unroll
  for (int half = partials / 2; half > 0; half /= 2)
    partial = partial + __shfl_down_sync(lanes, partial, static_cast<unsigned int>(half), partials);
  return __shfl_sync(lanes, partial, 0, partials);
}

// The sum of the block of terms [begin, end), by the calling half warp. `term(acc, i)` returns acc with term i
// accumulated.
template <class Term> CONTINUO_INLINE float block_sum(size_t begin, size_t end, const Term& term) {
  const size_t lane = threadIdx.x % partials;
  float partial = 0.0f;
  if (end - begin == block_terms) {
#pragma unroll
    for (size_t i = 0; i < block_terms; i += partials) partial = term(partial, begin + i + lane);
  } else {
    for (size_t i = begin + lane; i < end; i += partials) partial = term(partial, i);
  }
  return join(partial);
}

// The sum of n terms by the calling half warp alone: no barrier, so half warps may do different work.
template <class Term> CONTINUO_INLINE float half_warp_reduce(size_t n, const Term& term) {
  float total = 0.0f;
  for (size_t block = 0; block < n; block += block_terms)
    total += block_sum(block, block + block_terms < n ? block + block_terms : n, term);
  return total;
}

// Counts the passes of a block's sums. Two buffers take turns, so one barrier a pass is enough: whoever writes a buffer
// again has passed the barrier of the pass between, before which everybody was done reading.
struct Turn {
  unsigned int count = 0;
};

CONTINUO_INLINE float* sums_of(Turn& turn) {
  __shared__ float sums[2][most_half_warps];
  return sums[turn.count++ % 2];
}

// The sum of n terms by the threads of the block; every thread gets it. With a Turn that is new, a barrier lies behind
// the last sums.
template <class Term> CONTINUO_INLINE float reduce(Turn& turn, size_t n, const Term& term) {
  const unsigned int own = threadIdx.x / partials, half_warps = blockDim.x / partials;
  float total = 0.0f;
  for (size_t first = 0; first < n; first += half_warps * block_terms) {
    float* const buffer = sums_of(turn);
    const size_t begin = first + own * block_terms;
    if (begin < n) {
      const float sum = block_sum(begin, begin + block_terms < n ? begin + block_terms : n, term);
      if (threadIdx.x % partials == 0) buffer[own] = sum;
    }
    __syncthreads();
    for (unsigned int i = 0; i < half_warps && first + i * block_terms < n; ++i) total += buffer[i];
  }
  return total;
}

// The same by itself, wherever it stands.
template <class Term> CONTINUO_INLINE float reduce(size_t n, const Term& term) {
  __syncthreads();
  Turn turn;
  return reduce(turn, n, term);
}

}  // namespace continuo::cuda
