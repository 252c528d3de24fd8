// What graph and kernels agree on beside shapes: how a matrix memory is written (backends/cpu/kernels/memory.h gives
// the equations), and the longest convolution.
#pragma once

#include <cstddef>
#include <cstdint>

namespace continuo {

constexpr size_t max_taps = 64;  // of a convolution

enum class Rule : uint8_t { titans, delta, hebbian };
enum class Retention : uint8_t { none, l2, elastic, kl, sphere };

struct MemoryForm {
  Rule rule = Rule::delta;
  Retention retention = Retention::none;
  float norm_max = 0;  // 0: no cap
  float elastic_l1 = 0, elastic_l2 = 1;
  float radius = 1;  // sphere
  float floor = 0;   // kl

  // Whether α comes with every token.
  constexpr bool retains() const {
    return retention == Retention::l2 || retention == Retention::elastic || retention == Retention::kl;
  }
};

}  // namespace continuo
