#include "base/cast.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/dtype.h"

namespace continuo {

namespace {

// A binary float of 1 sign, `exponent` and `mantissa` bits. `finite`: the format has no infinities; the all-ones
// exponent then encodes numbers too, and only the all-ones mantissa under it is NaN.
struct Format {
  int exponent, mantissa;
  bool finite;
  constexpr int bias() const { return (1 << (exponent - 1)) - 1; }
  constexpr uint32_t nan() const {
    return finite ? (1u << (exponent + mantissa)) - 1 : infinity() | 1u << (mantissa - 1);
  }
  constexpr uint32_t infinity() const { return ((1u << exponent) - 1) << mantissa; }
};
constexpr Format half{5, 10, false}, brain{8, 7, false}, eighth{4, 3, true};

uint32_t narrow(double value, Format f) {
  const uint32_t sign = std::signbit(value) ? 1u << (f.exponent + f.mantissa) : 0;
  if (std::isnan(value)) return sign | f.nan();
  const double size = std::fabs(value);
  if (std::isinf(size)) return sign | (f.finite ? f.nan() : f.infinity());
  if (size == 0) return sign;
  // Numbers of one binade are whole multiples of its last place; scaling by a power of two is exact.
  const int binade = std::max(std::ilogb(size), 1 - f.bias());
  const auto units = static_cast<uint64_t>(std::nearbyint(std::ldexp(size, f.mantissa - binade)));
  // A subnormal has no hidden bit; rounding up to the next binade carries into the exponent by itself.
  const uint64_t bits = (static_cast<uint64_t>(binade + f.bias() - 1) << f.mantissa) + units;
  const uint64_t most = f.finite ? f.nan() - 1 : f.infinity() - 1;
  if (bits > most) return sign | (f.finite ? f.nan() : f.infinity());
  return sign | static_cast<uint32_t>(bits);
}

// The same of an f32, by its bits.
template <Format f> uint32_t narrow_f32(float value) {
  constexpr int drop = 23 - f.mantissa, rebias = 127 - f.bias();
  const auto bits = std::bit_cast<uint32_t>(value), size = bits & 0x7FFFFFFF;
  const uint32_t sign = bits >> 31 << (f.exponent + f.mantissa);
  if (size > 0x7F800000) return sign | f.nan();
  // Rounding up may carry into the exponent, which is right.
  uint32_t out = (size + ((1u << (drop - 1)) - 1) + (size >> drop & 1)) >> drop;
  if constexpr (rebias > 0) {
    out -= static_cast<uint32_t>(rebias) << f.mantissa;
    if (size < static_cast<uint32_t>(rebias + 1) << 23) {
      // A subnormal: the sum's last place is that of the format's subnormals.
      const auto place = std::bit_cast<float>(static_cast<uint32_t>(rebias + 1 + drop) << 23);
      out = std::bit_cast<uint32_t>(std::bit_cast<float>(size) + place) - std::bit_cast<uint32_t>(place);
    }
  }
  constexpr uint32_t most = f.finite ? f.nan() - 1 : f.infinity() - 1;
  return sign | (out > most ? most + 1 : out);
}

double widen(uint32_t bits, Format f) {
  const uint32_t magnitude = bits & ((1u << (f.exponent + f.mantissa)) - 1);
  const double sign = (bits >> (f.exponent + f.mantissa) & 1) != 0 ? -1.0 : 1.0;
  if (magnitude == f.nan()) return std::numeric_limits<double>::quiet_NaN();
  const auto exponent = static_cast<int>(magnitude >> f.mantissa);
  const uint32_t fraction = magnitude & ((1u << f.mantissa) - 1);
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - f.bias() - f.mantissa);
  return sign * std::ldexp(fraction + (1u << f.mantissa), exponent - f.bias() - f.mantissa);
}

template <class T> T get(const std::byte* data, size_t index) {
  T value;
  std::memcpy(&value, data + index * sizeof(T), sizeof(T));
  return value;
}
template <class T> void put(std::byte* data, size_t index, T value) {
  std::memcpy(data + index * sizeof(T), &value, sizeof(T));
}
template <class T> T whole(double value) {
  if (std::isnan(value)) return 0;
  const double near = std::nearbyint(value);
  constexpr auto least = std::numeric_limits<T>::min(), most = std::numeric_limits<T>::max();
  // 2⁶³ is the one bound that a double rounds up to.
  if (near <= static_cast<double>(least)) return least;
  if (near >= static_cast<double>(most)) return most;
  return static_cast<T>(near);
}

// Whether an exponent is all ones: infinity or NaN. Without an early end, so that compilers use vectors.
template <class Word> bool any_special(const std::byte* data, size_t n, Word exponent) {
  Word found = 0;
  for (size_t k = 0; k < n; ++k) {
    Word bits;
    std::memcpy(&bits, data + k * sizeof bits, sizeof bits);
    found |= static_cast<Word>((bits & exponent) == exponent);
  }
  return found != 0;
}

}  // namespace

