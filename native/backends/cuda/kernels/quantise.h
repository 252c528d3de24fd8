// Activations of a row as integers under one scale per group (jobs.h states the rule), for the products that a launch
// is about.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/panels.h"

namespace continuo::cuda {

constexpr uint32_t quantise_threads = 256;

// Warps that a product's rows take: one a group.
constexpr uint32_t groups_of(const Product& product) { return pieces(product.inputs, product.group); }

// Rows [first, first + rows) of x into rows 0 … rows − 1 of products.quantised. products.begin counts warps.
template <uint32_t Group> __global__ void __launch_bounds__(quantise_threads)
    quantise_rows(const CONTINUO_GRID_CONSTANT Products products, size_t first, uint32_t rows, uint32_t warps) {
  constexpr uint32_t each = Group / 32;  // numbers of a lane
  const uint32_t lane = threadIdx.x % 32, warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  if (warp >= warps) return;
  const uint32_t at = product_at(products, warp);
  const Product& product = products.of[at];
  const uint32_t groups = groups_of(product), row = (warp - products.begin[at]) / groups,
                 group = (warp - products.begin[at]) % groups;
  const float* const x = product.x + (first + row) * product.inputs;
  float in[each];
  int32_t most = 0;
#pragma unroll
  for (uint32_t i = 0; i < each; ++i) {
    const uint32_t k = group * Group + lane * each + i;
    in[i] = k < product.inputs ? x[k] : 0.0f;
    // The bits without the sign are ordered as the numbers are, then infinity, then NaN.
    const int32_t bits = cast<int32_t>(in[i]) & 0x7FFFFFFF;
    most = bits > most ? bits : most;
  }
#pragma unroll
  for (int by = 16; by > 0; by /= 2) {
    const int32_t other = __shfl_xor_sync(0xFFFFFFFFu, most, by);
    most = other > most ? other : most;
  }
  const float scale = cast<float>(most) / 127.0f;
  const bool finite = scale - scale == 0.0f;
  QuantisedBlock& out = products.quantised[at][group * Group / block_terms * rows + row];
  const uint32_t offset = group * Group % block_terms;
  int32_t sum = 0;
#pragma unroll
  for (uint32_t i = 0; i < each; ++i) {
    int32_t q = 0;
    if (finite && scale > 0.0f) {
      // Adding 1.5·2²³ rounds to the nearest integer, ties to even. |x / scale| passes 127 only where the scale is
      // denormal.
      q = cast<int32_t>(in[i] / scale + to_nearest) - cast<int32_t>(to_nearest);
      q = q > 127 ? 127 : q < -127 ? -127 : q;
    }
    out.terms[offset + lane * each + i] = static_cast<int8_t>(q);
    sum += q;
  }
  int32_t first_sum = lane < 16 ? sum : 0;  // of q6_k, whose groups have 32 terms
#pragma unroll
  for (int by = 16; by > 0; by /= 2) {
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, by);
    first_sum += __shfl_xor_sync(0xFFFFFFFFu, first_sum, by);
  }
  if (lane == 0) {
    out.scales[offset / Group] = finite ? scale : __builtin_nanf("");
    out.corrections[offset / Group] =
        product.dtype == Dtype::q6_k ? half_sums(first_sum, sum - first_sum) : -zero_code(product.dtype) * sum;
  }
}

}  // namespace continuo::cuda
