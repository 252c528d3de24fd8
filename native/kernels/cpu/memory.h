// A matrix memory that every token trains: Behrouz, Zhong, Mirrokni, "Titans: Learning to Memorize at Test Time" (2025), with levels
// that write at periods of their own (Behrouz, Razaviyayn, Zhong, Mirrokni, "Nested Learning", 2025). One level of one head, token
// after token; b is the key channel, a the value channel, M stands as M[b][a], t is the clock:
//   p_a = Σ_b M[b][a] k_b                                      rules titans and delta
//   s_a = θ (p_a − v_a)                                        hebbian: θ (−v_a)
//   frozen, t mod C ≠ 0:   G[b][a] ← s_a k_b + G[b][a];  y from the M that stands
//   fires, t mod C = 0:    ĝ = (s_a k_b + G[b][a]) / C, G ← 0  with C = 1: ĝ = s_a k_b
//     titans:  S ← η S − ((1 − η) ĝ), U = S;   else U = −ĝ
//     M ← none: M + U;  l2: (1 − α) M + U;  elastic: shrink((1 − α λ2) M + U, α λ1);  sphere: (M + U) ρ / ‖M + U‖;
//         kl: softmax over b of (1 − α) log(max(M, floor)) + U, for each a
//     norm_max R: M ← M · (R / max(‖M‖, R));   ‖·‖² = Σ M² + 1e−12, in the order of reduce.h over b, then a
//   y_a ← mix · Σ_b M[b][a] q_b + y_a                          the M after the write; the first level starts from 0
// Products and sums that stand beside each other are one fma. Sums over b run from b = 0 by fma; a head has at most 256 channels,
// so each is a single block. Value channels are the lanes.
#pragma once

#include "norm.h"

