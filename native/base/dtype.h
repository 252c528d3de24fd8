// Number formats of stored tensors. Widening F8_E4M3 to f16, and f16 and bf16 to f32, is exact.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

namespace continuo {

// All but f32, f16 and bf16 are integers in groups that share a scale. Only packed matrices have them
// (packed_matrix.h).
enum class Dtype : uint8_t { f32, f16, bf16, q8, ternary, q4, q4_k, q6_k };

constexpr bool is_quantised(Dtype dtype) { return dtype > Dtype::bf16; }

// Bytes of one f32, f16 or bf16.
constexpr size_t size_of(Dtype dtype) { return dtype == Dtype::f32 ? 4 : 2; }
constexpr const char* name_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32: return "F32";
    case Dtype::f16: return "F16";
    case Dtype::bf16: return "BF16";
    case Dtype::q8: return "q8";
    case Dtype::ternary: return "ternary";
    case Dtype::q4: return "q4";
    case Dtype::q4_k: return "q4_k";
    case Dtype::q6_k: return "q6_k";
  }
  return "unknown";
}

constexpr float widen_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

constexpr float widen_f16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t magnitude = bits & 0x7FFF;
  // Normal numbers: move the exponent bias from 15 to 127. Infinity and NaN: exponent to 255.
  if (magnitude >= 0x7C00) return std::bit_cast<float>(sign | 0x7F800000 | (magnitude & 0x3FF) << 13);
  if (magnitude >= 0x0400) return std::bit_cast<float>(sign | ((magnitude << 13) + ((127u - 15u) << 23)));
  // Subnormal: an integer times 2⁻²⁴, exact in f32.
  const float value = static_cast<float>(magnitude) * 0x1p-24f;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
}

// F8_E4M3 (Open Compute Project, "OFP8", 2023: four exponent bits with bias 7, no infinities, all bits but the sign set
// is NaN) to f16.
constexpr uint16_t widen_f8(uint8_t bits) {
  const auto sign = static_cast<uint16_t>((bits & 0x80) << 8);
  const uint16_t magnitude = bits & 0x7F;
  if (magnitude == 0x7F) return sign | 0x7E00;
  // Normal numbers: move the exponent bias from 7 to 15.
  if (magnitude >= 0x08) return static_cast<uint16_t>(sign | ((magnitude << 7) + (8 << 10)));
  // Subnormal: an integer below 8 times 2⁻⁹, normal in f16.
  constexpr uint16_t eighths[8] = {0, 0x1800, 0x1C00, 0x1E00, 0x2000, 0x2100, 0x2200, 0x2300};
  return sign | eighths[magnitude];
}

// Element `index` of a tensor stored as little-endian f32, f16 or bf16, at any alignment.
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
