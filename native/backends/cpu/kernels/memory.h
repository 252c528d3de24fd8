// A matrix memory that every token trains: Behrouz, Zhong, Mirrokni, "Titans: Learning to Memorize at Test Time"
// (2025), with levels that write at periods of their own (Behrouz, Razaviyayn, Zhong, Mirrokni, "Nested Learning",
// 2025). One level of one head, token after token; b is the key channel, a the value channel, M stands as M[b][a], t is
// the clock:
//   p_a = Σ_b M[b][a] k_b                                      rules titans and delta
//   s_a = θ (p_a − v_a)                                        hebbian: θ (−v_a)
//   frozen, t mod C ≠ 0:   G[b][a] ← s_a k_b + G[b][a];  y from the M that stands
//   fires, t mod C = 0:    ĝ = (s_a k_b + G[b][a]) / C, G ← 0  with C = 1: ĝ = s_a k_b
//     titans:  S ← η S − ((1 − η) ĝ), U = S;   else U = −ĝ
//     M ← none: M + U;  l2: (1 − α) M + U;  elastic: shrink((1 − α λ2) M + U, α λ1);  sphere: (M + U) ρ / ‖M + U‖;
//         kl: softmax over b of (1 − α) log(max(M, floor)) + U, for each a
//     norm_max R: M ← M · (R / max(‖M‖, R));   ‖·‖² = Σ M² + 1e−12, in the order of reduce.h over b, then a
//   y_a ← mix · Σ_b M[b][a] q_b + y_a                          the M after the write; the first level starts from 0
// Products and sums that stand beside each other are one fma. Sums over b run from b = 0 by fma; a head has at most 256
// channels, so each is a single block. Value channels are the lanes.
#pragma once

#include <cstdint>

#include "backends/cpu/kernels/norm.h"

