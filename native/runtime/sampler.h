// Draws a token from logits, and computes the surprisal of a token.
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

// −ln softmax(logits)[token], in nats. Here and below `logits` is [vocabulary].
float surprisal(const HostKernels& kernels, std::span<const float> logits, int32_t token);

// Draws a token with the random number of (seed, pulse). Candidates are ordered by falling logit, on a tie the lower id
// first. Top-k keeps the first k; top-p keeps the shortest prefix with at least p of their mass. The weights
// exp((l − max)/T) are summed in f64 in that order, or in order of id where neither top-k nor top-p cuts anything off.
int32_t sample(const HostKernels& kernels, std::span<const float> logits, const Sampling& sampling, uint64_t pulse);

}  // namespace continuo
