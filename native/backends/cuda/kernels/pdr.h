// The perspective decay recurrence (cpu/kernels/pdr.h has the equations). A thread has one channel. Some keys at a time
// go through all tokens, so that their state stays in registers; y holds the sum so far.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/words.h"
#include "backends/jobs.h"

namespace continuo::cuda {

// Any threads of the block: no thread needs another one's results.
CONTINUO_INLINE void pdr(const PdrRun& run, size_t lane, size_t lane_end) {
  for (lane += threadIdx.x; lane < lane_end; lane += blockDim.x) {
    some_at_once<16>(run.keys, [&]<uint32_t Keys>(size_t key) {
      float* const state = run.state + key * run.channels + lane;
      float s[Keys];
#pragma unroll
      for (uint32_t b = 0; b < Keys; ++b) s[b] = state[b * run.channels];
      for (size_t t = 0; t < run.tokens; ++t) {
        const size_t at = t * run.channels + lane;
        const float *k = run.k + t * run.keys + key, *q = run.q + t * run.keys + key;
        const float gamma = run.gamma[at], v = run.v[at], u = run.convex ? (1.0f - gamma) * v : v;
        float sum = key == 0 ? 0.0f : run.y[at];
#pragma unroll
        for (uint32_t b = 0; b < Keys; ++b) {
          s[b] = fma(gamma, s[b], k[b] * u);
          sum = fma(s[b], q[b], sum);
        }
        run.y[at] = sum;
      }
#pragma unroll
      for (uint32_t b = 0; b < Keys; ++b) state[b * run.channels] = s[b];
    });
  }
}

}  // namespace continuo::cuda
