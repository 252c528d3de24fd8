// Floats and their bits. Kernels are templates over T = Vec and T = float. This header has the operations on float, for
// every device; cpu/simd.h has the same operations on Vec. Before including it, define CONTINUO_ISA (the namespace) and
// CONTINUO_INLINE.
#pragma once

#include <cstdint>

namespace continuo::CONTINUO_ISA {

// The integer type of the same size as T.
template <class T> struct BitsOf;
template <> struct BitsOf<float> {
  using type = int32_t;
};
template <class T> using Bits = typename BitsOf<T>::type;

// The type of an angle of phase / 2³² turns. Overflow of the integer is a whole turn, so that no error arises.
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
