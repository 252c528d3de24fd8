// Chooses the kernels of products with f32, f16 and bf16 weights by their rows.
#include "backends/cuda/kernels/matmul.h"
#include "backends/cuda/kernels/multiply.h"

namespace continuo::cuda {

namespace {

template <class Stored, uint32_t Rows, uint32_t Lanes>
void few_of(Products& products, uint32_t first, uint32_t rows, cudaStream_t stream) {
  const uint32_t passes = pieces(rows, pass_rows), blocks = cut_outputs(products, Lanes, passes);
  launch(matmul_few<Stored, Rows, Lanes, InOrder>, blocks, threads_of(products, Lanes, few_threads), stream,
         InOrder{products, first, rows, pass_rows, passes, 0});
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
  constexpr uint32_t height = Tall * 16;
  const uint32_t passes = pieces(rows, height), blocks = cut_outputs(products, tile_lanes, passes);
  launch(matmul_many<Stored, Tall>, blocks, many_threads, stream, InOrder{products, first, rows, height, passes, 0});
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

template <class Stored> void routed_of(const ByRoute& cut, uint32_t height, cudaStream_t stream) {
  constexpr uint32_t lanes = 16;
  const auto start = [&](auto kernel) {
    launch(kernel, pieces(cut.product.outputs, lanes) * cut.bound, threads_of(cut.product, lanes, few_threads), stream,
           cut);
  };
  if (height == 1) return start(matmul_few<Stored, 1, lanes, ByRoute>);
  if (height == 2) return start(matmul_few<Stored, 2, lanes, ByRoute>);
  start(matmul_few<Stored, pass_rows, lanes, ByRoute>);
}

// The kernels that matmul_of() and routed_of() choose from.
template <class Stored> cudaError_t load_of() {
  return load_kernels(matmul_few<Stored, 1, 16, InOrder>, matmul_few<Stored, 1, 32, InOrder>,
                      matmul_few<Stored, 2, 16, InOrder>, matmul_few<Stored, 2, 32, InOrder>,
                      matmul_few<Stored, 4, 16, InOrder>, matmul_few<Stored, 4, 32, InOrder>,
                      matmul_few<Stored, 8, 16, InOrder>, matmul_few<Stored, 8, 32, InOrder>, matmul_many<Stored, 4>,
                      matmul_many<Stored, 8>, matmul_few<Stored, 1, 16, ByRoute>, matmul_few<Stored, 2, 16, ByRoute>,
                      matmul_few<Stored, pass_rows, 16, ByRoute>);
}

}  // namespace

cudaError_t load_matmul() {
  for (const auto part : {load_of<float>, load_of<F16>, load_of<Bf16>}) {
    if (const cudaError_t error = part(); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

void matmul(Products products, uint32_t first, uint32_t rows, cudaStream_t stream) {
  switch (products.of[0].dtype) {
    case Dtype::f32: return matmul_of<float>(products, first, rows, stream);
    case Dtype::f16: return matmul_of<F16>(products, first, rows, stream);
    case Dtype::bf16: return matmul_of<Bf16>(products, first, rows, stream);
    default: return;  // matmul_quantised
  }
}

void matmul_routed(const ByRoute& cut, uint32_t height, cudaStream_t stream) {
  switch (cut.product.dtype) {
    case Dtype::f32: return routed_of<float>(cut, height, stream);
    case Dtype::f16: return routed_of<F16>(cut, height, stream);
    case Dtype::bf16: return routed_of<Bf16>(cut, height, stream);
    default: return;  // quantised_routed
  }
}

}  // namespace continuo::cuda
