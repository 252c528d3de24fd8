// From logits to a token, and to surprisal.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/host_kernels.h"

namespace continuo {

struct Sampling {
  float temperature = 0;  // 0: the largest logit, the lowest id on a tie
  uint32_t top_k = 0;     // 0 keeps all
  double top_p = 1;       // 1 keeps all
  uint64_t seed = 0;
};

// −ln softmax(logits)[token], in nats.
float surprisal(const HostKernels& kernels, std::span<const float> logits, int32_t token);

// Draws a token with the random number of (seed, pulse). Candidates in order of falling logit, lower id first on a tie;
// top-k keeps the first k; top-p keeps the shortest prefix that holds at least p of their mass; weights exp((l −
// max)/T) are summed in f64 in that order, or in order of id when nothing is cut off.
int32_t sample(const HostKernels& kernels, std::span<const float> logits, const Sampling& sampling, uint64_t pulse);

}  // namespace continuo
