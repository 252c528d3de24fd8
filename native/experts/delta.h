// What an expert has other than its neighbour: the XOR of their payloads, so that one delta serves both directions.
//
//   a bit for each line of 64 bytes, whether it differs; padded to a multiple of 8 bytes
//   for each line that differs, in order: a mask of 8 bytes, bit i for byte i
//   the bytes that differ, in order
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/result.h"

namespace continuo::experts {

// Bytes of the delta of two payloads of one length, a multiple of 64.
size_t delta_bytes(std::span<const std::byte> a, std::span<const std::byte> b);

std::vector<std::byte> make_delta(std::span<const std::byte> a, std::span<const std::byte> b);

// Turns one of the two payloads into the other. Where the delta is none of a payload of this length: INVALID, and the
// payload may be changed in part.
Status apply_delta(std::span<const std::byte> delta, std::span<std::byte> payload);

}  // namespace continuo::experts
