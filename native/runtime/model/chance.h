// The random numbers of the perspective family (docs/perspective.md, Chance): Philox4x32-10 with counter (low and high
// word of a, purpose · 2²⁴ + sub, index). The sampler's own draws are purpose 0 (philox.h), so none meets another.
#pragma once

#include <cstdint>

#include "runtime/model/philox.h"

namespace continuo {

enum class Purpose : uint32_t {
  jitter = 1,
  dropout = 2,
  random = 3,
  direction = 4,
  nes = 5,
  item = 6,
  basis = 7,
  adapter = 9,
};

using Words = std::array<uint32_t, 4>;

inline Words chance(Purpose purpose, uint32_t sub, uint64_t a, uint64_t key, uint32_t index) {
  return philox(
      {static_cast<uint32_t>(a), static_cast<uint32_t>(a >> 32), static_cast<uint32_t>(purpose) << 24 | sub, index},
      {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)});
}

// Nearly normal, of variance 1: the sum of the eight 16-bit halves less its mean, times f32(1/√(8 (2³² − 1) / 12)).
inline float normal_of(const Words& words) {
  int32_t sum = -262140;
  for (const uint32_t word : words) sum += static_cast<int32_t>(word & 0xFFFF) + static_cast<int32_t>(word >> 16);
  return static_cast<float>(sum) * 0x1.3988e2p-16f;
}

// Bit i of a draw, the lowest of its first word first.
inline bool bit_of(const Words& words, size_t i) { return (words[i / 32] >> (i % 32) & 1) != 0; }

}  // namespace continuo
