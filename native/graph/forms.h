// Constants and types that graph and kernels share: the form of a matrix memory (backends/cpu/kernels/memory.h has the
// equations), the longest convolution, and the widest choice.
#pragma once

#include <cstddef>
#include <cstdint>

namespace continuo {

constexpr size_t max_taps = 64;  // of a convolution

// Of topk: scores of a row, and how many of them are chosen.
constexpr size_t max_scores = 4096, max_chosen = 64;
// Experts on a torus, half-spaces of a projection, rank of an adapter; keys of a state that is not square.
constexpr size_t max_torus = 65536, max_half_spaces = 4096, max_adapter_rank = 1024, most_recalled_keys = 1024;

enum class Rule : uint8_t { titans, delta, hebbian };
enum class Retention : uint8_t { none, l2, elastic, kl, sphere };

struct MemoryForm {
  Rule rule = Rule::delta;
  Retention retention = Retention::none;
  float norm_max = 0;  // 0: no cap
  float elastic_l1 = 0, elastic_l2 = 1;
  float radius = 1;  // sphere
  float floor = 0;   // kl

  // Whether the node has an input alpha, a value α for each token.
  constexpr bool retains() const {
    return retention == Retention::l2 || retention == Retention::elastic || retention == Retention::kl;
  }
};

}  // namespace continuo
