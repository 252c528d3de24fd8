#pragma once

#include "backends/cpu/kernels/reduce.h"
#include "backends/cpu/kernels/simd.h"
#include "backends/math.h"
#include "graph/elementwise.h"

namespace continuo::CONTINUO_ISA {

// Applies `f(T…) → T` along arrays: whole vectors, then single numbers; both run the same operations.
template <class F, class... In> CONTINUO_INLINE void map(size_t n, float* out, F f, const In*... in) {
  size_t i = 0;
  for (; i + width <= n; i += width) store(out + i, f(load<Vec>(in + i)...));
  for (; i < n; ++i) out[i] = f(in[i]...);
}

#define CONTINUO_UNARY_KERNEL(name, cost)                           \
  inline void map_##name(const float* a, float* out, size_t n) {    \
    map(n, out, [](auto x) CONTINUO_LAMBDA { return name(x); }, a); \
  }
#define CONTINUO_BINARY_KERNEL(name, cost)                                        \
  inline void map_##name(const float* a, const float* b, float* out, size_t n) {  \
    map(n, out, [](auto x, auto y) CONTINUO_LAMBDA { return name(x, y); }, a, b); \
  }
CONTINUO_UNARY_OPS(CONTINUO_UNARY_KERNEL)
CONTINUO_BINARY_OPS(CONTINUO_BINARY_KERNEL)
#undef CONTINUO_UNARY_KERNEL
#undef CONTINUO_BINARY_KERNEL

inline void map_lerp(const float* a, const float* b, const float* t, float* out, size_t n) {
  map(n, out, [](auto x, auto y, auto z) CONTINUO_LAMBDA { return fma(y - x, z, x); }, a, b, t);
}
inline void map_scale(const float* a, float factor, float* out, size_t n) {
  map(n, out, [=](auto x) CONTINUO_LAMBDA { return x * splat<decltype(x)>(factor); }, a);
}
inline void map_log(const float* a, float* out, size_t n) {
  map(n, out, [](auto x) CONTINUO_LAMBDA { return log(x); }, a);
}

// In the lanes of reduce.h, so that which of two equal zeros is kept does not depend on the width. Passes NaN over.
inline float max(const float* a, size_t n) {
  constexpr size_t vectors = partials / width;
  const auto greater = [](auto x, auto y) CONTINUO_LAMBDA { return y > x ? y : x; };
  Vec best[vectors];
  for (size_t v = 0; v < vectors; ++v) best[v] = splat<Vec>(-__builtin_inff());
  size_t i = 0;
  for (; i + partials <= n; i += partials) {
    for (size_t v = 0; v < vectors; ++v) best[v] = greater(best[v], load<Vec>(a + i + v * width));
  }
  float lanes[partials];
  for (size_t v = 0; v < vectors; ++v) store(lanes + v * width, best[v]);
  for (size_t lane = 0; i < n; ++i, ++lane) lanes[lane] = greater(lanes[lane], a[i]);
  for (size_t half = partials / 2; half > 0; half /= 2) {
    for (size_t lane = 0; lane < half; ++lane) lanes[lane] = greater(lanes[lane], lanes[lane + half]);
  }
  return lanes[0];
}

inline float sum_exp(const float* a, float shift, size_t n) {
  return reduce(n, [=](auto acc, size_t i) CONTINUO_LAMBDA {
    using T = decltype(acc);
    return acc + exp(load<T>(a + i) - splat<T>(shift));
  });
}

inline float dot(const float* a, const float* b, size_t n) {
  return reduce(n, [=](auto acc, size_t i) CONTINUO_LAMBDA {
    using T = decltype(acc);
    return fma(load<T>(a + i), load<T>(b + i), acc);
  });
}

// x − x is 0 for a finite x and NaN otherwise, so one sum of them tells.
inline bool finite(const float* a, size_t n) {
  Vec seen{};
  size_t i = 0;
  for (; i + width <= n; i += width) {
    const Vec x = load<Vec>(a + i);
    seen += x - x;
  }
  float rest = 0.0f;
  for (; i < n; ++i) rest += a[i] - a[i];
  for (size_t lane = 0; lane < width; ++lane) rest += seen[lane];
  return rest == 0.0f;
}

inline void map_range(const float* a, float low, float high, float* out, size_t n) {
  const float span = high - low;
  map(
      n, out,
      [=](auto x) CONTINUO_LAMBDA { return fma(splat<decltype(x)>(span), sigmoid(x), splat<decltype(x)>(low)); }, a);
}

inline void map_clamp(const float* a, float low, float high, float* out, size_t n) {
  map(n, out, [=](auto x) CONTINUO_LAMBDA { return clamp(x, low, high); }, a);
}

}  // namespace continuo::CONTINUO_ISA
