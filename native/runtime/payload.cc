#include "runtime/payload.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/cast.h"

namespace continuo {

namespace {

constexpr size_t header_bytes = 28;
constexpr float most_f8 = 448.0f;
constexpr int most_exponent = 120;

// What each code stands for.
const std::array<float, 256>& f8_numbers() {
  static const auto numbers = [] {
    std::array<float, 256> out{};
    for (size_t code = 0; code < out.size(); ++code) {
      const auto byte = static_cast<std::byte>(code);
      out[code] = static_cast<float>(read_number(&byte, Type::f8, 0));
    }
    return out;
  }();
  return numbers;
}

void put(std::byte* to, uint64_t number, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) to[i] = static_cast<std::byte>(number >> (8 * i) & 255);
}

uint16_t code_of(Type type) { return type == Type::f8 ? 0 : type == Type::f16 ? 1 : 2; }

}  // namespace

int f8_exponent(float most) {
  if (most == 0.0f) return 0;
  int e = 0;
  // most = f · 2^e with ½ ≤ f < 1, and 448 = 0.875 · 2⁹.
  const float f = std::frexp(most, &e);
  e -= 9 - (f > most_f8 / 512.0f);
  return std::clamp(e, -most_exponent, most_exponent);
}

Payload::Payload(const ExternalMemory& memory) : memory_(memory), bytes_(payload_bytes(memory)) {
  codes_ = bytes_ - memory.layers * keys_and_values * memory.block * memory.kv() * size_of(memory.cold);
}

Payload::Squares Payload::encode(uint32_t block, const std::function<const float*(size_t, size_t, size_t)>& row,
                                 std::span<std::byte> out) const {
  const size_t B = memory_.block, L = memory_.layers, G = memory_.key_heads, d = memory_.channels;
  std::fill(out.begin(), out.end(), std::byte{0});
  std::memcpy(out.data(), "CNTB", 4);
  put(out.data() + 4, 1, 2);
  put(out.data() + 6, code_of(memory_.cold), 2);
  const uint64_t numbers[] = {B, L, G, d, block};
  for (size_t i = 0; i < std::size(numbers); ++i) put(out.data() + 8 + 4 * i, numbers[i], 4);
  const bool f8 = memory_.cold == Type::f8;
  Squares squares;
  std::vector<float> rows(B * G * d);
  for (size_t l = 0; l < L; ++l) {
    for (size_t which = 0; which < keys_and_values; ++which) {
      for (size_t p = 0; p < B; ++p) std::copy_n(row(l, which, p), G * d, rows.data() + p * G * d);
      double& sum = which == 0 ? squares.keys : squares.values;
      for (size_t g = 0; g < G; ++g) {
        float most = 0;
        for (size_t p = 0; p < B; ++p)
          for (size_t i = 0; i < d; ++i) most = std::max(most, std::fabs(rows[(p * G + g) * d + i]));
        const int e = f8 ? f8_exponent(most) : 0;
        if (f8) out[header_bytes + group(l, which, g)] = static_cast<std::byte>(static_cast<int8_t>(e));
        std::byte* codes = out.data() + codes_at(l, which, g);
        for (size_t p = 0; p < B; ++p) {
          for (size_t i = 0; i < d; ++i) {
            const double number = std::ldexp(static_cast<double>(rows[(p * G + g) * d + i]), -e);
            write_number(codes, memory_.cold, p * d + i, number);
            const double decoded = std::ldexp(read_number(codes, memory_.cold, p * d + i), e);
            sum += decoded * decoded;
          }
        }
      }
    }
  }
  return squares;
}

void Payload::decode(const std::byte* payload, size_t layer, size_t which, size_t token, float* out) const {
  const size_t G = memory_.key_heads, d = memory_.channels;
  for (size_t g = 0; g < G; ++g, out += d) {
    const std::byte* codes = payload + codes_at(layer, which, g) + token * d * size_of(memory_.cold);
    if (memory_.cold != Type::f8) {
      cast(codes, memory_.cold, reinterpret_cast<std::byte*>(out), Type::f32, d);
      continue;
    }
    const auto& numbers = f8_numbers();
    const float scale = std::ldexp(1.0f, static_cast<int8_t>(payload[header_bytes + group(layer, which, g)]));
    for (size_t i = 0; i < d; ++i) out[i] = numbers[static_cast<uint8_t>(codes[i])] * scale;
  }
}

}  // namespace continuo
