// Draws a token from logits, and computes log probabilities.
//
//   logits ──▶ bias ──▶ penalties ──▶ allowed ──▶ temperature ──▶ top-k ──▶ top-p ──▶ min-p ──▶ token
//      └─────▶ log probabilities: those of the model, whatever is drawn
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/model/host_kernels.h"

namespace continuo {

struct Sampling {
  float temperature = 0;  // 0: the largest logit, the lowest id on a tie
  uint32_t top_k = 0;     // 0 keeps all
  double top_p = 1;       // 1 keeps all
  uint64_t seed = 0;
  float min_p = 0;  // 0 keeps all
};

// What is done to logits before a token is drawn from them.
struct Shaping {
  std::vector<std::pair<int32_t, float>> bias = {};  // is added to the logit of the id; each id once
  float repetition = 1;  // logits of tokens that count: positive ones are divided by it, others multiplied (Keskar et
                         // al., CTRL, 2019, section 4.1, in the form that leaves no sign to chance)
  float presence = 0;    // is subtracted once,
  float frequency = 0;   // and this for each time that the token counts
  std::unordered_map<int32_t, uint32_t> counts = {};  // how often each token counts; those drawn are added

  bool penalises() const { return repetition != 1 || presence != 0 || frequency != 0; }
  void drawn(int32_t token) {
    if (penalises()) ++counts[token];
  }
};

// A bit for each token of a vocabulary, token 64 i + j at bit j of word i; empty: all are allowed. One bit is set at
// least.
using Allowed = std::span<const uint64_t>;

// The logits that a token is drawn from. Each operation is one of f32: l + bias; l / r where l > 0, else l · r;
// l − count · frequency; l − presence; then −∞ for what is not allowed. A result beyond f32's range is its largest
// number of that sign. No copy is made where nothing changes. `out` holds the copy.
std::span<const float> shaped(std::span<const float> logits, const Shaping& shaping, Allowed allowed,
                              std::vector<float>& out);

// ln softmax(logits) of single tokens. Here and below `logits` is [vocabulary].
class LogSoftmax {
 public:
  LogSoftmax(const HostKernels& kernels, std::span<const float> logits);
  // −ln p, in nats.
  float surprisal(int32_t token) const { return (max_ - logits_[static_cast<size_t>(token)]) + log_sum_; }

 private:
  std::span<const float> logits_;
  float max_, log_sum_ = 0;
};

float surprisal(const HostKernels& kernels, std::span<const float> logits, int32_t token);

// The `count` largest logits' tokens, the largest first, on a tie the lower id first. Linear in the vocabulary.
std::vector<int32_t> largest(std::span<const float> logits, size_t count);

// Draws a token with the random number of (seed, pulse). Candidates are ordered by falling logit, on a tie the lower id
// first. Top-k keeps the first k; top-p keeps the shortest prefix with at least p of their mass; min-p keeps those with
// at least so much of the largest weight. The weights exp((l − max)/T) are summed in f64 in that order, or in order of
// id where neither top-k nor top-p cuts anything off. A logit of −∞ is not drawn; one at least is finite.
int32_t sample(const HostKernels& kernels, std::span<const float> logits, const Sampling& sampling, uint64_t pulse);

}  // namespace continuo
