// Chooses the kernels of a product by its format and rows.
#include <algorithm>

#include "backends/cuda/kernels/kernels.h"
#include "backends/cuda/kernels/matmul.h"
#include "backends/cuda/kernels/matmul_blocks.h"
#include "backends/cuda/kernels/matmul_quantised.h"
#include "backends/cuda/kernels/multiply.h"
#include "backends/cuda/kernels/quantise.h"

namespace continuo::cuda {

namespace {

// Lets each product begin at its block, and counts them; `blocks_of` says how many a product takes.
uint32_t cut(Products& products, const auto& blocks_of) {
  uint32_t blocks = 0;
  for (uint32_t i = 0; i < products.count; ++i) {
    products.begin[i] = blocks;
    blocks += blocks_of(products.of[i]);
  }
  return blocks;
}

// The same for blocks that take `outputs` outputs in one of `passes` passes.
uint32_t cut_outputs(Products& products, uint32_t outputs, uint32_t passes) {
  return cut(products, [=](const Product& product) { return pieces(product.outputs, outputs) * passes; });
}

// Threads of a block whose slots have `lanes`: as many slots as the longest product has block sums.
uint32_t threads_of(const Products& products, uint32_t lanes, uint32_t most) {
  uint32_t wanted = 0;
  for (uint32_t i = 0; i < products.count; ++i)
    wanted = std::max(wanted, pieces(products.of[i].inputs, block_terms) * lanes);
  return std::min(most, (wanted + 31) / 32 * 32);
}

template <class Stored, uint32_t Rows, uint32_t Lanes>
void few_of(Products& products, uint32_t first, uint32_t rows, cudaStream_t stream) {
  const uint32_t passes = pieces(rows, pass_rows);
  const uint32_t blocks = cut_outputs(products, Lanes, passes);
  launch(matmul_few<Stored, Rows, Lanes>, blocks, threads_of(products, Lanes, few_threads), stream, products, first,
         rows, passes);
}

template <class Stored, uint32_t Rows>
void few(Products& products, uint32_t first, uint32_t rows, cudaStream_t stream) {
  if (cut_outputs(products, 32, pieces(rows, pass_rows)) < enough_blocks)
    few_of<Stored, Rows, 16>(products, first, rows, stream);
  else
    few_of<Stored, Rows, 32>(products, first, rows, stream);
}

template <class Stored, uint32_t Tall>
void many(Products& products, uint32_t first, uint32_t rows, cudaStream_t stream) {
  const uint32_t passes = pieces(rows, Tall * 16);
  const uint32_t blocks = cut_outputs(products, tile_lanes, passes);
  launch(matmul_many<Stored, Tall>, blocks, many_threads, stream, products, first, rows, passes);
}

template <class Stored> void matmul_of(Products& products, uint32_t first, uint32_t rows, cudaStream_t stream) {
  if (rows == 1) return few<Stored, 1>(products, first, rows, stream);
  if (rows == 2) return few<Stored, 2>(products, first, rows, stream);
  if (rows <= 4) return few<Stored, 4>(products, first, rows, stream);
  if (rows <= few_rows_most) return few<Stored, 8>(products, first, rows, stream);
  // Tall squares need fewer loads for the same arithmetic, where there are enough of them.
  if (cut_outputs(products, tile_lanes, pieces(rows, 128)) < enough_blocks)
    many<Stored, 4>(products, first, rows, stream);
  else
    many<Stored, 8>(products, first, rows, stream);
}

template <bool Ternary, uint32_t Group, uint32_t Rows>
void quantised_few_of(Products& products, uint32_t x_rows, uint32_t first, uint32_t rows, cudaStream_t stream) {
  const uint32_t passes = pieces(rows, pass_rows);
  const uint32_t blocks = cut_outputs(products, quantised_lanes * outputs_of_lane(Ternary), passes);
  const uint32_t threads = threads_of(products, quantised_lanes, quantised_few_threads(Ternary, Rows));
  launch(quantised_few<Ternary, Group, Rows>, blocks, threads, stream, products, x_rows, first, rows, passes);
}

template <bool Ternary, uint32_t Group>
void quantised_of(Products& products, uint32_t x_rows, uint32_t first, uint32_t rows, cudaStream_t stream) {
  if (rows == 1) return quantised_few_of<Ternary, Group, 1>(products, x_rows, first, rows, stream);
  if (rows == 2) return quantised_few_of<Ternary, Group, 2>(products, x_rows, first, rows, stream);
  if (rows <= 4) return quantised_few_of<Ternary, Group, 4>(products, x_rows, first, rows, stream);
  if (rows <= few_rows_most) return quantised_few_of<Ternary, Group, 8>(products, x_rows, first, rows, stream);
  const uint32_t passes = pieces(rows, 64);
  const uint32_t blocks = cut_outputs(products, tile_lanes, passes);
  launch(quantised_many<Ternary, Group>, blocks, many_threads, stream, products, x_rows, first, rows, passes);
}

template <Dtype Kind>
void blocks_of(Products& products, uint32_t x_rows, uint32_t first, uint32_t rows, cudaStream_t stream) {
  const uint32_t blocks = cut_outputs(products, tile_lanes, rows);
  launch(block_products<Kind>, blocks, block_threads, stream, products, x_rows, first, rows);
}

// The kernels that matmul_of() and quantised_of() choose from.
template <class Stored> cudaError_t load_of() {
  return load_kernels(matmul_few<Stored, 1, 16>, matmul_few<Stored, 1, 32>, matmul_few<Stored, 2, 16>,
                      matmul_few<Stored, 2, 32>, matmul_few<Stored, 4, 16>, matmul_few<Stored, 4, 32>,
                      matmul_few<Stored, 8, 16>, matmul_few<Stored, 8, 32>, matmul_many<Stored, 4>,
                      matmul_many<Stored, 8>);
}
template <bool Ternary, uint32_t Group> cudaError_t load_quantised() {
  return load_kernels(quantised_few<Ternary, Group, 1>, quantised_few<Ternary, Group, 2>,
                      quantised_few<Ternary, Group, 4>, quantised_few<Ternary, Group, 8>,
                      quantised_many<Ternary, Group>);
}

// Where the rows of a product lie in the scratch: each begins at a multiple of this.
constexpr size_t scratch_unit = 256;

size_t scratch_of(const Product& product, uint32_t rows) {
  if (!is_quantised(product.dtype)) return 0;
  const size_t bytes = static_cast<size_t>(pieces(product.inputs, block_terms)) * rows * sizeof(QuantisedBlock);
  return (bytes + scratch_unit - 1) / scratch_unit * scratch_unit;
}

}  // namespace

cudaError_t load_products() {
  for (const auto part : {load_of<float>, load_of<F16>, load_of<Bf16>, load_quantised<false, 32>,
                          load_quantised<false, 64>, load_quantised<true, 32>, load_quantised<true, 64>}) {
    if (const cudaError_t error = part(); error != cudaSuccess) return error;
  }
  return load_kernels(block_products<Dtype::q4>, block_products<Dtype::q4_k>, block_products<Dtype::q6_k>,
                      quantise_rows<32>, quantise_rows<64>);
}

void matmul(Products products, uint32_t first, uint32_t rows, cudaStream_t stream) {
  switch (products.of[0].dtype) {
    case Dtype::f32: return matmul_of<float>(products, first, rows, stream);
    case Dtype::f16: return matmul_of<F16>(products, first, rows, stream);
    case Dtype::bf16: return matmul_of<Bf16>(products, first, rows, stream);
    default: return;  // matmul_quantised
  }
}

void quantise(Products products, uint32_t first, uint32_t rows, cudaStream_t stream) {
  const uint32_t warps = cut(products, [=](const Product& product) { return groups_of(product) * rows; });
  const uint32_t blocks = pieces(warps, quantise_threads / 32);
  if (products.of[0].group == 32)
    launch(quantise_rows<32>, blocks, quantise_threads, stream, products, first, rows, warps);
  else
    launch(quantise_rows<64>, blocks, quantise_threads, stream, products, first, rows, warps);
}

void matmul_quantised(Products products, uint32_t x_rows, uint32_t first, uint32_t rows, cudaStream_t stream) {
  const auto& one = products.of[0];
  if (one.dtype == Dtype::q4) return blocks_of<Dtype::q4>(products, x_rows, first, rows, stream);
  if (one.dtype == Dtype::q4_k) return blocks_of<Dtype::q4_k>(products, x_rows, first, rows, stream);
  if (one.dtype == Dtype::q6_k) return blocks_of<Dtype::q6_k>(products, x_rows, first, rows, stream);
  if (one.dtype == Dtype::ternary) {
    if (one.group == 32)
      quantised_of<true, 32>(products, x_rows, first, rows, stream);
    else
      quantised_of<true, 64>(products, x_rows, first, rows, stream);
  } else {
    if (one.group == 32)
      quantised_of<false, 32>(products, x_rows, first, rows, stream);
    else
      quantised_of<false, 64>(products, x_rows, first, rows, stream);
  }
}

size_t scratch_bytes(const Product* list, uint32_t count, uint32_t rows) {
  size_t bytes = 0;
  for (uint32_t i = 0; i < count; ++i) bytes += scratch_of(list[i], rows);
  return bytes;
}

void multiply(const Product* list, uint32_t count, uint32_t first, uint32_t rows, void* scratch, cudaStream_t stream) {
  if (rows == 0) return;
  QuantisedBlock* quantised[most_products];
  auto* at = static_cast<std::byte*>(scratch);
  for (uint32_t i = 0; i < count; ++i) {
    quantised[i] = reinterpret_cast<QuantisedBlock*>(at);
    at += scratch_of(list[i], rows);
  }
  // One format after the other; almost always there is one.
  const auto same = [](const Product& a, const Product& b) {
    return a.dtype == b.dtype && (!is_quantised(a.dtype) || a.group == b.group);
  };
  for (uint32_t i = 0; i < count; ++i) {
    if (std::any_of(list, list + i, [&](const Product& before) { return same(before, list[i]); })) continue;
    Products products{};
    for (uint32_t j = i; j < count; ++j) {
      if (!same(list[i], list[j])) continue;
      products.of[products.count] = list[j];
      products.quantised[products.count++] = quantised[j];
    }
    if (is_quantised(list[i].dtype)) {
      quantise(products, first, rows, stream);
      matmul_quantised(products, rows, first, rows, stream);
    } else {
      matmul(products, first, rows, stream);
    }
  }
}

}  // namespace continuo::cuda
