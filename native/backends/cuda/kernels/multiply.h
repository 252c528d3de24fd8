// What multiply() and multiply_routed() are made of, for products of one format: each is one launch, and any choice of
// kernel gives the same bits.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/cuda/kernels/cuts.h"

namespace continuo::cuda {

// Their parts of load().
cudaError_t load_matmul();
cudaError_t load_quantised();
cudaError_t load_products();

// f32, f16, bf16: rows [first, first + rows).
void matmul(Products products, uint32_t first, uint32_t rows, cudaStream_t stream);
// Quantised dtypes: rows [first, first + rows) of x into rows 0 … rows − 1 of products.quantised, [blocks][rows].
void quantise(Products products, uint32_t first, uint32_t rows, cudaStream_t stream);
// Rows 0 … rows − 1 of products.quantised, [blocks][x_rows], into rows [first, first + rows) of y.
void matmul_quantised(Products products, uint32_t x_rows, uint32_t first, uint32_t rows, cudaStream_t stream);

// The same by route. The passes have at most `height` rows: 1, 2 or pass_rows.
void matmul_routed(const ByRoute& cut, uint32_t height, cudaStream_t stream);
void quantised_routed(const ByRoute& cut, uint32_t height, cudaStream_t stream);

// Lets each product begin at its block, and counts them; `blocks_of` says how many a product takes.
inline uint32_t cut(Products& products, const auto& blocks_of) {
  uint32_t blocks = 0;
  for (uint32_t i = 0; i < products.count; ++i) {
    products.begin[i] = blocks;
    blocks += blocks_of(products.of[i]);
  }
  return blocks;
}

// The same for blocks that take `outputs` outputs in one of `passes` passes.
inline uint32_t cut_outputs(Products& products, uint32_t outputs, uint32_t passes) {
  return cut(products, [=](const Product& product) { return pieces(product.outputs, outputs) * passes; });
}

// Threads of a block whose slots have `lanes`: as many slots as the longest product has block sums.
inline uint32_t threads_of(const Product& product, uint32_t lanes, uint32_t most) {
  return std::min(most, (pieces(product.inputs, block_terms) * lanes + 31) / 32 * 32);
}
inline uint32_t threads_of(const Products& products, uint32_t lanes, uint32_t most) {
  uint32_t wanted = 0;
  for (uint32_t i = 0; i < products.count; ++i) wanted = std::max(wanted, threads_of(products.of[i], lanes, most));
  return wanted;
}

}  // namespace continuo::cuda
