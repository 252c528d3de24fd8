// Floats and their bits. Kernels are written once over T = Vec and T = float: this is what they need of float, on every
// device; cpu/simd.h adds the same of Vec. Whoever includes it has named its namespace in CONTINUO_ISA and defined
// CONTINUO_INLINE.
#pragma once

#include <cstdint>

namespace continuo::CONTINUO_ISA {

// The integer type that holds T's bits.
template <class T> struct BitsOf;
template <> struct BitsOf<float> {
  using type = int32_t;
};
template <class T> using Bits = typename BitsOf<T>::type;

// An angle as a fraction of a turn, phase / 2³² turns, so that it wraps around without error.
template <class T> struct PhaseOf;
template <> struct PhaseOf<float> {
  using type = uint32_t;
};
template <class T> using Phase = typename PhaseOf<T>::type;

CONTINUO_INLINE float to_float(int32_t i) { return static_cast<float>(i); }
CONTINUO_INLINE int32_t to_int(float x) { return static_cast<int32_t>(x); }

template <class To, class From> CONTINUO_INLINE To cast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

}  // namespace continuo::CONTINUO_ISA
