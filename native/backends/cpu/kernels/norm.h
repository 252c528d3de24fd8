#pragma once

#include "backends/cpu/kernels/elementwise.h"

namespace continuo::CONTINUO_ISA {

inline void norm(const float* x, const float* weight, const float* bias, float* y, size_t rows, size_t channels,
                 size_t groups, float eps) {
  const size_t n = channels / groups;
  const float count = static_cast<float>(n);
  for (size_t row = 0; row < rows; ++row) {
    for (size_t group = 0; group < groups; ++group) {
      const float* in = x + row * channels + group * n;
      const float mean =
          reduce(n, [=](auto acc, size_t i) CONTINUO_LAMBDA { return acc + load<decltype(acc)>(in + i); }) / count;
      const float spread = reduce(n, [=](auto acc, size_t i) CONTINUO_LAMBDA {
        using T = decltype(acc);
        const T d = load<T>(in + i) - splat<T>(mean);
        return fma(d, d, acc);
      });
      const float scale = 1.0f / sqrt(spread / count + eps);
      map(
          n, y + row * channels + group * n,
          [=](auto v, auto w, auto b) CONTINUO_LAMBDA {
            using T = decltype(v);
            return fma((v - splat<T>(mean)) * splat<T>(scale), w, b);
          },
          in, weight + group * n, bias + group * n);
    }
  }
}

CONTINUO_INLINE float square_sum(const float* x, size_t n) {
  return reduce(n, [=](auto acc, size_t i) CONTINUO_LAMBDA {
    const auto v = load<decltype(acc)>(x + i);
    return fma(v, v, acc);
  });
}

inline void l2norm(const float* x, float* y, size_t rows, size_t channels, size_t groups, float floor) {
  const size_t n = channels / groups;
  for (size_t group = 0; group < rows * groups; ++group) {
    const float* in = x + group * n;
    const float length = sqrt(square_sum(in, n));
    const float divisor = length < floor ? floor : length;
    map(n, y + group * n, [=](auto v) CONTINUO_LAMBDA { return v / splat<decltype(v)>(divisor); }, in);
  }
}

inline void rmsnorm(const float* x, const float* weight, float* y, size_t rows, size_t channels, size_t groups,
                    float eps) {
  const size_t n = channels / groups;
  for (size_t group = 0; group < rows * groups; ++group) {
    const float* in = x + group * n;
    const float scale = 1.0f / sqrt(square_sum(in, n) / static_cast<float>(n) + eps);
    map(
        n, y + group * n, [=](auto v, auto w) CONTINUO_LAMBDA { return v * splat<decltype(v)>(scale) * w; }, in,
        weight + group % groups * n);
  }
}

inline void unit(const float* x, float* y, size_t rows, size_t channels, size_t groups, float eps) {
  const size_t n = channels / groups;
  for (size_t group = 0; group < rows * groups; ++group) {
    const float* in = x + group * n;
    const float scale = 1.0f / sqrt(square_sum(in, n) + eps);
    map(n, y + group * n, [=](auto v) CONTINUO_LAMBDA { return v * splat<decltype(v)>(scale); }, in);
  }
}

inline void bonus(const float* y, const float* r, const float* k, const float* u, const float* v, float* out,
                  size_t rows, size_t channels, size_t groups) {
  const size_t n = channels / groups;
  for (size_t row = 0; row < rows; ++row) {
    for (size_t group = 0; group < groups; ++group) {
      const size_t at = row * channels + group * n;
      const float *rr = r + at, *kk = k + at, *uu = u + group * n;
      const float score = reduce(n, [=](auto acc, size_t i) CONTINUO_LAMBDA {
        using T = decltype(acc);
        return fma(load<T>(rr + i) * load<T>(kk + i), load<T>(uu + i), acc);
      });
      map(
          n, out + at, [=](auto a, auto b) CONTINUO_LAMBDA { return fma(splat<decltype(a)>(score), b, a); }, y + at,
          v + at);
    }
  }
}

}  // namespace continuo::CONTINUO_ISA
