#include "base/checksum.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace continuo {

uint64_t checksum(std::span<const std::byte> bytes) {
  uint64_t sums[4] = {0, 1, 2, 3};
  const auto fold = [](uint64_t s, uint64_t w) { return std::rotl((s ^ w) * 0x9E3779B97F4A7C15u, 29); };
  size_t at = 0;
  for (; at + 32 <= bytes.size(); at += 32) {
    uint64_t words[4];
    std::memcpy(words, bytes.data() + at, 32);
    for (size_t i = 0; i < 4; ++i) sums[i] = fold(sums[i], words[i]);
  }
  for (size_t i = 0; at < bytes.size(); at += 8, ++i) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min<size_t>(8, bytes.size() - at));
    sums[i] = fold(sums[i], word);
  }
  uint64_t all = bytes.size();
  for (const uint64_t sum : sums) all = fold(all, sum);
  return all;
}

}  // namespace continuo
