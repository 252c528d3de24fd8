#include "runtime/memory/payload.h"

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

Payload::Squares Payload::encode(uint32_t block, const RowOf& row, ThreadPool& pool, std::span<std::byte> out) const {
  const size_t B = memory_.block, L = memory_.layers, G = memory_.key_heads, d = memory_.channels;
  std::fill_n(out.data(), codes_, std::byte{0});
  std::memcpy(out.data(), "CNTB", 4);
  put(out.data() + 4, 1, 2);
  put(out.data() + 6, code_of(memory_.cold), 2);
  const uint64_t numbers[] = {B, L, G, d, block};
  for (size_t i = 0; i < std::size(numbers); ++i) put(out.data() + 8 + 4 * i, numbers[i], 4);
  // Of each task, and taken here because a task must not throw: room for a row, and of each of its heads the largest
  // number and the sum of squares.
  std::vector<float> rooms(L * keys_and_values * G * d), most(L * keys_and_values * G, 0.0f);
  std::vector<double> squares(most.size(), 0.0);
  pool.parallel_for(L * keys_and_values, [&](size_t task) {
    const size_t layer = task / keys_and_values, which = task % keys_and_values, first = group(layer, which, 0);
    float* room = rooms.data() + task * G * d;
    auto* exponents = reinterpret_cast<int8_t*>(out.data()) + header_bytes;
    if (memory_.cold == Type::f8) {
      for (size_t p = 0; p < B; ++p) {
        const float* from = row(layer, which, p, room);
        for (size_t i = 0; i < G * d; ++i) most[first + i / d] = std::max(most[first + i / d], std::fabs(from[i]));
      }
      for (size_t g = 0; g < G; ++g) exponents[first + g] = static_cast<int8_t>(f8_exponent(most[first + g]));
    }
    for (size_t p = 0; p < B; ++p) {
      const float* from = row(layer, which, p, room);
      for (size_t g = 0; g < G; ++g) {
        std::byte* codes = out.data() + codes_at(layer, which, g) + p * d * size_of(memory_.cold);
        encode_row(from + g * d, codes, memory_.cold == Type::f8 ? exponents[first + g] : 0, squares[first + g]);
      }
    }
  });
  Squares sums;
  for (size_t head = 0; head < squares.size(); ++head)
    (head / G % keys_and_values == 0 ? sums.keys : sums.values) += squares[head];
  return sums;
}

void Payload::encode_row(const float* row, std::byte* codes, int exponent, double& squares) const {
  const size_t n = memory_.channels;
  if (memory_.cold != Type::f8) {
    cast(reinterpret_cast<const std::byte*>(row), Type::f32, codes, memory_.cold, n);
    for (size_t i = 0; i < n; ++i) {
      const double decoded = read_number(codes, memory_.cold, i);
      squares += decoded * decoded;
    }
    return;
  }
  // Exact, but for numbers so small that their code is 0 either way.
  const float scale = std::ldexp(1.0f, -exponent);
  const double unit = std::ldexp(1.0, 2 * exponent);
  const auto& decoded = f8_numbers();
  for (size_t i = 0; i < n; ++i) {
    const uint8_t code = narrow_f8(row[i] * scale);
    codes[i] = static_cast<std::byte>(code);
    squares += double{decoded[code]} * double{decoded[code]} * unit;
  }
}

ListRow Payload::row(const std::byte* payload, size_t token) const {
  const size_t each = size_of(memory_.cold);
  ListRow out;
  for (size_t which = 0; which < keys_and_values; ++which)
    out.from[which] = payload + codes_at(0, which, 0) + token * memory_.channels * each;
  out.exponents = payload + header_bytes;
  out.from_layer = codes_at(1, 0, 0) - codes_at(0, 0, 0);
  out.from_head = codes_at(0, 0, 1) - codes_at(0, 0, 0);
  out.type = memory_.cold;
  return out;
}

}  // namespace continuo
