// Mamba-2's recurrence (cpu/kernels/ssm.h has the equations). A thread has one channel of a head. Some keys at a time
// go through all tokens, so that their state stays in registers; y holds the sum so far.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/words.h"
#include "backends/jobs.h"

namespace continuo::cuda {

// Any threads of the block: no thread needs another one's results.
CONTINUO_INLINE void ssm(const SsmRun& run, size_t lane, size_t lane_end) {
  for (lane += threadIdx.x; lane < lane_end; lane += blockDim.x) {
    some_at_once<16>(run.keys, [&]<uint32_t Keys>(size_t key) {
      const bool begins = key == 0, ends = key + Keys == run.keys;
      float* const state = run.state + key * run.channels + lane;
      float s[Keys];
#pragma unroll
      for (uint32_t j = 0; j < Keys; ++j) s[j] = state[j * run.channels];
      for (size_t t = 0; t < run.tokens; ++t) {
        const float w = run.w[t * run.heads], dt = run.dt[t * run.heads], x = run.x[t * run.stride + lane];
        const float *b = run.b + t * run.key_stride + key, *c = run.c + t * run.key_stride + key;
        float* const y = run.y + t * run.stride + lane;
        float sum = begins ? 0.0f : *y;
#pragma unroll
        for (uint32_t j = 0; j < Keys; ++j) {
          s[j] = fma(s[j], w, x * dt * b[j]);
          sum = fma(s[j], c[j], sum);
        }
        *y = ends ? fma(x, run.skip, sum) : sum;
      }
#pragma unroll
      for (uint32_t j = 0; j < Keys; ++j) state[j * run.channels] = s[j];
    });
  }
}

}  // namespace continuo::cuda
