// What multiply() is made of, for products of one format: each is one launch, and any choice of kernel gives the same
// bits.
#pragma once

#include "backends/cuda/kernels/panels.h"

namespace continuo::cuda {

// Their part of load().
cudaError_t load_products();

// f32, f16, bf16: rows [first, first + rows).
void matmul(Products products, uint32_t first, uint32_t rows, cudaStream_t stream);
// Quantised dtypes: rows [first, first + rows) of x into rows 0 … rows − 1 of products.quantised, [blocks][rows].
void quantise(Products products, uint32_t first, uint32_t rows, cudaStream_t stream);
// Rows 0 … rows − 1 of products.quantised, [blocks][x_rows], into rows [first, first + rows) of y.
void matmul_quantised(Products products, uint32_t x_rows, uint32_t first, uint32_t rows, cudaStream_t stream);

}  // namespace continuo::cuda
