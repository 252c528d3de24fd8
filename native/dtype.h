// Number formats of stored tensors. Widening f16 and bf16 to f32 is exact.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

namespace continuo {

enum class Dtype : uint8_t { f32, f16, bf16 };

constexpr size_t size_of(Dtype dtype) { return dtype == Dtype::f32 ? 4 : 2; }
constexpr const char* name_of(Dtype dtype) {
  return dtype == Dtype::f32 ? "F32" : dtype == Dtype::f16 ? "F16" : "BF16";
}

inline float widen_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

inline float widen_f16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t magnitude = bits & 0x7FFF;
  // Normal numbers: move the exponent bias from 15 to 127. Infinity and NaN: exponent to 255.
  if (magnitude >= 0x7C00) return std::bit_cast<float>(sign | 0x7F800000 | (magnitude & 0x3FF) << 13);
  if (magnitude >= 0x0400) return std::bit_cast<float>(sign | ((magnitude << 13) + ((127u - 15u) << 23)));
  // Subnormal: an integer times 2⁻²⁴, exact in f32.
  const float value = static_cast<float>(magnitude) * 0x1p-24f;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
}

// Element `index` of a tensor stored as little-endian `dtype`, at any alignment.
inline float read_element(const std::byte* data, Dtype dtype, size_t index) {
  if (dtype == Dtype::f32) {
    float value;
    std::memcpy(&value, data + index * 4, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, data + index * 2, 2);
  return dtype == Dtype::f16 ? widen_f16(bits) : widen_bf16(bits);
}

}  // namespace continuo
