// Shared by the tests of kernels: the kernel tables, inputs with every kind of number, and slices that start and end at
// any address.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "backends/cpu/kernels/kernels.h"
#include "test/check.h"
#ifndef CONTINUO_CPU_ALONE
#include "test/cuda/table.h"
#endif

namespace continuo::test {

constexpr double unit = 0x1p-24;  // u: the relative error of one rounding to f32

// Every kernel table that this CPU can run, the generic one first, and then the CUDA kernels (not with
// CONTINUO_CPU_ALONE, where they are not built).
inline std::vector<const Kernels*> tables() {
  auto out = runnable_kernels();
  std::reverse(out.begin(), out.end());
#ifndef CONTINUO_CPU_ALONE
  out.push_back(&cuda_kernels);
#endif
  return out;
}

// A NaN's sign and payload are not part of the arithmetic; the sign of a zero is.
inline bool same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}
inline bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) { return same(x, y); });
}

// `n` writable floats at any alignment, between two guards that no kernel may write.
class Slice {
 public:
  Slice(size_t n, size_t offset) : n_(n), offset_(offset), memory_(offset + n + fence, guard) {}
  Slice(const std::vector<float>& values, size_t offset) : Slice(values.size(), offset) {
    std::copy(values.begin(), values.end(), data());
  }
  float* data() { return memory_.data() + offset_; }
  std::vector<float> values() const {
    return {memory_.begin() + static_cast<ptrdiff_t>(offset_), memory_.end() - fence};
  }
  bool fences_stand() const {
    const auto stands = [](float x) { return x == guard; };
    return std::all_of(memory_.begin(), memory_.begin() + static_cast<ptrdiff_t>(offset_), stands) &&
           std::all_of(memory_.end() - fence, memory_.end(), stands);
  }

 private:
  static constexpr size_t fence = 32;
  static constexpr float guard = 12345.678f;
  size_t n_, offset_;
  std::vector<float> memory_;
};

// Lengths around every vector width, block and partial, and primes.
inline size_t some_length(Random& random) {
  constexpr size_t lengths[] = {1,  2,  3,  5,  7,   8,   9,   13,  15,  16,  17,  31,  33,
                                47, 63, 64, 97, 127, 128, 255, 256, 257, 509, 521, 1021};
  return lengths[random.below(std::size(lengths))];
}

// Numbers of every kind: of moderate size, from tiny to huge, subnormal, both zeros, both infinities, NaN.
inline std::vector<float> every_kind(Random& random, size_t n) {
  std::vector<float> out(n);
  for (auto& x : out) {
    switch (random.below(12)) {
      case 0: x = std::ldexp(random.uniform(-1, 1), static_cast<int>(random.below(276)) - 148); break;
      case 1: x = std::bit_cast<float>(static_cast<uint32_t>(random.next()) & 0x807FFFFFu); break;
      case 2: x = random.below(2) ? 0.0f : -0.0f; break;
      case 3: x = random.below(2) ? random.uniform(-120, 120) : random.below(2) ? INFINITY : -INFINITY; break;
      case 4: x = random.below(8) ? 1.0f : NAN; break;
      default: x = random.uniform(-8, 8);
    }
  }
  return out;
}

// Numbers of sizes at which arithmetic on a few of them neither overflows nor underflows.
inline std::vector<float> of_any_size(Random& random, size_t n) {
  std::vector<float> out(n);
  for (auto& x : out)
    x = random.below(8) == 0 ? 0.0f : std::ldexp(random.uniform(-1, 1), static_cast<int>(random.below(24)) - 12);
  return out;
}

// A sum along a row in its written order, term by term: blocks of 256, sixteen partials, halving, block sums in order.
// `term(acc, i)` returns acc with term i in it.
template <class Term> float ordered_sum(size_t n, Term term) {
  float total = 0;
  for (size_t block = 0; block < n; block += 256) {
    float partial[16] = {};
    for (size_t i = block; i < std::min(n, block + 256); ++i) partial[i % 16] = term(partial[i % 16], i);
    for (const size_t half : {8, 4, 2, 1}) {
      for (size_t lane = 0; lane < half; ++lane) partial[lane] += partial[lane + half];
    }
    total += partial[0];
  }
  return total;
}

// The relative error of such a sum over Σ|term|: a term passes through at most 16 additions in its partial, 4 in the
// halving and one for each block. Products of roundings are covered by the one unit more.
inline double sum_error(size_t n) { return (16 + 4 + static_cast<double>((n + 255) / 256) + 1) * unit; }

}  // namespace continuo::test
