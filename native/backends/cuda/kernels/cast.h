// From one number format to another: the results of native/base/cast.cc, bit for bit. A number goes through a double,
// which holds every one of them but the largest 64-bit integers; NaN goes by itself, as a GPU's conversions do not keep
// its sign.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/scalar.h"
#include "base/dtype.h"
#include "base/type.h"

namespace continuo::cuda {

struct Number {
  double value;
  uint32_t nan;  // of NaN its bits as f32, else 0
};

// 1 sign, `exponent` and `mantissa` bits; `finite`: the all-ones exponent holds numbers too, and all ones is NaN.
struct Format {
  int exponent, mantissa;
  bool finite;
};
constexpr Format half_format{5, 10, false}, brain_format{8, 7, false}, eighth_format{4, 3, true};

// A magnitude's bits in this format, rounded to nearest, ties to even.
CONTINUO_INLINE uint32_t narrow(double value, Format f) {
  const uint64_t bits = cast<uint64_t>(value);
  const uint32_t sign = static_cast<uint32_t>(bits >> 63) << (f.exponent + f.mantissa);
  const int bias = (1 << (f.exponent - 1)) - 1, exponent = static_cast<int>(bits >> 52 & 0x7FF) - 1023;
  const uint32_t infinity = ((1u << f.exponent) - 1) << f.mantissa;
  const uint32_t most = f.finite ? (1u << (f.exponent + f.mantissa)) - 2 : infinity - 1;
  const uint32_t beyond = f.finite ? most + 1 : infinity;
  if (exponent == 1024) return sign | beyond;
  // Subnormal doubles and zero: far below anything these formats hold.
  if (exponent == -1023) return sign;
  const uint64_t whole = (bits & ((uint64_t{1} << 52) - 1)) | uint64_t{1} << 52;
  // Numbers of one binade are whole multiples of its last place. A subnormal has no hidden bit, and rounding up to the
  // next binade carries into the exponent by itself.
  const int binade = exponent < 1 - bias ? 1 - bias : exponent;
  const int shift = 52 - f.mantissa + (binade - exponent);
  uint64_t units = 0;
  if (shift < 55) {
    units = whole >> shift;
    const uint64_t rest = whole & ((uint64_t{1} << shift) - 1), middle = uint64_t{1} << (shift - 1);
    if (rest > middle || (rest == middle && (units & 1) != 0)) ++units;
  }
  const uint64_t out = (static_cast<uint64_t>(binade + bias - 1) << f.mantissa) + units;
  return sign | (out > most ? beyond : static_cast<uint32_t>(out));
}

CONTINUO_INLINE uint32_t narrow_number(Number x, Format f) {
  if (x.nan == 0) return narrow(x.value, f);
  const uint32_t infinity = ((1u << f.exponent) - 1) << f.mantissa;
  return (x.nan >> 31) << (f.exponent + f.mantissa) |
         (f.finite ? (1u << (f.exponent + f.mantissa)) - 1 : infinity | 1u << (f.mantissa - 1));
}

// F8_E4M3 to f32.
CONTINUO_INLINE uint32_t widen_eighth(uint8_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x80) << 24, magnitude = bits & 0x7F;
  if (magnitude == 0x7F) return 0x7FC00000;
  if (magnitude >= 0x08) return sign | ((magnitude << 20) + ((127u - 7u) << 23));
  return sign | cast<uint32_t>(static_cast<float>(magnitude) * 0x1p-9f);
}

CONTINUO_INLINE Number number_of(uint32_t bits) {
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return {0, bits};
  return {static_cast<double>(cast<float>(bits)), 0};
}

CONTINUO_INLINE Number read_number(const void* data, Type type, size_t i) {
  switch (type) {
    case Type::f32: return number_of(static_cast<const uint32_t*>(data)[i]);
    case Type::f16: return number_of(cast<uint32_t>(widen_f16(static_cast<const uint16_t*>(data)[i])));
    case Type::bf16: return number_of(static_cast<uint32_t>(static_cast<const uint16_t*>(data)[i]) << 16);
    case Type::f8: return number_of(widen_eighth(static_cast<const uint8_t*>(data)[i]));
    case Type::i8: return {static_cast<double>(static_cast<const int8_t*>(data)[i]), 0};
    case Type::u8: return {static_cast<double>(static_cast<const uint8_t*>(data)[i]), 0};
    case Type::i32: return {static_cast<double>(static_cast<const int32_t*>(data)[i]), 0};
    case Type::i64: return {static_cast<double>(static_cast<const int64_t*>(data)[i]), 0};
    default: return {static_cast<const uint8_t*>(data)[i] != 0 ? 1.0 : 0.0, 0};
  }
}

// To nearest, ties to even, clamped; `most` is the largest of T, `least` the smallest.
template <class T> CONTINUO_INLINE T whole_number(Number x, T least, T most) {
  if (x.nan != 0) return 0;
  const double near = __builtin_rint(x.value);
  // 2⁶³ is the one bound that a double rounds up to.
  if (near <= static_cast<double>(least)) return least;
  if (near >= static_cast<double>(most)) return most;
  return static_cast<T>(near);
}

CONTINUO_INLINE void write_number(void* data, Type type, size_t i, Number x) {
  switch (type) {
    // A NaN becomes quiet, as it does on its way through a CPU's double.
    case Type::f32:
      static_cast<uint32_t*>(data)[i] = x.nan != 0 ? x.nan | 0x00400000 : cast<uint32_t>(static_cast<float>(x.value));
      return;
    case Type::f16: static_cast<uint16_t*>(data)[i] = static_cast<uint16_t>(narrow_number(x, half_format)); return;
    case Type::bf16: static_cast<uint16_t*>(data)[i] = static_cast<uint16_t>(narrow_number(x, brain_format)); return;
    case Type::f8: static_cast<uint8_t*>(data)[i] = static_cast<uint8_t>(narrow_number(x, eighth_format)); return;
    case Type::i8: static_cast<int8_t*>(data)[i] = whole_number<int8_t>(x, -128, 127); return;
    case Type::u8: static_cast<uint8_t*>(data)[i] = whole_number<uint8_t>(x, 0, 255); return;
    case Type::i32: static_cast<int32_t*>(data)[i] = whole_number<int32_t>(x, INT32_MIN, INT32_MAX); return;
    case Type::i64: static_cast<int64_t*>(data)[i] = whole_number<int64_t>(x, INT64_MIN, INT64_MAX); return;
    default: static_cast<uint8_t*>(data)[i] = x.nan != 0 || x.value != 0; return;
  }
}

}  // namespace continuo::cuda
