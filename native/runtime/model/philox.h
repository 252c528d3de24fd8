// Philox4x32-10, a counter-based random number generator: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy
// as 1, 2, 3" (SC11). native/test/runtime/sampler_test.cc has its published known answers.
#pragma once

#include <array>
#include <cstdint>

namespace continuo {

inline std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t even = uint64_t{0xD2511F53} * counter[0];
    const uint64_t odd = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(odd >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(odd),
               static_cast<uint32_t>(even >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(even)};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return counter;
}

// Uniform in [0, 1) with 53 bits: the draw of session `seed` at `pulse`. A resumed session needs no generator state.
inline double uniform_at(uint64_t seed, uint64_t pulse) {
  const auto words = philox({static_cast<uint32_t>(pulse), static_cast<uint32_t>(pulse >> 32), 0, 0},
                            {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t bits = uint64_t{words[0]} << 21 ^ words[1] >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

}  // namespace continuo
