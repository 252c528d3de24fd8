// What a router computes from its scores, and the weighted sum of what the chosen experts gave.
//   softmax    y_i = exp(x_i − max) / Σ_j exp(x_j − max)    the sum in the order of reduce.h
//   normalise  y_i = x_i / Σ_j x_j                          the same order
//   combine    y_n = Σ_k w_k x[k][n]                        by fma over k, ascending from 0; outputs are the lanes
#pragma once

#include "backends/cpu/kernels/elementwise.h"

namespace continuo::CONTINUO_ISA {

inline void normalise(const float* x, float* y, size_t rows, size_t n) {
  for (size_t row = 0; row < rows; ++row) {
    const float* in = x + row * n;
    const float sum = reduce(n, [=](auto acc, size_t i) CONTINUO_LAMBDA { return acc + load<decltype(acc)>(in + i); });
    map(n, y + row * n, [=](auto v) CONTINUO_LAMBDA { return v / splat<decltype(v)>(sum); }, in);
  }
}

inline void softmax_rows(const float* x, float* y, size_t rows, size_t n) {
  for (size_t row = 0; row < rows; ++row) {
    const float* in = x + row * n;
    const float most = max(in, n);
    map(n, y + row * n, [=](auto v) CONTINUO_LAMBDA { return exp(v - splat<decltype(v)>(most)); }, in);
    normalise(y + row * n, y + row * n, 1, n);
  }
}

template <class T>
CONTINUO_INLINE void combine_lanes(const float* x, const float* w, float* y, size_t count, size_t n, size_t i) {
  T sum{};
  for (size_t k = 0; k < count; ++k) sum = fma(splat<T>(w[k]), load<T>(x + k * n + i), sum);
  store(y + i, sum);
}

inline void combine(const float* x, const float* w, float* y, size_t count, size_t n) {
  size_t i = 0;
  for (; i + width <= n; i += width) combine_lanes<Vec>(x, w, y, count, n, i);
  for (; i < n; ++i) combine_lanes<float>(x, w, y, count, n, i);
}

}  // namespace continuo::CONTINUO_ISA
