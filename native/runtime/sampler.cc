#include "runtime/sampler.h"

#include <algorithm>
#include <bit>

#include "runtime/philox.h"

namespace continuo {

namespace {

int32_t argmax(const HostKernels& kernels, std::span<const float> logits) {
  const float max = kernels.max(logits.data(), logits.size());
  return static_cast<int32_t>(std::find(logits.begin(), logits.end(), max) - logits.begin());
}

// A sort key that grows as the number falls. −0 and +0 have the same key.
uint64_t descending(float x) {
  const auto bits = std::bit_cast<uint32_t>(x + 0.0f);
  return (bits & 0x80000000u) ? bits : ~(bits | 0x80000000u);
}

}  // namespace

float surprisal(const HostKernels& kernels, std::span<const float> logits, int32_t token) {
  const float max = kernels.max(logits.data(), logits.size());
  const float sum = kernels.sum_exp(logits.data(), max, logits.size());
  float log_sum = 0;
  kernels.log(&sum, &log_sum, 1);
  return (max - logits[static_cast<size_t>(token)]) + log_sum;
}

int32_t sample(const HostKernels& kernels, std::span<const float> logits, const Sampling& sampling, uint64_t pulse) {
  const size_t n = logits.size();
  if (sampling.temperature == 0) return argmax(kernels, logits);

  const bool cut = sampling.top_p < 1 || (sampling.top_k > 0 && sampling.top_k < n);
  std::vector<uint64_t> order(n);
  for (size_t i = 0; i < n; ++i) order[i] = i;
  size_t kept = n;
  if (cut) {
    for (size_t i = 0; i < n; ++i) order[i] |= descending(logits[i]) << 32;
    if (sampling.top_k > 0 && sampling.top_k < n) {
      kept = sampling.top_k;
      std::nth_element(order.begin(), order.begin() + static_cast<ptrdiff_t>(kept), order.end());
    }
    std::sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(kept));
  }
  const auto id = [&](size_t i) { return static_cast<uint32_t>(order[i]); };

  const float max = kernels.max(logits.data(), n);
  std::vector<float> weights(kept);
  for (size_t i = 0; i < kept; ++i) weights[i] = (logits[id(i)] - max) / sampling.temperature;
  kernels.exp(weights.data(), weights.data(), kept);
  double total = 0;
  for (const float weight : weights) total += weight;

  if (sampling.top_p < 1) {
    const double wanted = sampling.top_p * total;
    double mass = 0;
    size_t prefix = 0;
    while (prefix < kept && mass < wanted) mass += weights[prefix++];
    kept = std::max<size_t>(prefix, 1);
    total = mass > 0 ? mass : weights[0];
  }

  const double target = uniform_at(sampling.seed, pulse) * total;
  double passed = 0;
  for (size_t i = 0; i < kept; ++i) {
    passed += weights[i];
    if (target < passed) return static_cast<int32_t>(id(i));
  }
  // Rounding can put the target at the very end: then the last candidate that has a weight is drawn.
  while (kept > 1 && weights[kept - 1] == 0) --kept;
  return static_cast<int32_t>(id(kept - 1));
}

}  // namespace continuo
