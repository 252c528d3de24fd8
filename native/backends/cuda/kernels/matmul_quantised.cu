// Chooses the kernels of products with quantised weights by layout and rows.
#include "backends/cuda/kernels/matmul_quantised.h"
#include "backends/cuda/kernels/multiply.h"
#include "backends/cuda/kernels/quantise.h"

namespace continuo::cuda {

namespace {

template <class Codes, uint32_t Rows>
void few(Products& products, uint32_t x_rows, uint32_t first, uint32_t rows, cudaStream_t stream) {
  const uint32_t passes = pieces(rows, pass_rows),
                 blocks = cut_outputs(products, quantised_lanes * Codes::each, passes);
  launch(quantised_few<Codes, Rows, InOrder>, blocks,
         threads_of(products, quantised_lanes, quantised_few_threads<Codes>(Rows)), stream,
         InOrder{products, first, rows, pass_rows, passes, x_rows});
}

template <class Codes>
void quantised_of(Products& products, uint32_t x_rows, uint32_t first, uint32_t rows, cudaStream_t stream) {
  if (rows == 1) return few<Codes, 1>(products, x_rows, first, rows, stream);
  if (rows == 2) return few<Codes, 2>(products, x_rows, first, rows, stream);
  if (rows <= 4) return few<Codes, 4>(products, x_rows, first, rows, stream);
  if (rows <= few_rows_most) return few<Codes, 8>(products, x_rows, first, rows, stream);
  constexpr uint32_t height = 64;
  const uint32_t passes = pieces(rows, height), blocks = cut_outputs(products, tile_lanes, passes);
  launch(quantised_many<Codes>, blocks, many_threads, stream, InOrder{products, first, rows, height, passes, x_rows});
}

template <class Codes, uint32_t Rows> void routed_few(const ByRoute& cut, cudaStream_t stream) {
  launch(quantised_few<Codes, Rows, ByRoute>, pieces(cut.product.outputs, quantised_lanes * Codes::each) * cut.bound,
         threads_of(cut.product, quantised_lanes, quantised_few_threads<Codes>(Rows)), stream, cut);
}

template <class Codes> void routed_of(const ByRoute& cut, uint32_t height, cudaStream_t stream) {
  if (height == 1) return routed_few<Codes, 1>(cut, stream);
  if (height == 2) return routed_few<Codes, 2>(cut, stream);
  routed_few<Codes, pass_rows>(cut, stream);
}

// The kernels that quantised_of() and routed_of() choose from.
template <class Codes> cudaError_t load_of() {
  return load_kernels(quantised_few<Codes, 1, InOrder>, quantised_few<Codes, 2, InOrder>,
                      quantised_few<Codes, 4, InOrder>, quantised_few<Codes, 8, InOrder>, quantised_many<Codes>,
                      quantised_few<Codes, 1, ByRoute>, quantised_few<Codes, 2, ByRoute>,
                      quantised_few<Codes, pass_rows, ByRoute>);
}

// Calls f with the layout of a product.
void with_codes(const Product& product, const auto& f) {
  const bool narrow = product.group == 32;
  switch (product.dtype) {
    case Dtype::q8: return narrow ? f(Codes<Dtype::q8, 32>()) : f(Codes<Dtype::q8, 64>());
    case Dtype::ternary: return narrow ? f(Codes<Dtype::ternary, 32>()) : f(Codes<Dtype::ternary, 64>());
    case Dtype::q4: return narrow ? f(Codes<Dtype::q4, 32>()) : f(Codes<Dtype::q4, 64>());
    case Dtype::q4_k: return f(Codes<Dtype::q4_k, 32>());
    case Dtype::q6_k: return f(Codes<Dtype::q6_k, 32>());
    default: return;  // matmul
  }
}

}  // namespace

cudaError_t load_quantised() {
  for (const auto part :
       {load_of<Codes<Dtype::q8, 32>>, load_of<Codes<Dtype::q8, 64>>, load_of<Codes<Dtype::ternary, 32>>,
        load_of<Codes<Dtype::ternary, 64>>, load_of<Codes<Dtype::q4, 32>>, load_of<Codes<Dtype::q4, 64>>,
        load_of<Codes<Dtype::q4_k, 32>>, load_of<Codes<Dtype::q6_k, 32>>}) {
    if (const cudaError_t error = part(); error != cudaSuccess) return error;
  }
  return load_kernels(quantise_rows<32>, quantise_rows<64>);
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
  with_codes(products.of[0], [&]<class Codes>(Codes) { quantised_of<Codes>(products, x_rows, first, rows, stream); });
}

void quantised_routed(const ByRoute& cut, uint32_t height, cudaStream_t stream) {
  with_codes(cut.product, [&]<class Codes>(Codes) { routed_of<Codes>(cut, height, stream); });
}

}  // namespace continuo::cuda
