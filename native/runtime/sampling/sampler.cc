#include "runtime/sampling/sampler.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "runtime/model/philox.h"

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

std::span<const float> shaped(std::span<const float> logits, const Shaping& shaping, Allowed allowed,
                              std::vector<float>& out) {
  constexpr float most = std::numeric_limits<float>::max();
  const bool penalises = shaping.penalises() && !shaping.counts.empty();
  if (shaping.bias.empty() && !penalises && allowed.empty()) return logits;
  out.assign(logits.begin(), logits.end());
  for (const auto& [token, bias] : shaping.bias) {
    auto& l = out[static_cast<size_t>(token)];
    l = std::clamp(l + bias, -most, most);
  }
  if (penalises) {
    // Each token by itself, so the order of the table does not matter.
    for (const auto& [token, count] : shaping.counts) {
      auto& l = out[static_cast<size_t>(token)];
      l = l > 0 ? l / shaping.repetition : l * shaping.repetition;
      l = l - static_cast<float>(count) * shaping.frequency;
      l = std::clamp(l - shaping.presence, -most, most);
    }
  }
  for (size_t i = 0; i < allowed.size(); ++i) {
    if (allowed[i] == ~uint64_t{0}) continue;
    for (size_t token = 64 * i; token < std::min(64 * (i + 1), out.size()); ++token) {
      if ((allowed[i] >> (token % 64) & 1) == 0) out[token] = -std::numeric_limits<float>::infinity();
    }
  }
  return out;
}

LogSoftmax::LogSoftmax(const HostKernels& kernels, std::span<const float> logits)
    : logits_(logits), max_(kernels.max(logits.data(), logits.size())) {
  const float sum = kernels.sum_exp(logits.data(), max_, logits.size());
  kernels.log(&sum, &log_sum_, 1);
}

float surprisal(const HostKernels& kernels, std::span<const float> logits, int32_t token) {
  return LogSoftmax(kernels, logits).surprisal(token);
}

std::vector<int32_t> largest(std::span<const float> logits, size_t count) {
  std::vector<uint64_t> best;  // ascending
  count = std::min(count, logits.size());
  best.reserve(count + 1);
  for (size_t i = 0; i < logits.size() && count > 0; ++i) {
    const uint64_t key = descending(logits[i]) << 32 | i;
    if (best.size() == count && key > best.back()) continue;
    best.insert(std::lower_bound(best.begin(), best.end(), key), key);
    if (best.size() > count) best.pop_back();
  }
  std::vector<int32_t> out;
  for (const uint64_t key : best) out.push_back(static_cast<int32_t>(static_cast<uint32_t>(key)));
  return out;
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

  if (sampling.min_p > 0) {
    // Candidates keep their order; the likeliest has weight 1, so one at least is kept.
    size_t left = 0;
    total = 0;
    for (size_t i = 0; i < kept; ++i) {
      if (weights[i] < sampling.min_p) continue;
      order[left] = order[i];
      total += weights[left++] = weights[i];
    }
    kept = left;
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