double read_number(const std::byte* data, Type type, size_t index) {
  switch (type) {
    case Type::f32: return get<float>(data, index);
    case Type::f16: return widen_f16(get<uint16_t>(data, index));
    case Type::bf16: return widen_bf16(get<uint16_t>(data, index));
    case Type::f8: return widen(get<uint8_t>(data, index), eighth);
    case Type::i8: return get<int8_t>(data, index);
    case Type::u8: return get<uint8_t>(data, index);
    case Type::i32: return get<int32_t>(data, index);
    case Type::i64: return static_cast<double>(get<int64_t>(data, index));
    case Type::boolean: return get<uint8_t>(data, index) != 0 ? 1 : 0;
  }
  return 0;
}

void write_number(std::byte* data, Type type, size_t index, double value) {
  switch (type) {
    case Type::f32: return put(data, index, static_cast<float>(value));
    case Type::f16: return put(data, index, static_cast<uint16_t>(narrow(value, half)));
    case Type::bf16: return put(data, index, static_cast<uint16_t>(narrow(value, brain)));
    case Type::f8: return put(data, index, static_cast<uint8_t>(narrow(value, eighth)));
    case Type::i8: return put(data, index, whole<int8_t>(value));
    case Type::u8: return put(data, index, whole<uint8_t>(value));
    case Type::i32: return put(data, index, whole<int32_t>(value));
    case Type::i64: return put(data, index, whole<int64_t>(value));
    case Type::boolean: return put(data, index, static_cast<uint8_t>(value != 0));
  }
}

void fill(std::byte* out, Type type, size_t n, double value) {
  if (value == 0) return void(std::memset(out, 0, n * size_of(type)));
  for (size_t i = 0; i < n; ++i) write_number(out, type, i, value);
}

void cast(const std::byte* in, Type from, std::byte* out, Type to, size_t n) {
  const auto each = [&](auto read, auto write) {
    for (size_t i = 0; i < n; ++i) write(i, read(i));
  };
  const auto read_f32 = [&](size_t i) { return get<float>(in, i); };
  // A NaN becomes a quiet one, as in each cast that goes through a double.
  const auto write_f32 = [&](size_t i, float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    put(out, i, bits | ((bits & 0x7FFFFFFF) > 0x7F800000 ? 0x400000u : 0u));
  };
  // The casts that tokens wait for: caches, and the blocks of an external memory.
  if (to == Type::f32) {
    if (from == Type::f16) return each([&](size_t i) { return widen_f16(get<uint16_t>(in, i)); }, write_f32);
    if (from == Type::bf16) return each([&](size_t i) { return widen_bf16(get<uint16_t>(in, i)); }, write_f32);
  }
  if (from == Type::f32) {
    const auto write_half = [&](size_t i, float value) { put(out, i, static_cast<uint16_t>(narrow_f32<half>(value))); };
    const auto write_brain = [&](size_t i, float value) {
      put(out, i, static_cast<uint16_t>(narrow_f32<brain>(value)));
    };
    if (to == Type::f16) return each(read_f32, write_half);
    if (to == Type::bf16) return each(read_f32, write_brain);
    if (to == Type::f8) return each(read_f32, [&](size_t i, float value) { put(out, i, narrow_f8(value)); });
  }
  for (size_t i = 0; i < n; ++i) write_number(out, to, i, read_number(in, from, i));
}

uint8_t narrow_f8(float value) { return static_cast<uint8_t>(narrow_f32<eighth>(value)); }

size_t first_not_finite(const std::byte* data, Type type, size_t n) {
  if (!is_float(type)) return n;
  constexpr size_t together = 4096;
  for (size_t from = 0; from < n; from += together) {
    const size_t end = std::min(n, from + together);
    const std::byte* at = data + from * size_of(type);
    if (type == Type::f32 && !any_special<uint32_t>(at, end - from, 0x7F800000)) continue;
    if (type == Type::f16 && !any_special<uint16_t>(at, end - from, 0x7C00)) continue;
    if (type == Type::bf16 && !any_special<uint16_t>(at, end - from, 0x7F80)) continue;
    for (size_t k = from; k < end; ++k) {
      uint32_t bits = 0;
      std::memcpy(&bits, data + k * size_of(type), size_of(type));
      const double value = type == Type::f32 ? std::bit_cast<float>(bits) : read_number(data, type, k);
      if (!std::isfinite(value)) return k;
    }
  }
  return n;
}

}  // namespace continuo