namespace continuo::CONTINUO_ISA {

// p = M·k and r = M·q (where wanted) of the M that stands.
template <class T, size_t Vectors, bool Predict, bool Read>
CONTINUO_INLINE void memory_products(const MemoryRun& run, const float* k, const float* q, float* p, float* r,
                                     size_t lane) {
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
template <class F> CONTINUO_INLINE void memory_stripes(size_t n, F f) {
  size_t lane = 0;
  for (; lane + 4 * width <= n; lane += 4 * width) f.template operator()<Vec, 4>(lane);
  for (; lane + width <= n; lane += width) f.template operator()<Vec, 1>(lane);
  for (; lane < n; ++lane) f.template operator()<float, 1>(lane);
}

template <bool Predict, bool Read>
inline void memory_walk(const MemoryRun& run, const float* k, const float* q, float* p, float* r) {
  memory_stripes(run.channels, [&]<class T, size_t Vectors>(size_t lane) CONTINUO_LAMBDA {
    memory_products<T, Vectors, Predict, Read>(run, k, q, p, r, lane);
  });
}

// Between two firings M stands still, so several tokens share one pass over it, and one over G.
constexpr size_t memory_tile = 4;

template <class T, size_t Vectors, size_t Tokens, bool Predict>
CONTINUO_INLINE void memory_tile_products(const MemoryRun& run, size_t t, float (*p)[block_terms],
                                          float (*r)[block_terms], size_t lane) {
  constexpr size_t step = sizeof(T) / sizeof(float);
  const size_t n = run.channels;
  const float *M = run.M + lane, *k = run.k + t * run.stride, *q = run.q + t * run.stride;
  T predicted[Tokens][Vectors] = {}, read[Tokens][Vectors] = {};
  for (size_t b = 0; b < n; ++b) {
#pragma GCC unroll 4
    for (size_t i = 0; i < Vectors; ++i) {
      const T m = load<T>(M + b * n + i * step);
#pragma GCC unroll 4
      for (size_t token = 0; token < Tokens; ++token) {
        if constexpr (Predict) predicted[token][i] = fma(m, splat<T>(k[token * run.stride + b]), predicted[token][i]);
        read[token][i] = fma(m, splat<T>(q[token * run.stride + b]), read[token][i]);
      }
    }
  }
#pragma GCC unroll 4
  for (size_t token = 0; token < Tokens; ++token) {
#pragma GCC unroll 4
    for (size_t i = 0; i < Vectors; ++i) {
      if constexpr (Predict) store(p[token] + lane + i * step, predicted[token][i]);
      store(r[token] + lane + i * step, read[token][i]);
    }
  }
}

// G ← s kᵀ + G, token by token.
template <class T, size_t Vectors, size_t Tokens>
CONTINUO_INLINE void memory_tile_gather(const MemoryRun& run, size_t t, const float (*s)[block_terms], size_t lane) {
  constexpr size_t step = sizeof(T) / sizeof(float);
  const size_t n = run.channels;
  const float* k = run.k + t * run.stride;
  T errors[Tokens][Vectors];
#pragma GCC unroll 4
  for (size_t token = 0; token < Tokens; ++token) {
#pragma GCC unroll 4
    for (size_t i = 0; i < Vectors; ++i) errors[token][i] = load<T>(s[token] + lane + i * step);
  }
  for (size_t b = 0; b < n; ++b) {
    float* G = run.G + b * n + lane;
#pragma GCC unroll 4
    for (size_t i = 0; i < Vectors; ++i) {
      T g = load<T>(G + i * step);
#pragma GCC unroll 4
      for (size_t token = 0; token < Tokens; ++token) g = fma(errors[token][i], splat<T>(k[token * run.stride + b]), g);
      store(G + i * step, g);
    }
  }
}

// A level's share of what is read.
CONTINUO_INLINE void memory_give(const MemoryRun& run, size_t t, const float* r) {
  float* y = run.y + t * run.stride;
  const float mix = run.mix;
  if (run.begin)
    map(run.channels, y, [=](auto a) CONTINUO_LAMBDA { return fma(splat<decltype(a)>(mix), a, decltype(a){}); }, r);
  else
    map(run.channels, y, [=](auto a, auto b) CONTINUO_LAMBDA { return fma(splat<decltype(a)>(mix), a, b); }, r, y);
}

// θ (p − v); with the rule hebbian p is 0.
CONTINUO_INLINE void memory_error(const MemoryRun& run, size_t t, const float* p, float* s) {
  const float theta = run.theta[t * run.gates];
  map(
      run.channels, s, [=](auto a, auto b) CONTINUO_LAMBDA { return splat<decltype(a)>(theta) * (a - b); }, p,
      run.v + t * run.stride);
}

template <size_t Tokens, bool Predict> inline void memory_frozen(const MemoryRun& run, size_t t) {
  float p[Tokens][block_terms], r[Tokens][block_terms];
  const size_t n = run.channels;
  if constexpr (!Predict) {
    for (size_t token = 0; token < Tokens; ++token) {
      for (size_t a = 0; a < n; ++a) p[token][a] = 0.0f;
    }
  }
  // As many sums as there are registers for.
  constexpr size_t wide = width == 16 ? 2 : 1;
  size_t lane = 0;
  for (; lane + wide * width <= n; lane += wide * width)
    memory_tile_products<Vec, wide, Tokens, Predict>(run, t, p, r, lane);
  for (; lane + width <= n; lane += width) memory_tile_products<Vec, 1, Tokens, Predict>(run, t, p, r, lane);
  for (; lane < n; ++lane) memory_tile_products<float, 1, Tokens, Predict>(run, t, p, r, lane);
  for (size_t token = 0; token < Tokens; ++token) {
    memory_give(run, t + token, r[token]);
    memory_error(run, t + token, p[token], p[token]);
  }
  for (lane = 0; lane + 2 * wide * width <= n; lane += 2 * wide * width)
    memory_tile_gather<Vec, 2 * wide, Tokens>(run, t, p, lane);
  for (; lane + width <= n; lane += width) memory_tile_gather<Vec, 1, Tokens>(run, t, p, lane);
  for (; lane < n; ++lane) memory_tile_gather<float, 1, Tokens>(run, t, p, lane);
}

struct MemoryGates {
  float eta, alpha;
};

// M after U, before what needs all of M.
template <class T, Retention Kept> struct MemoryKeep {
  T share, cut, floor;
  CONTINUO_INLINE MemoryKeep(const MemoryForm& form, float alpha)
      : share(splat<T>(1.0f - (Kept == Retention::elastic ? alpha * form.elastic_l2 : alpha))),
        cut(splat<T>(alpha * form.elastic_l1)),
        floor(splat<T>(form.floor)) {}
  CONTINUO_INLINE T operator()(T m, T u) const {
    if constexpr (Kept == Retention::l2) return fma(share, m, u);
    if constexpr (Kept == Retention::elastic) {
      const T x = fma(share, m, u);
      const T above = x - cut, below = x + cut;
      return above > 0.0f ? above : (below < 0.0f ? below : T{});
    }
    if constexpr (Kept == Retention::kl) return fma(share, log(m > floor ? m : floor), u);
    return m + u;  // none, sphere
  }
};

// The write of one firing. With Read, r = M q and p = M k' of the M it leaves come out of the same pass.
template <class T, size_t Vectors, Retention Kept, bool Momentum, bool Read>
CONTINUO_INLINE void memory_write_lanes(const MemoryForm& form, const MemoryRun& run, size_t t, const float* s,
                                        const MemoryGates& gates, const float* next, float* p, float* r, size_t lane) {
  constexpr size_t step = sizeof(T) / sizeof(float);
  const size_t n = run.channels;
  const float *k = run.k + t * run.stride, *q = run.q + t * run.stride;
  const bool slow = !Read && run.period > 1;
  float *const M = run.M + lane, *const S = run.S + (Momentum ? lane : 0), *const G = run.G + (slow ? lane : 0);
  const MemoryKeep<T, Kept> keep(form, gates.alpha);
  const T eta = splat<T>(gates.eta), fresh = splat<T>(1.0f - gates.eta),
          period = splat<T>(static_cast<float>(run.period));
  T errors[Vectors], predicted[Vectors] = {}, read[Vectors] = {};
#pragma GCC unroll 4
  for (size_t i = 0; i < Vectors; ++i) errors[i] = load<T>(s + lane + i * step);
  for (size_t b = 0; b < n; ++b) {
    const T key = splat<T>(k[b]);
#pragma GCC unroll 4
    for (size_t i = 0; i < Vectors; ++i) {
      const size_t at = b * n + i * step;
      T g = errors[i] * key;
      if (slow) {
        g = fma(errors[i], key, load<T>(G + at)) / period;
        store(G + at, T{});
      }
      T u = -g;
      if constexpr (Momentum) {
        u = fma(eta, load<T>(S + at), -(fresh * g));
        store(S + at, u);
      }
      const T m = keep(load<T>(M + at), u);
      store(M + at, m);
      if constexpr (Read) {
        read[i] = fma(m, splat<T>(q[b]), read[i]);
        predicted[i] = fma(m, splat<T>(next[b]), predicted[i]);
      }
    }
  }
  if constexpr (Read) {
#pragma GCC unroll 4
    for (size_t i = 0; i < Vectors; ++i) {
      store(r + lane + i * step, read[i]);
      store(p + lane + i * step, predicted[i]);
    }
  }
}

template <Retention Kept, bool Momentum, bool Read>
inline void memory_write(const MemoryForm& form, const MemoryRun& run, size_t t, const float* s,
                         const MemoryGates& gates, const float* next, float* p, float* r) {
  const size_t n = run.channels;
  size_t lane = 0;
  if constexpr (Read) {
    for (; lane + 4 * width <= n; lane += 4 * width)
      memory_write_lanes<Vec, 4, Kept, Momentum, Read>(form, run, t, s, gates, next, p, r, lane);
  }
  for (; lane + width <= n; lane += width)
    memory_write_lanes<Vec, 1, Kept, Momentum, Read>(form, run, t, s, gates, next, p, r, lane);
  for (; lane < n; ++lane) memory_write_lanes<float, 1, Kept, Momentum, Read>(form, run, t, s, gates, next, p, r, lane);
}

// Softmax over b for each value channel.
template <class T> CONTINUO_INLINE void memory_softmax_lanes(float* M, size_t n) {
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

// The sums of several blocks at once are those of reduce(): a block's sum knows nothing of the others.
inline float memory_norm(const float* M, size_t n) {
  const size_t numbers = n * n;
  float total = 0.0f;
  size_t at = 0;
  for (; at + width * block_terms <= numbers; at += width * block_terms) {
    float sums[width];
    store(sums, reduce_lanes(block_terms, [&](Vec acc, size_t i, size_t which) CONTINUO_LAMBDA {
            const Vec m = load<Vec>(M + at + which * block_terms + i);
            return fma(m, m, acc);
          }));
    for (size_t lane = 0; lane < width; ++lane) total += sums[lane];
  }
  for (; at < numbers; at += block_terms)
    total += square_sum(M + at, numbers - at < block_terms ? numbers - at : block_terms);
  return sqrt(total + 1e-12f);
}

inline void memory_scale(float* M, size_t n, float by) {
  map(n * n, M, [=](auto m) CONTINUO_LAMBDA { return m * splat<decltype(m)>(by); }, M);
}

// One token at a pulse of the level's: writes with the p that was predicted, then leaves r = M q, and p = M k' of the
// key `next`.
template <Retention Kept, bool Momentum> inline void memory_fire(const MemoryForm& form, const MemoryRun& run, size_t t,
                                                                 const MemoryGates& gates, const float* next, float* p,
                                                                 float* r) {
  const size_t n = run.channels;
  float s[block_terms];
  memory_error(run, t, p, s);
  if constexpr (Kept != Retention::kl && Kept != Retention::sphere) {
    if (run.period == 1 && form.norm_max == 0)
      return memory_write<Kept, Momentum, true>(form, run, t, s, gates, next, p, r);
  }
  memory_write<Kept, Momentum, false>(form, run, t, s, gates, next, p, r);
  if constexpr (Kept == Retention::kl) memory_softmax(run.M, n);
  if constexpr (Kept == Retention::sphere) memory_scale(run.M, n, form.radius / memory_norm(run.M, n));
  if (form.norm_max > 0) {
    const float norm = memory_norm(run.M, n);
    if (norm > form.norm_max) memory_scale(run.M, n, form.norm_max / norm);
  }
  memory_walk<true, true>(run, next, run.q + t * run.stride, p, r);
}

template <bool Momentum> inline void memory_fires(const MemoryForm& form, const MemoryRun& run, size_t t,
                                                  const float* next, float* p, float* r) {
  const MemoryGates gates{Momentum ? run.eta[t * run.gates] : 0.0f, run.alpha ? run.alpha[t * run.gates] : 0.0f};
  switch (form.retention) {
    case Retention::none: return memory_fire<Retention::none, Momentum>(form, run, t, gates, next, p, r);
    case Retention::l2: return memory_fire<Retention::l2, Momentum>(form, run, t, gates, next, p, r);
    case Retention::elastic: return memory_fire<Retention::elastic, Momentum>(form, run, t, gates, next, p, r);
    case Retention::kl: return memory_fire<Retention::kl, Momentum>(form, run, t, gates, next, p, r);
    case Retention::sphere: return memory_fire<Retention::sphere, Momentum>(form, run, t, gates, next, p, r);
  }
}

template <bool Predict> inline void memory_level(const MemoryForm& form, const MemoryRun& run) {
  float p[block_terms] = {};
  bool predicted = false;
  for (size_t t = 0; t < run.tokens;) {
    const uint64_t phase = run.period == 1 ? 0 : (run.clock + t) % run.period;
    if (phase == 0) {
      // The token after it predicts from the M that this one leaves; where it fires too, both look at it in one pass.
      const bool soon = run.period == 1 && t + 1 < run.tokens;
      const float* key = run.k + t * run.stride;
      float r[block_terms];
      if (Predict && !predicted) memory_walk<true, false>(run, key, nullptr, p, nullptr);
      if (form.rule == Rule::titans)
        memory_fires<true>(form, run, t, soon ? key + run.stride : key, p, r);
      else
        memory_fires<false>(form, run, t, soon ? key + run.stride : key, p, r);
      memory_give(run, t, r);
      predicted = soon;
      for (size_t a = 0; !Predict && a < run.channels; ++a) p[a] = 0.0f;
      ++t;
      continue;
    }
    size_t still = run.tokens - t;
    if (run.period - phase < still) still = run.period - phase;
    for (; still >= memory_tile; still -= memory_tile, t += memory_tile) memory_frozen<memory_tile, Predict>(run, t);
    for (; still > 0; --still, ++t) memory_frozen<1, Predict>(run, t);
  }
}

inline void memory(const MemoryForm& form, const MemoryRun& run) {
  if (form.rule == Rule::hebbian)
    memory_level<false>(form, run);
  else
    memory_level<true>(form, run);
}

inline void mix(const float* M, size_t stride, const float* shares, size_t levels, float* out, size_t numbers) {
  for (size_t i = 0; i < levels; ++i) {
    const float share = shares[i];
    if (i == 0)
      map(numbers, out, [=](auto m) CONTINUO_LAMBDA { return fma(splat<decltype(m)>(share), m, decltype(m){}); }, M);
    else
      map(
          numbers, out, [=](auto m, auto sum) CONTINUO_LAMBDA { return fma(splat<decltype(m)>(share), m, sum); },
          M + i * stride, out);
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
