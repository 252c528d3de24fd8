// Activations of a row as integers under one scale per group (kernels.h states the rule).
#pragma once

#include <cstdint>

#include "backends/cpu/kernels/dot.h"
#include "backends/cpu/kernels/kernels.h"

namespace continuo::CONTINUO_ISA {

// One number out of all lanes, by halving; `join` must not care for the order.
template <size_t Lanes, class Vector, class Join> CONTINUO_INLINE int32_t fold(Vector v, Join join) {
  if constexpr (Lanes == 1) {
    return v[0];
  } else {
    typedef int32_t Half __attribute__((vector_size(Lanes * 2)));
    Half halves[2];
    __builtin_memcpy(halves, &v, sizeof v);
    return fold<Lanes / 2>(join(halves[0], halves[1]), join);
  }
}

// The group's largest |x|: bits without the sign are ordered as the numbers are, then infinity, then NaN.
CONTINUO_INLINE float magnitude(const float* x, size_t group) {
  Ints best{};
  for (size_t i = 0; i < group; i += width) {
    const Ints bits = load_ints(x + i) & 0x7FFFFFFF;
    best = bits > best ? bits : best;
  }
  return cast<float>(fold<width>(best, [](auto a, auto b) CONTINUO_LAMBDA { return a > b ? a : b; }));
}

// Fills some numbers of a group; returns the sum of their integers.
CONTINUO_INLINE int32_t quantise_group(const float* x, size_t group, float scale, int8_t* out) {
  // Adding 1.5·2²³ rounds to the nearest integer, ties to even, which then sits in the low mantissa bits. |x / scale|
  // can pass 127 only where the scale is denormal, and then by less than a factor of 2.
  const Vec nearest = splat<Vec>(to_nearest), divisor = splat<Vec>(scale);
  Ints sum{};
  for (size_t i = 0; i < group; i += width) {
    Ints q = cast<Ints>(load<Vec>(x + i) / divisor + nearest) - cast<Ints>(nearest);
    q = q > 127 ? splat_int(127) : q;
    q = q < -127 ? splat_int(-127) : q;
    sum += q;
    typedef int8_t Bytes __attribute__((vector_size(width)));
    const Bytes bytes = __builtin_convertvector(q, Bytes);
    __builtin_memcpy(out + i, &bytes, sizeof bytes);
  }
  return fold<width>(sum, [](auto a, auto b) CONTINUO_LAMBDA { return a + b; });
}

inline void quantise(const PackedMatrix& w, const float* x, QuantisedBlock* out, size_t stride) {
  const int32_t zero = zero_code(w.dtype);
  for (size_t block = 0; block < w.inputs; block += block_terms, out += stride) {
    const size_t terms = w.inputs - block < block_terms ? w.inputs - block : block_terms;
    const float* in = x + block;
    float padded[block_terms];
    if (terms < block_terms) {
      __builtin_memset(padded, 0, sizeof padded);
      __builtin_memcpy(padded, in, terms * sizeof(float));
      in = padded;
    }
    const size_t groups = (terms + w.group - 1) / w.group;
    for (size_t g = 0; g < groups; ++g) {
      const float scale = magnitude(in + g * w.group, w.group) / 127.0f;
      const bool usable = scale > 0.0f && scale - scale == 0.0f;
      out->scales[g] = scale - scale == 0.0f ? scale : __builtin_nanf("");
      out->corrections[g] = 0;
      const float* from = in + g * w.group;
      int8_t* to = out->terms + g * w.group;
      if (!usable)
        __builtin_memset(to, 0, w.group);
      else if (w.dtype == Dtype::q6_k)
        out->corrections[g] =
            half_sums(quantise_group(from, 16, scale, to), quantise_group(from + 16, 16, scale, to + 16));
      else
        out->corrections[g] = -zero * quantise_group(from, w.group, scale, to);
    }
  }
}

}  // namespace continuo::CONTINUO_ISA
