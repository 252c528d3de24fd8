// A checksum of 64 bits for what this machine wrote and reads again: it finds damage, it keeps out nobody.
//
// Eight-byte words, little-endian, fold into four sums, word i into sum i mod 4: s = rotl((s xor w) ·
// 0x9E3779B97F4A7C15, 29) from s = i, where zeros pad an incomplete last word. Then the four sums fold into the length
// in the same way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace continuo {

uint64_t checksum(std::span<const std::byte> bytes);

}  // namespace continuo
