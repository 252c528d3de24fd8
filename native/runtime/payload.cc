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

Payload::Squares Payload::encode(uint32_t block, const RowOf& row, ThreadPool& pool, std::span<std::byte> out) const {
  const size_t B = memory_.block, L = memory_.layers, G = memory_.key_heads, d = memory_.channels;
  std::fill_n(out.data(), codes_, std::byte{0});
  std::memcpy(out.data(), "CNTB", 4);
  put(out.data() + 4, 1, 2);
  put(out.data() + 6, code_of(memory_.cold), 2);
  const uint64_t numbers[] = {B, L, G, d, block};
  for (size_t i = 0; i < std::size(numbers); ++i) put(out.data() + 8 + 4 * i, numbers[i], 4);
  std::vector<double> squares(L * keys_and_values * G);
  pool.parallel_for(L * keys_and_values, [&](size_t task) {
    const size_t layer = task / keys_and_values, which = task % keys_and_values;
    std::vector<float> room(G * d), rows(G * B * d);
    for (size_t p = 0; p < B; ++p) {
      const float* from = row(layer, which, p, room.data());
      for (size_t g = 0; g < G; ++g) std::copy_n(from + g * d, d, rows.data() + (g * B + p) * d);
    }
    for (size_t g = 0; g < G; ++g) {
      const size_t head = group(layer, which, g);
      squares[head] = encode_head(rows.data() + g * B * d, out.data() + codes_at(layer, which, g),
                                  reinterpret_cast<int8_t*>(out.data()) + header_bytes + head);
    }
  });
  Squares sums;
  for (size_t head = 0; head < squares.size(); ++head)
    (head / G % keys_and_values == 0 ? sums.keys : sums.values) += squares[head];
  return sums;
}

double Payload::encode_head(const float* rows, std::byte* codes, int8_t* exponent) const {
  const size_t n = memory_.block * memory_.channels;
  double squares = 0;
  if (memory_.cold != Type::f8) {
    cast(reinterpret_cast<const std::byte*>(rows), Type::f32, codes, memory_.cold, n);
    for (size_t i = 0; i < n; ++i) {
      const double decoded = read_number(codes, memory_.cold, i);
      squares += decoded * decoded;
    }
    return squares;
  }
  float most = 0;
  for (size_t i = 0; i < n; ++i) most = std::max(most, std::fabs(rows[i]));
  const int e = f8_exponent(most);
  *exponent = static_cast<int8_t>(e);
  // Exact, but for numbers so small that their code is 0 either way.
  const float scale = std::ldexp(1.0f, -e);
  const auto& decoded = f8_numbers();
  for (size_t i = 0; i < n; ++i) {
    const uint8_t code = narrow_f8(rows[i] * scale);
    codes[i] = static_cast<std::byte>(code);
    squares += double{decoded[code]} * double{decoded[code]};
  }
  return std::ldexp(squares, 2 * e);
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
