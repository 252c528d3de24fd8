// Rows on their way to an expert of a store and back. A place is the number of a row times the experts that a row goes
// to, plus the place among those; a list of places says which rows an expert has.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/scalar.h"

namespace continuo::cuda {

// Block i: row i of `to` becomes row places[i] / chosen of `from`.
__global__ void __launch_bounds__(256)
    gather_places(const float* from, const uint32_t* places, uint32_t chosen, size_t width, float* to) {
  const float* const in = from + places[blockIdx.x] / chosen * width;
  float* const out = to + blockIdx.x * width;
  for (size_t i = threadIdx.x; i < width; i += blockDim.x) out[i] = in[i];
}

// Block i: row places[i] of `to` becomes row i of `from`; NaN where `from` is null.
__global__ void __launch_bounds__(256)
    scatter_places(const float* from, const uint32_t* places, size_t width, float* to) {
  const float* const in = from ? from + blockIdx.x * width : nullptr;
  float* const out = to + places[blockIdx.x] * width;
  for (size_t i = threadIdx.x; i < width; i += blockDim.x) out[i] = in ? in[i] : __builtin_nanf("");
}

// gate ← silu(gate) · up.
__global__ void __launch_bounds__(256) gate_rows(float* gate, const float* up, size_t n) {
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += size_t{gridDim.x} * blockDim.x)
    gate[i] = silu(gate[i]) * up[i];
}

}  // namespace continuo::cuda
