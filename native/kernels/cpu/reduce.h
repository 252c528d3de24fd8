// Sums along a row. The order is fixed by absolute index alone:
//   terms in blocks of 256; inside a block sixteen partial sums, term i into partial i mod 16, ascending;
//   partials joined by halving (p[i] + p[i+8], then 4, 2, 1); block sums added in order, starting from 0.
// Sixteen is a constant of the arithmetic, not the width of any vector unit: AVX-512 holds the partials in one register,
// AVX2 in two, plain C++ in four.
#pragma once

#include "kernels.h"
#include "simd.h"

namespace continuo::CONTINUO_ISA {

constexpr size_t partials = 16;

// `term(acc, i)` returns acc with term i (or terms i … i+width−1) accumulated; it must accept acc = float and acc = Vec.
template <class Term>
CONTINUO_INLINE float reduce(size_t n, Term term) {
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

}  // namespace continuo::CONTINUO_ISA
