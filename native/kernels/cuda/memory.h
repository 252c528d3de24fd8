// A matrix memory that every token trains: cpu/memory.h has the equations. A thread has whole value channels, that is columns of M, S and
// G, so only a norm of all of M makes the threads of a block wait for each other.
#pragma once

#include "reduce.h"
#include "scalar.h"

#include "../jobs.h"

namespace continuo::cuda {

// Calls f.operator()<count>(b) along the key channels, eight at a time and the rest one by one: what eight of them need is loaded before it
// is used.
template <class F>
CONTINUO_INLINE void memory_keys(size_t n, const F& f) {
  size_t b = 0;
  for (; b + 8 <= n; b += 8) f.template operator()<8>(b);
  for (; b < n; ++b) f.template operator()<1>(b);
}

// Calls f(a) for the value channels of a thread.
template <class F>
CONTINUO_INLINE void memory_channels(size_t n, const F& f) {
  for (size_t a = threadIdx.x; a < n; a += blockDim.x) f(a);
}

struct MemoryProducts {
  float p, r;
};

// Σ_b M[b][a] k_b and Σ_b M[b][a] q_b of one value channel.
CONTINUO_INLINE MemoryProducts memory_products(const float* M, const float* k, const float* q, size_t n, size_t a) {
  MemoryProducts out{};
  memory_keys(n, [&]<uint32_t Side>(size_t b) {
    float m[Side], key[Side], query[Side];
#pragma unroll
    for (uint32_t i = 0; i < Side; ++i) m[i] = M[(b + i) * n + a], key[i] = k[b + i], query[i] = q[b + i];
#pragma unroll
    for (uint32_t i = 0; i < Side; ++i) out.p = fma(m[i], key[i], out.p), out.r = fma(m[i], query[i], out.r);
  });
  return out;
}

// The same for one vector.
CONTINUO_INLINE float memory_product(const float* M, const float* q, size_t n, size_t a) {
  float out = 0.0f;
  memory_keys(n, [&]<uint32_t Side>(size_t b) {
    float m[Side], query[Side];
#pragma unroll
    for (uint32_t i = 0; i < Side; ++i) m[i] = M[(b + i) * n + a], query[i] = q[b + i];
#pragma unroll
    for (uint32_t i = 0; i < Side; ++i) out = fma(m[i], query[i], out);
  });
  return out;
}

// A level's share of what is read.
CONTINUO_INLINE void memory_give(const MemoryRun& run, size_t t, size_t a, float r) {
  float& y = run.y[t * run.stride + a];
  y = fma(run.mix, r, run.begin ? 0.0f : y);
}

// G ← s kᵀ + G of one value channel.
CONTINUO_INLINE void memory_gather(const MemoryRun& run, const float* k, size_t a, float s) {
  const size_t n = run.channels;
  memory_keys(n, [&]<uint32_t Side>(size_t b) {
    float g[Side], key[Side];
#pragma unroll
    for (uint32_t i = 0; i < Side; ++i) g[i] = run.G[(b + i) * n + a], key[i] = k[b + i];
#pragma unroll
    for (uint32_t i = 0; i < Side; ++i) run.G[(b + i) * n + a] = fma(s, key[i], g[i]);
  });
}

struct MemoryGates {
  float eta, alpha;
};

// M after U, before what needs all of M.
template <Retention Kept>
struct MemoryKeep {
  float share, cut, floor;
  CONTINUO_INLINE MemoryKeep(const MemoryForm& form, float alpha)
      : share(1.0f - (Kept == Retention::elastic ? alpha * form.elastic_l2 : alpha)), cut(alpha * form.elastic_l1), floor(form.floor) {}
  CONTINUO_INLINE float operator()(float m, float u) const {
    if constexpr (Kept == Retention::l2) {
      return fma(share, m, u);
    } else if constexpr (Kept == Retention::elastic) {
      const float x = fma(share, m, u);
      const float above = x - cut, below = x + cut;
      return above > 0.0f ? above : (below < 0.0f ? below : 0.0f);
    } else if constexpr (Kept == Retention::kl) {
      return fma(share, log(m > floor ? m : floor), u);
    } else {
      return m + u;  // none, sphere
    }
  }
};

// The write of one firing to one value channel; returns r = M q of the M it leaves.
template <Retention Kept, bool Momentum>
CONTINUO_INLINE float memory_write(const MemoryForm& form, const MemoryRun& run, size_t t, const MemoryGates& gates, size_t a, float s) {
  const size_t n = run.channels;
  const float *k = run.k + t * run.stride, *q = run.q + t * run.stride;
  const bool slow = run.period > 1;
  const MemoryKeep<Kept> keep(form, gates.alpha);
  const float fresh = 1.0f - gates.eta, period = static_cast<float>(run.period);
  float read = 0.0f;
  memory_keys(n, [&]<uint32_t Side>(size_t b) {
    float m[Side], momentum[Side], gathered[Side], key[Side], query[Side];
#pragma unroll
    for (uint32_t i = 0; i < Side; ++i) {
      const size_t at = (b + i) * n + a;
      m[i] = run.M[at];
      momentum[i] = Momentum ? run.S[at] : 0.0f;
      gathered[i] = slow ? run.G[at] : 0.0f;
      key[i] = k[b + i];
      query[i] = q[b + i];
    }
#pragma unroll
    for (uint32_t i = 0; i < Side; ++i) {
      const size_t at = (b + i) * n + a;
      float g = s * key[i];
      if (slow) {
        g = fma(s, key[i], gathered[i]) / period;
        run.G[at] = 0.0f;
      }
      float u = -g;
      if constexpr (Momentum) {
        u = fma(gates.eta, momentum[i], -(fresh * g));
        run.S[at] = u;
      }
      m[i] = keep(m[i], u);
      run.M[at] = m[i];
      read = fma(m[i], query[i], read);
    }
  });
  return read;
}

// Softmax over b of one value channel.
CONTINUO_INLINE void memory_softmax(float* M, size_t n, size_t a) {
  float most = M[a], sum = 0.0f;
  for (size_t b = 1; b < n; ++b) {
    const float x = M[b * n + a];
    most = x > most ? x : most;
  }
  for (size_t b = 0; b < n; ++b) {
    const float e = exp(M[b * n + a] - most);
    M[b * n + a] = e;
    sum = sum + e;
  }
  for (size_t b = 0; b < n; ++b) M[b * n + a] = M[b * n + a] / sum;
}

// Every thread of the block, here and in what follows. What they wrote to M is brought together by the barrier with which reduce begins.
CONTINUO_INLINE float memory_norm(const float* M, size_t n) {
  return sqrt(reduce(n * n, [=](float acc, size_t i) { return fma(M[i], M[i], acc); }) + 1e-12f);
}

CONTINUO_INLINE void memory_scale(float* M, size_t n, float by) {
  memory_channels(n, [=](size_t a) {
    for (size_t b = 0; b < n; ++b) M[b * n + a] = M[b * n + a] * by;
  });
}

template <Retention Kept, bool Momentum>
__device__ inline void memory_level(const MemoryForm& form, const MemoryRun& run) {
  const size_t n = run.channels;
  const bool predicts = form.rule != Rule::hebbian;
  const bool whole = Kept == Retention::sphere || form.norm_max > 0;
  uint64_t phase = run.clock % run.period;
  for (size_t t = 0; t < run.tokens; ++t) {
    const float *k = run.k + t * run.stride, *q = run.q + t * run.stride, *v = run.v + t * run.stride;
    const float theta = run.theta[t * run.gates];
    const bool fires = phase == 0;
    if (++phase == run.period) phase = 0;
    if (!fires) {
      memory_channels(n, [&](size_t a) {
        const auto [p, r] = memory_products(run.M, k, q, n, a);
        memory_give(run, t, a, r);
        memory_gather(run, k, a, theta * ((predicts ? p : 0.0f) - v[a]));
      });
      continue;
    }
    const MemoryGates gates{Momentum ? run.eta[t * run.gates] : 0.0f, run.alpha ? run.alpha[t * run.gates] : 0.0f};
    memory_channels(n, [&](size_t a) {
      const float p = predicts ? memory_product(run.M, k, n, a) : 0.0f;
      const float r = memory_write<Kept, Momentum>(form, run, t, gates, a, theta * (p - v[a]));
      if constexpr (Kept == Retention::kl) memory_softmax(run.M, n, a);
      if (!whole) memory_give(run, t, a, Kept == Retention::kl ? memory_product(run.M, q, n, a) : r);
    });
    if (!whole) continue;
    if constexpr (Kept == Retention::sphere) memory_scale(run.M, n, form.radius / memory_norm(run.M, n));
    if (form.norm_max > 0) {
      const float norm = memory_norm(run.M, n);
      if (norm > form.norm_max) memory_scale(run.M, n, form.norm_max / norm);
    }
    memory_channels(n, [&](size_t a) { memory_give(run, t, a, memory_product(run.M, q, n, a)); });
  }
}

template <Retention Kept>
CONTINUO_INLINE void memory_kept(const MemoryForm& form, const MemoryRun& run) {
  if (form.rule == Rule::titans) memory_level<Kept, true>(form, run);
  else memory_level<Kept, false>(form, run);
}

__device__ inline void memory(const MemoryForm& form, const MemoryRun& run) {
  switch (form.retention) {
    case Retention::none: return memory_kept<Retention::none>(form, run);
    case Retention::l2: return memory_kept<Retention::l2>(form, run);
    case Retention::elastic: return memory_kept<Retention::elastic>(form, run);
    case Retention::kl: return memory_kept<Retention::kl>(form, run);
    case Retention::sphere: return memory_kept<Retention::sphere>(form, run);
  }
}

__device__ inline void mix(const float* M, size_t stride, const float* shares, size_t levels, float* out, size_t numbers) {
  for (size_t i = threadIdx.x; i < numbers; i += blockDim.x) {
    float sum = 0.0f;
    for (size_t level = 0; level < levels; ++level) sum = fma(shares[level], M[level * stride + i], sum);
    out[i] = sum;
  }
}

__device__ inline void recall(const float* M, const float* c, float* y, size_t rows, size_t stride, size_t channels) {
  for (size_t row = 0; row < rows; ++row) {
    memory_channels(channels, [=](size_t a) { y[row * stride + a] = memory_product(M, c + row * stride, channels, a); });
  }
}

__device__ inline void memory_first(const MemoryForm& form, const float* init, float* M, size_t n) {
  memory_channels(n, [&](size_t a) {
    for (size_t b = 0; b < n; ++b) M[b * n + a] = init ? init[a * n + b] : 0.0f;
    if (form.retention == Retention::kl) memory_softmax(M, n, a);
  });
  if (form.retention == Retention::sphere) memory_scale(M, n, form.radius / memory_norm(M, n));
}

// There are few of them: each thread sums them all.
__device__ inline void softmax(const float* x, size_t stride, float* out, size_t n) {
  float most = x[0], sum = 0.0f;
  for (size_t i = 1; i < n; ++i) most = x[i * stride] > most ? x[i * stride] : most;
  for (size_t i = 0; i < n; ++i) sum += exp(x[i * stride] - most);
  for (size_t i = threadIdx.x; i < n; i += blockDim.x) out[i] = exp(x[i * stride] - most) / sum;
}

}  // namespace continuo::cuda
