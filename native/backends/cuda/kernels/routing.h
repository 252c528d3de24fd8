// What backends/cpu/kernels/routing.h and the CPU's executor have for routers, of one row.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/sample.h"
#include "graph/forms.h"

namespace continuo::cuda {

// y may be x.
CONTINUO_INLINE void normalise(const float* x, float* y, size_t n) {
  const float sum = reduce(n, [=](float acc, size_t i) { return acc + x[i]; });
  map(n, y, [=](float v) { return v / sum; }, x);
}

CONTINUO_INLINE void softmax_row(const float* x, float* y, size_t n) {
  const float most = max(x, n);
  map(n, y, [=](float v) { return exp(v - most); }, x);
  normalise(y, y, n);
}

// The places of the `chosen` largest of n numbers, ascending; of equal numbers the first. NaN counts as −∞. A thread
// counts how many go before each of its numbers, then how many chosen ones lie before it.
CONTINUO_INLINE void topk(const float* x, size_t n, int32_t* places, size_t chosen) {
  __shared__ uint8_t taken[max_scores];
  const auto score = [=](size_t i) { return x[i] == x[i] ? x[i] : -__builtin_inff(); };
  __syncthreads();
  for (size_t i = threadIdx.x; i < n; i += blockDim.x) {
    const float own = score(i);
    size_t before = 0;
    for (size_t j = 0; j < n; ++j) {
      const float other = score(j);
      before += other > own || (other == own && j < i);
    }
    taken[i] = before < chosen;
  }
  __syncthreads();
  for (size_t i = threadIdx.x; i < n; i += blockDim.x) {
    if (taken[i] == 0) continue;
    size_t place = 0;
    for (size_t j = 0; j < i; ++j) place += taken[j];
    places[place] = static_cast<int32_t>(i);
  }
}

CONTINUO_INLINE void gather_numbers(const float* x, size_t n, const int32_t* ids, float* y, size_t begin, size_t end) {
  for (size_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
    const int64_t id = ids[i];
    y[i] = id >= 0 && id < static_cast<int64_t>(n) ? x[id] : __builtin_nanf("");
  }
}

CONTINUO_INLINE void combine(const float* x, const float* w, float* y, size_t count, size_t n, size_t begin,
                             size_t end) {
  for (size_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
    float sum = 0.0f;
    for (size_t k = 0; k < count; ++k) sum = fma(w[k], x[k * n + i], sum);
    y[i] = sum;
  }
}

}  // namespace continuo::cuda
