// A matrix memory that every token trains: cpu/memory.h has the equations. A thread has whole value channels, that is
// columns of M, S and G, so only a norm of all of M makes the threads of a block wait for each other. Where a head has
// 32 or 64 channels and writes at every token, they stay in registers from the first token of a run to the last.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/reduce.h"
#include "backends/cuda/kernels/scalar.h"
#include "backends/cuda/kernels/words.h"
#include "backends/jobs.h"

namespace continuo::cuda {

// Calls f(a) for the value channels of a thread.
template <class F> CONTINUO_INLINE void memory_channels(size_t n, const F& f) {
  for (size_t a = threadIdx.x; a < n; a += blockDim.x) f(a);
}

struct MemoryProducts {
  float p, r;
};

// Σ_b M[b][a] k_b and Σ_b M[b][a] q_b of one value channel.
CONTINUO_INLINE MemoryProducts memory_products(const float* M, const float* k, const float* q, size_t n, size_t a) {
  MemoryProducts out{};
  some_at_once<16>(n, [&]<uint32_t Side>(size_t b) {
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
  some_at_once<16>(n, [&]<uint32_t Side>(size_t b) {
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
  some_at_once<8>(n, [&]<uint32_t Side>(size_t b) {
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

// M after U, before what needs all of M. Without α its share is 1, and fma(1, m, u) is m + u. Nvcc makes a min of x < 0
// ? x : 0, which is −0 for an x of −0, and x is that only with a cut of −0: + 0 makes it 0.
template <bool Logs> struct MemoryKeep {
  float share, cut, floor;
  bool elastic;
  CONTINUO_INLINE MemoryKeep(const MemoryForm& form, float alpha)
      : share(1.0f - (form.retention == Retention::elastic ? alpha * form.elastic_l2 : alpha)),
        cut(alpha * form.elastic_l1 + 0.0f),
        floor(form.floor),
        elastic(form.retention == Retention::elastic) {}
  CONTINUO_INLINE float operator()(float m, float u) const {
    if constexpr (Logs) return fma(share, log(m > floor ? m : floor), u);
    const float x = fma(share, m, u);
    if (!elastic) return x;
    const float above = x - cut, below = x + cut;
    return above > 0.0f ? above : (below < 0.0f ? below : 0.0f);
  }
};

// The write of one firing to one value channel; returns r = M q of the M it leaves.
template <bool Logs> CONTINUO_INLINE float memory_write(const MemoryForm& form, const MemoryRun& run, size_t t,
                                                        const MemoryGates& gates, size_t a, float s) {
  const size_t n = run.channels;
  const float *k = run.k + t * run.stride, *q = run.q + t * run.stride;
  const bool slow = run.period > 1, titans = form.rule == Rule::titans;
  const MemoryKeep<Logs> keep(form, gates.alpha);
  const float fresh = 1.0f - gates.eta, period = static_cast<float>(run.period);
  float read = 0.0f;
  some_at_once<8>(n, [&]<uint32_t Side>(size_t b) {
    float m[Side], momentum[Side], gathered[Side], key[Side], query[Side];
#pragma unroll
    for (uint32_t i = 0; i < Side; ++i) {
      const size_t at = (b + i) * n + a;
      m[i] = run.M[at];
      momentum[i] = titans ? run.S[at] : 0.0f;
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
      if (titans) {
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

// Every thread of the block, here and in what follows. What they wrote to M is brought together by the barrier with
// which reduce begins.
CONTINUO_INLINE float memory_norm(const float* M, size_t n) {
  return sqrt(reduce(n * n, [=](float acc, size_t i) { return fma(M[i], M[i], acc); }) + 1e-12f);
}

CONTINUO_INLINE void memory_scale(float* M, size_t n, float by) {
  memory_channels(n, [=](size_t a) {
    for (size_t b = 0; b < n; ++b) M[b * n + a] = M[b * n + a] * by;
  });
}

// Logs: with the retention kl.
template <bool Logs> __device__ inline void memory_level(const MemoryForm& form, const MemoryRun& run) {
  const size_t n = run.channels;
  const bool predicts = form.rule != Rule::hebbian;
  const bool whole = form.retention == Retention::sphere || form.norm_max > 0;
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
    const MemoryGates gates{form.rule == Rule::titans ? run.eta[t * run.gates] : 0.0f,
                            form.retains() ? run.alpha[t * run.gates] : 0.0f};
    memory_channels(n, [&](size_t a) {
      const float p = predicts ? memory_product(run.M, k, n, a) : 0.0f;
      const float r = memory_write<Logs>(form, run, t, gates, a, theta * (p - v[a]));
      if constexpr (Logs) memory_softmax(run.M, n, a);
      if (!whole) memory_give(run, t, a, Logs ? memory_product(run.M, q, n, a) : r);
    });
    if (!whole) continue;
    if (form.retention == Retention::sphere) memory_scale(run.M, n, form.radius / memory_norm(run.M, n));
    if (form.norm_max > 0) {
      const float norm = memory_norm(run.M, n);
      if (norm > form.norm_max) memory_scale(run.M, n, form.norm_max / norm);
    }
    memory_channels(n, [&](size_t a) { memory_give(run, t, a, memory_product(run.M, q, n, a)); });
  }
}

// A token's k and q over the key channels, and the k of the token after it.
template <uint32_t N> struct MemoryToken {
  Four k[N / 4], q[N / 4], next_k[N / 4];
};
struct MemoryBrought {
  float k, q, next_k;
};
CONTINUO_INLINE MemoryBrought memory_bring(const MemoryRun& run, size_t token, uint32_t channel) {
  const size_t at = token * run.stride + channel;
  return {run.k[at], run.q[at], run.k[token + 1 < run.tokens ? at + run.stride : at]};
}
template <uint32_t N>
CONTINUO_INLINE void memory_put(MemoryToken<N>& token, uint32_t channel, const MemoryBrought& brought) {
  const auto at = [=](Four* row) { return reinterpret_cast<float*>(row) + channel; };
  *at(token.k) = brought.k;
  *at(token.q) = brought.q;
  *at(token.next_k) = brought.next_k;
}

// The retentions none, l2 and sphere of levels that write at every token; N ≤ blockDim.x; shared [2].
template <uint32_t N, bool Momentum>
CONTINUO_INLINE void memory_registers(const MemoryForm& form, const MemoryRun& run, MemoryToken<N>* shared) {
  const uint32_t a = threadIdx.x;
  const bool own = a < N, predicts = form.rule != Rule::hebbian;
  const bool whole = form.retention == Retention::sphere || form.norm_max > 0;
  float m[N], momentum[Momentum ? N : 1];
#pragma unroll
  for (uint32_t b = 0; b < N; ++b) m[b] = own ? run.M[b * N + a] : 0.0f;
  if constexpr (Momentum) {
#pragma unroll
    for (uint32_t b = 0; b < N; ++b) momentum[b] = own ? run.S[b * N + a] : 0.0f;
  }
  if (own) memory_put(shared[0], a, memory_bring(run, 0, a));
  float p = 0.0f;
#pragma unroll
  for (uint32_t b = 0; b < N; ++b) p = fma(m[b], run.k[b], p);
  __syncthreads();
  for (size_t t = 0; t < run.tokens; ++t) {
    const MemoryToken<N>& now = shared[t % 2];
    const bool more = t + 1 < run.tokens;
    MemoryBrought next{};
    if (more && own) next = memory_bring(run, t + 1, a);
    const float v = own ? run.v[t * run.stride + a] : 0.0f;
    const float error = run.theta[t * run.gates] * ((predicts ? p : 0.0f) - v);
    const float eta = Momentum ? run.eta[t * run.gates] : 0.0f, fresh = 1.0f - eta;
    const float share = 1.0f - (form.retains() ? run.alpha[t * run.gates] : 0.0f);
    float read = 0.0f, next_p = 0.0f;
#pragma unroll
    for (uint32_t b = 0; b < N; b += 4) {
      const Four key = now.k[b / 4], query = now.q[b / 4], next_key = now.next_k[b / 4];
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) {
        const float g = error * key.at[i];
        float u = -g;
        if constexpr (Momentum) u = momentum[b + i] = fma(eta, momentum[b + i], -(fresh * g));
        m[b + i] = fma(share, m[b + i], u);
        read = fma(m[b + i], query.at[i], read);
        next_p = fma(m[b + i], next_key.at[i], next_p);
      }
    }
    if (whole) {
      // Once for the sphere, or for the cap; a form with both has one after the other.
      for (int step = form.retention == Retention::sphere ? 0 : 1; step < (form.norm_max > 0 ? 2 : 1); ++step) {
        // M is where all can read it, for its norm.
        if (own) {
#pragma unroll
          for (uint32_t b = 0; b < N; ++b) run.M[b * N + a] = m[b];
        }
        const float norm = memory_norm(run.M, N);
        if (step == 1 && !(norm > form.norm_max)) break;
        const float by = (step == 0 ? form.radius : form.norm_max) / norm;
#pragma unroll
        for (uint32_t b = 0; b < N; ++b) m[b] = m[b] * by;
      }
      read = next_p = 0.0f;
#pragma unroll
      for (uint32_t b = 0; b < N; b += 4) {
        const Four query = now.q[b / 4], next_key = now.next_k[b / 4];
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
          read = fma(m[b + i], query.at[i], read);
          next_p = fma(m[b + i], next_key.at[i], next_p);
        }
      }
    }
    p = next_p;
    if (own) memory_give(run, t, a, read);
    // Its other half was last read before the barrier of the token before this one.
    if (more && own) memory_put(shared[(t + 1) % 2], a, next);
    __syncthreads();
  }
  if (!own) return;
#pragma unroll
  for (uint32_t b = 0; b < N; ++b) run.M[b * N + a] = m[b];
  if constexpr (Momentum) {
#pragma unroll
    for (uint32_t b = 0; b < N; ++b) run.S[b * N + a] = momentum[b];
  }
}

template <uint32_t N>
CONTINUO_INLINE void memory_registers(const MemoryForm& form, const MemoryRun& run, MemoryToken<N>* shared) {
  if (form.rule == Rule::titans)
    memory_registers<N, true>(form, run, shared);
  else
    memory_registers<N, false>(form, run, shared);
}

__device__ inline void memory(const MemoryForm& form, const MemoryRun& run) {
  if (run.tokens == 0) return;
  __shared__ MemoryToken<64> shared[2];
  if (run.period == 1 && form.retention != Retention::kl && form.retention != Retention::elastic &&
      run.channels <= blockDim.x) {
    if (run.channels == 32) return memory_registers(form, run, reinterpret_cast<MemoryToken<32>*>(shared));
    if (run.channels == 64) return memory_registers(form, run, shared);
  }
  if (form.retention == Retention::kl)
    memory_level<true>(form, run);
  else
    memory_level<false>(form, run);
}

__device__ inline void mix(const float* M, size_t stride, const float* shares, size_t levels, float* out,
                           size_t numbers) {
  for (size_t i = threadIdx.x; i < numbers; i += blockDim.x) {
    float sum = 0.0f;
    for (size_t level = 0; level < levels; ++level) sum = fma(shares[level], M[level * stride + i], sum);
    out[i] = sum;
  }
}

__device__ inline void recall(const float* M, const float* c, float* y, size_t rows, size_t stride, size_t channels) {
  for (size_t row = 0; row < rows; ++row) {
    memory_channels(channels,
                    [=](size_t a) { y[row * stride + a] = memory_product(M, c + row * stride, channels, a); });
  }
}

// Of a state with other numbers of keys and channels.
__device__ inline void recall_keys(const float* S, const float* q, float* y, size_t keys, size_t channels) {
  for (size_t a = threadIdx.x; a < channels; a += blockDim.x) {
    float sum = 0.0f;
    for (size_t b = 0; b < keys; ++b) sum = fma(S[b * channels + a], q[b], sum);
    y[a] = sum;
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
