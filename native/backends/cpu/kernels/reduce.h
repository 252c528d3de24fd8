// Sums along a row. The order is fixed by absolute index alone:
//   terms in blocks of 256; inside a block sixteen partial sums, term i into partial i mod 16, ascending;
//   partials joined by halving (p[i] + p[i+8], then 4, 2, 1); block sums added in order, starting from 0.
// Sixteen is a constant of the arithmetic, not the width of any vector unit: AVX-512 holds the partials in one
// register, AVX2 in two, plain C++ in four.
#pragma once

#include <cstdint>

#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/kernels/simd.h"

namespace continuo::CONTINUO_ISA {

constexpr size_t partials = 16;

// `term(acc, i)` returns acc with term i (or terms i … i+width−1) accumulated; it must accept acc = float and acc =
// Vec.
template <class Term> CONTINUO_INLINE float reduce(size_t n, Term term) {
  constexpr size_t vectors = partials / width;
  float total = 0.0f;
  for (size_t block = 0; block < n; block += block_terms) {
    const size_t end = block + block_terms < n ? block + block_terms : n;
    Vec sums[vectors] = {};
    size_t i = block;
    for (; i + partials <= end; i += partials) {
      for (size_t v = 0; v < vectors; ++v) sums[v] = term(sums[v], i + v * width);
    }
    float partial[partials];
    for (size_t v = 0; v < vectors; ++v) store(partial + v * width, sums[v]);
    for (size_t lane = 0; i < end; ++i, ++lane) partial[lane] = term(partial[lane], i);
    for (size_t half = partials / 2; half > 0; half /= 2) {
      for (size_t lane = 0; lane < half; ++lane) partial[lane] += partial[lane + half];
    }
    total += partial[0];
  }
  return total;
}

// Which lanes of two vectors side by side a halving adds: of every `run` lanes the first half, or the second.
template <size_t run, bool second, size_t... lane> CONTINUO_INLINE Vec half_lanes(Vec a, Vec b, Lanes<lane...>) {
  return (Vec)__builtin_shuffle(
      a, b, Ints{static_cast<int32_t>(lane / (run / 2) * run + lane % (run / 2) + (second ? run / 2 : 0))...});
}

// Two sums of `run` lanes each, or more of them side by side in a vector, halved into one vector.
template <size_t run> CONTINUO_INLINE Vec joined(Vec a, Vec b) {
  return half_lanes<run, false>(a, b, AllLanes{}) + half_lanes<run, true>(a, b, AllLanes{});
}

// Joins the partials of `width` sums, each of `run` lanes, by the halving of reduce(): sum i ends in lane i.
template <size_t run> CONTINUO_INLINE Vec join(Vec* sums) {
  if constexpr (run == 1) {
    return sums[0];
  } else {
    for (size_t i = 0; i < run / 2; ++i) sums[i] = joined<run>(sums[2 * i], sums[2 * i + 1]);
    return join<run / 2>(sums);
  }
}

// The sixteen partials of a sum, halved until they are one vector.
template <size_t vectors> CONTINUO_INLINE Vec halved(Vec (&sums)[vectors]) {
#pragma GCC unroll 4
  for (size_t half = vectors / 2; half > 0; half /= 2) {
#pragma GCC unroll 4
    for (size_t v = 0; v < half; ++v) sums[v] += sums[v + half];
  }
  return sums[0];
}

// `width` sums at once, sum i in lane i: each is what reduce() gives for the terms `term(acc, i, which)`. n is a
// multiple of 16.
template <class Term> CONTINUO_INLINE Vec reduce_lanes(size_t n, Term term) {
  constexpr size_t vectors = partials / width;
  Vec total{};
  for (size_t block = 0; block < n; block += block_terms) {
    const size_t end = block + block_terms < n ? block + block_terms : n;
    Vec sums[width][vectors] = {};
    for (size_t i = block; i < end; i += partials) {
      for (size_t v = 0; v < vectors; ++v) {
#pragma GCC unroll 16
        for (size_t which = 0; which < width; ++which) sums[which][v] = term(sums[which][v], i + v * width, which);
      }
    }
    Vec each[width];
#pragma GCC unroll 16
    for (size_t which = 0; which < width; ++which) each[which] = halved(sums[which]);
    total += join<width>(each);
  }
  return total;
}

}  // namespace continuo::CONTINUO_ISA