namespace continuo::CONTINUO_ISA {

// p = M·k and r = M·q (where wanted) of the M that stands.
template <class T, size_t Vectors, bool Predict, bool Read>
CONTINUO_INLINE void memory_products(const MemoryRun& run, const float* k, const float* q, float* p, float* r, size_t lane) {
  constexpr size_t step = sizeof(T) / sizeof(float);
  const size_t n = run.channels;
  const float* M = run.M + lane;
  T predicted[Vectors] = {}, read[Vectors] = {};
  for (size_t b = 0; b < n; ++b) {
#pragma GCC unroll 16
    for (size_t i = 0; i < Vectors; ++i) {
      const T m = load<T>(M + b * n + i * step);
      if constexpr (Predict) predicted[i] = fma(m, splat<T>(k[b]), predicted[i]);
      if constexpr (Read) read[i] = fma(m, splat<T>(q[b]), read[i]);
    }
  }
#pragma GCC unroll 16
  for (size_t i = 0; i < Vectors; ++i) {
    if constexpr (Predict) store(p + lane + i * step, predicted[i]);
    if constexpr (Read) store(r + lane + i * step, read[i]);
  }
}

// Calls f.template operator()<T, Vectors>(lane) for stripes of lanes; enough sums side by side hide the latency of fma.
template <class F>
CONTINUO_INLINE void memory_stripes(size_t n, F f) {
  size_t lane = 0;
  for (; lane + 4 * width <= n; lane += 4 * width) f.template operator()<Vec, 4>(lane);
  for (; lane + width <= n; lane += width) f.template operator()<Vec, 1>(lane);
  for (; lane < n; ++lane) f.template operator()<float, 1>(lane);
}

template <bool Predict, bool Read>
inline void memory_walk(const MemoryRun& run, const float* k, const float* q, float* p, float* r) {
  memory_stripes(run.channels, [&]<class T, size_t Vectors>(size_t lane) CONTINUO_LAMBDA { memory_products<T, Vectors, Predict, Read>(run, k, q, p, r, lane); });
}

// G ← s kᵀ + G.
inline void memory_accumulate(const MemoryRun& run, const float* k, const float* s) {
  const size_t n = run.channels;
  for (size_t b = 0; b < n; ++b) {
    float* G = run.G + b * n;
    map(n, G, [=](auto a, auto g) CONTINUO_LAMBDA { return fma(a, splat<decltype(a)>(k[b]), g); }, s, G);
  }
}

struct MemoryGates {
  float eta, alpha, period;
};

// U of one element: the gradient leaves G, passes the momentum.
template <class T, bool Slow, bool Momentum>
CONTINUO_INLINE T memory_update(const MemoryRun& run, T s, float k, size_t at, const MemoryGates& gates) {
  T g;
  if constexpr (Slow) {
    g = fma(s, splat<T>(k), load<T>(run.G + at)) / splat<T>(gates.period);
    store(run.G + at, T{});
  } else {
    g = s * splat<T>(k);
  }
  if constexpr (!Momentum) return -g;
  const T S = fma(splat<T>(gates.eta), load<T>(run.S + at), -(splat<T>(1.0f - gates.eta) * g));
  store(run.S + at, S);
  return S;
}

// M after U, before what needs all of M.
template <class T, Retention Kept>
CONTINUO_INLINE T memory_keep(const MemoryForm& form, T m, T u, float alpha) {
  if constexpr (Kept == Retention::l2) return fma(splat<T>(1.0f - alpha), m, u);
  if constexpr (Kept == Retention::elastic) {
    const T x = fma(splat<T>(1.0f - alpha * form.elastic_l2), m, u);
    const T cut = splat<T>(alpha * form.elastic_l1);
    const T above = x - cut, below = x + cut;
    return above > 0.0f ? above : (below < 0.0f ? below : T{});
  }
  if constexpr (Kept == Retention::kl) {
    const T floor = splat<T>(form.floor);
    return fma(splat<T>(1.0f - alpha), log(m > floor ? m : floor), u);
  }
  return m + u;  // none, sphere
}

template <Retention Kept, bool Slow, bool Momentum>
inline void memory_write(const MemoryForm& form, const MemoryRun& run, const float* k, const float* s, const MemoryGates& gates) {
  const size_t n = run.channels;
  for (size_t b = 0; b < n; ++b) {
    const auto one = [&]<class T>(size_t a) CONTINUO_LAMBDA {
      const size_t at = b * n + a;
      const T u = memory_update<T, Slow, Momentum>(run, load<T>(s + a), k[b], at, gates);
      store(run.M + at, memory_keep<T, Kept>(form, load<T>(run.M + at), u, gates.alpha));
    };
    size_t a = 0;
    for (; a + width <= n; a += width) one.template operator()<Vec>(a);
    for (; a < n; ++a) one.template operator()<float>(a);
  }
}

// Softmax over b for each value channel.
template <class T>
CONTINUO_INLINE void memory_softmax_lanes(float* M, size_t n) {
  T most = load<T>(M), sum{};
  for (size_t b = 1; b < n; ++b) {
    const T x = load<T>(M + b * n);
    most = x > most ? x : most;
  }
  for (size_t b = 0; b < n; ++b) {
    const T e = exp(load<T>(M + b * n) - most);
    store(M + b * n, e);
    sum = sum + e;
  }
  for (size_t b = 0; b < n; ++b) store(M + b * n, load<T>(M + b * n) / sum);
}

inline void memory_softmax(float* M, size_t n) {
  size_t a = 0;
  for (; a + width <= n; a += width) memory_softmax_lanes<Vec>(M + a, n);
  for (; a < n; ++a) memory_softmax_lanes<float>(M + a, n);
}

inline float memory_norm(const float* M, size_t n) { return sqrt(square_sum(M, n * n) + 1e-12f); }

inline void memory_scale(float* M, size_t n, float by) {
  map(n * n, M, [=](auto m) CONTINUO_LAMBDA { return m * splat<decltype(m)>(by); }, M);
}

template <Retention Kept>
inline void memory_fire(const MemoryForm& form, const MemoryRun& run, const float* k, const float* s, const MemoryGates& gates) {
  const bool momentum = form.rule == Rule::titans;
  if (run.period > 1) {
    if (momentum) memory_write<Kept, true, true>(form, run, k, s, gates);
    else memory_write<Kept, true, false>(form, run, k, s, gates);
  } else {
    if (momentum) memory_write<Kept, false, true>(form, run, k, s, gates);
    else memory_write<Kept, false, false>(form, run, k, s, gates);
  }
  if constexpr (Kept == Retention::kl) memory_softmax(run.M, run.channels);
  if constexpr (Kept == Retention::sphere) memory_scale(run.M, run.channels, form.radius / memory_norm(run.M, run.channels));
  if (form.norm_max > 0) {
    const float norm = memory_norm(run.M, run.channels);
    if (norm > form.norm_max) memory_scale(run.M, run.channels, form.norm_max / norm);
  }
}

inline void memory(const MemoryForm& form, const MemoryRun& run) {
  const size_t n = run.channels;
  const bool predicts = form.rule != Rule::hebbian;
  float p[block_terms] = {}, r[block_terms], s[block_terms];
  for (size_t t = 0; t < run.tokens; ++t) {
    const float *q = run.q + t * run.stride, *k = run.k + t * run.stride, *v = run.v + t * run.stride;
    const bool fires = run.period == 1 || (run.clock + t) % run.period == 0;
    if (predicts && fires) memory_walk<true, false>(run, k, q, p, r);
    if (predicts && !fires) memory_walk<true, true>(run, k, q, p, r);
    if (!predicts && !fires) memory_walk<false, true>(run, k, q, p, r);
    const float theta = run.theta[t * run.gates];
    map(n, s, [=](auto a, auto b) CONTINUO_LAMBDA { return splat<decltype(a)>(theta) * (a - b); }, p, v);
    if (!fires) {
      memory_accumulate(run, k, s);
    } else {
      const MemoryGates gates{run.eta ? run.eta[t * run.gates] : 0.0f, run.alpha ? run.alpha[t * run.gates] : 0.0f, static_cast<float>(run.period)};
      switch (form.retention) {
        case Retention::none: memory_fire<Retention::none>(form, run, k, s, gates); break;
        case Retention::l2: memory_fire<Retention::l2>(form, run, k, s, gates); break;
        case Retention::elastic: memory_fire<Retention::elastic>(form, run, k, s, gates); break;
        case Retention::kl: memory_fire<Retention::kl>(form, run, k, s, gates); break;
        case Retention::sphere: memory_fire<Retention::sphere>(form, run, k, s, gates); break;
      }
      memory_walk<false, true>(run, k, q, p, r);
    }
    float* y = run.y + t * run.stride;
    const float mix = run.mix;
    if (run.begin) map(n, y, [=](auto a) CONTINUO_LAMBDA { return fma(splat<decltype(a)>(mix), a, decltype(a){}); }, r);
    else map(n, y, [=](auto a, auto b) CONTINUO_LAMBDA { return fma(splat<decltype(a)>(mix), a, b); }, r, y);
  }
}

inline void mix(const float* M, size_t stride, const float* shares, size_t levels, float* out, size_t numbers) {
  for (size_t i = 0; i < levels; ++i) {
    const float share = shares[i];
    if (i == 0) map(numbers, out, [=](auto m) CONTINUO_LAMBDA { return fma(splat<decltype(m)>(share), m, decltype(m){}); }, M);
    else map(numbers, out, [=](auto m, auto sum) CONTINUO_LAMBDA { return fma(splat<decltype(m)>(share), m, sum); }, M + i * stride, out);
  }
}

inline void recall(const float* M, const float* c, float* y, size_t rows, size_t stride, size_t channels) {
  for (size_t row = 0; row < rows; ++row) {
    MemoryRun run{};
    run.M = const_cast<float*>(M);
    run.channels = channels;
    memory_walk<false, true>(run, nullptr, c + row * stride, nullptr, y + row * stride);
  }
}

inline void memory_first(const MemoryForm& form, const float* init, float* M, size_t n) {
  for (size_t a = 0; a < n; ++a) {
    for (size_t b = 0; b < n; ++b) M[b * n + a] = init ? init[a * n + b] : 0.0f;
  }
  if (form.retention == Retention::kl) memory_softmax(M, n);
  if (form.retention == Retention::sphere) memory_scale(M, n, form.radius / memory_norm(M, n));
}

inline void softmax(const float* x, size_t stride, float* out, size_t n) {
  float most = x[0], sum = 0.0f;
  for (size_t i = 1; i < n; ++i) most = x[i * stride] > most ? x[i * stride] : most;
  for (size_t i = 0; i < n; ++i) {
    out[i] = exp(x[i * stride] - most);
    sum += out[i];
  }
  for (size_t i = 0; i < n; ++i) out[i] /= sum;
}

}  // namespace continuo::CONTINUO_ISA
