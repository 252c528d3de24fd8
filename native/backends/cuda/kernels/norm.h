// What backends/cpu/kernels/norm.h has: normalisations within groups of n consecutive channels. Each function does one
// row's groups [group, group_end); pointers address the row's first channel, those of weights the first weight. Short
// groups, or many of them, go to half warps, which need no barrier; else all threads work on one group after the other.
#pragma once

#include "backends/cuda/kernels/elementwise.h"

namespace continuo::cuda {

// The threads that work on a group.
struct HalfWarp {
  template <class Term> CONTINUO_INLINE float reduce(size_t n, const Term& term) { return half_warp_reduce(n, term); }
  template <class F, class... In> CONTINUO_INLINE void map(size_t n, float* out, const F& f, const In*... in) {
    half_warp_map(n, out, f, in...);
  }
};
struct WholeBlock {
  Turn turn;
  template <class Term> CONTINUO_INLINE float reduce(size_t n, const Term& term) { return cuda::reduce(turn, n, term); }
  template <class F, class... In> CONTINUO_INLINE void map(size_t n, float* out, const F& f, const In*... in) {
    cuda::map(n, out, f, in...);
  }
};

// Calls work(team, group) for each group. A barrier lies behind what the block did before.
template <class Work> CONTINUO_INLINE void each_group(size_t n, size_t group, size_t group_end, const Work& work) {
  const size_t half_warps = blockDim.x / partials;
  if (n <= block_terms || group_end - group >= half_warps) {
    HalfWarp team;
    for (group += threadIdx.x / partials; group < group_end; group += half_warps) work(team, group);
  } else {
    WholeBlock team;
    for (; group < group_end; ++group) work(team, group);
  }
}

CONTINUO_INLINE auto squares(const float* x) {
  return [x](float acc, size_t i) { return fma(x[i], x[i], acc); };
}

CONTINUO_INLINE void norm(const float* x, const float* weight, const float* bias, float* y, size_t n, size_t group,
                          size_t group_end, float eps) {
  const float count = static_cast<float>(n);
  each_group(n, group, group_end, [=](auto& team, size_t g) {
    const float* in = x + g * n;
    const float mean = team.reduce(n, [=](float acc, size_t i) { return acc + in[i]; }) / count;
    const float spread = team.reduce(n, [=](float acc, size_t i) {
      const float d = in[i] - mean;
      return fma(d, d, acc);
    });
    const float scale = 1.0f / sqrt(spread / count + eps);
    team.map(
        n, y + g * n, [=](float v, float w, float b) { return fma((v - mean) * scale, w, b); }, in, weight + g * n,
        bias + g * n);
  });
}

CONTINUO_INLINE void l2norm(const float* x, float* y, size_t n, size_t group, size_t group_end, float floor) {
  each_group(n, group, group_end, [=](auto& team, size_t g) {
    const float length = sqrt(team.reduce(n, squares(x + g * n)));
    const float divisor = length < floor ? floor : length;
    team.map(n, y + g * n, [=](float v) { return v / divisor; }, x + g * n);
  });
}

CONTINUO_INLINE void rmsnorm(const float* x, const float* weight, float* y, size_t n, size_t group, size_t group_end,
                             float eps) {
  each_group(n, group, group_end, [=](auto& team, size_t g) {
    const float scale = 1.0f / sqrt(team.reduce(n, squares(x + g * n)) / static_cast<float>(n) + eps);
    team.map(n, y + g * n, [=](float v, float w) { return v * scale * w; }, x + g * n, weight + g * n);
  });
}

CONTINUO_INLINE void unit(const float* x, float* y, size_t n, size_t group, size_t group_end, float eps) {
  each_group(n, group, group_end, [=](auto& team, size_t g) {
    const float scale = 1.0f / sqrt(team.reduce(n, squares(x + g * n)) + eps);
    team.map(n, y + g * n, [=](float v) { return v * scale; }, x + g * n);
  });
}

CONTINUO_INLINE void bonus(const float* y, const float* r, const float* k, const float* u, const float* v, float* out,
                           size_t n, size_t group, size_t group_end) {
  each_group(n, group, group_end, [=](auto& team, size_t g) {
    const float *rr = r + g * n, *kk = k + g * n, *uu = u + g * n;
    const float score = team.reduce(n, [=](float acc, size_t i) { return fma(rr[i] * kk[i], uu[i], acc); });
    team.map(n, out + g * n, [=](float a, float b) { return fma(score, b, a); }, y + g * n, v + g * n);
  });
}

}  // namespace continuo::cuda
