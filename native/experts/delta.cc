#include "experts/delta.h"

#include <bit>
#include <cstdint>
#include <cstring>

namespace continuo::experts {

namespace {

constexpr size_t line_bytes = 64;

size_t map_bytes(size_t payload) { return (payload / line_bytes + 63) / 64 * 8; }

// Bit i: byte i of the two lines differs.
uint64_t mask_of(const std::byte* a, const std::byte* b) {
  uint64_t mask = 0;
  for (size_t i = 0; i < line_bytes; i += 8) {
    uint64_t x = 0, y = 0;
    std::memcpy(&x, a + i, 8);
    std::memcpy(&y, b + i, 8);
    if (x == y) continue;
    for (size_t k = 0; k < 8; ++k) mask |= uint64_t{a[i + k] != b[i + k]} << (i + k);
  }
  return mask;
}

}  // namespace

size_t delta_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  size_t bytes = map_bytes(a.size());
  for (size_t at = 0; at < a.size(); at += line_bytes) {
    const uint64_t mask = mask_of(a.data() + at, b.data() + at);
    if (mask != 0) bytes += sizeof mask + static_cast<size_t>(std::popcount(mask));
  }
  return bytes;
}

std::vector<std::byte> make_delta(std::span<const std::byte> a, std::span<const std::byte> b) {
  std::vector<std::byte> out(delta_bytes(a, b));
  std::byte* masks = out.data() + map_bytes(a.size());
  std::byte* end = masks;
  for (size_t at = 0; at < a.size(); at += line_bytes) {
    if (std::memcmp(a.data() + at, b.data() + at, line_bytes) == 0) continue;
    const size_t line = at / line_bytes;
    out[line / 8] |= std::byte{1} << (line % 8);
    end += 8;
  }
  for (size_t at = 0; at < a.size(); at += line_bytes) {
    const uint64_t mask = mask_of(a.data() + at, b.data() + at);
    if (mask == 0) continue;
    std::memcpy(masks, &mask, sizeof mask);
    masks += sizeof mask;
    for (size_t i = 0; i < line_bytes; ++i)
      if (mask >> i & 1) *end++ = a[at + i] ^ b[at + i];
  }
  return out;
}

Status apply_delta(std::span<const std::byte> delta, std::span<std::byte> payload) {
  const size_t lines = payload.size() / line_bytes, map = map_bytes(payload.size());
  const auto unfit = [&] { return invalid("a delta of ", delta.size(), " bytes does not fit its expert."); };
  if (delta.size() < map) return unfit();
  const auto differs = [&](size_t line) { return (delta[line / 8] >> (line % 8) & std::byte{1}) != std::byte{0}; };
  size_t changed = 0;
  for (size_t line = 0; line < map * 8; ++line) {
    if (!differs(line)) continue;
    if (line >= lines) return unfit();
    ++changed;
  }
  if (changed * 8 > delta.size() - map) return unfit();
  const std::byte* masks = delta.data() + map;
  size_t at = map + changed * 8;
  for (size_t line = 0; line < lines; ++line) {
    if (!differs(line)) continue;
    uint64_t mask = 0;
    std::memcpy(&mask, masks, sizeof mask);
    masks += sizeof mask;
    if (static_cast<size_t>(std::popcount(mask)) > delta.size() - at) return unfit();
    for (size_t i = 0; i < line_bytes; ++i)
      if (mask >> i & 1) payload[line * line_bytes + i] ^= delta[at++];
  }
  if (at != delta.size()) return unfit();
  return Done{};
}

}  // namespace continuo::experts
