// Products of any formats: sorts them by format, and places their quantised rows in the scratch.
#include "backends/cuda/kernels/kernels.h"
#include "backends/cuda/kernels/launch.h"
#include "backends/cuda/kernels/multiply.h"
#include "backends/cuda/kernels/routes.h"

namespace continuo::cuda {

namespace {

// Where the rows of a product lie in the scratch: each begins at a multiple of this.
constexpr size_t scratch_unit = 256;

size_t scratch_of(const Product& product, uint32_t rows) {
  if (!is_quantised(product.dtype)) return 0;
  const size_t bytes = static_cast<size_t>(pieces(product.inputs, block_terms)) * rows * sizeof(QuantisedBlock);
  return (bytes + scratch_unit - 1) / scratch_unit * scratch_unit;
}

// Rows of x.
uint32_t inputs_in(const Routed& routed, uint32_t rows) { return routed.one_input ? rows : rows * routed.chosen; }

// The routes of some rows: their passes in memory, and the list of places behind these.
struct Routes {
  uint32_t places, height, bound;
  Pass* passes;
  uint32_t* list;

  Routes(const Routed& routed, uint32_t rows, void* memory)
      : places(rows * routed.chosen),
        height(route_height(places, rows, routed.matrices)),
        bound(most_passes(places, height, routed.matrices)),
        passes(static_cast<Pass*>(memory)),
        list(reinterpret_cast<uint32_t*>(passes + bound)) {}
};

}  // namespace

cudaError_t load_products() {
  for (const auto part : {load_matmul, load_quantised}) {
    if (const cudaError_t error = part(); error != cudaSuccess) return error;
  }
  return load_kernels(group_routes);
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

size_t scratch_bytes(const Routed& routed, uint32_t rows) {
  return scratch_of(routed.product, inputs_in(routed, rows));
}

size_t route_bytes(const Routed& routed, uint32_t rows) {
  return size_t{rows} * routed.chosen * (sizeof(Pass) + sizeof(uint32_t));
}

void route(const Routed& routed, uint32_t first, uint32_t rows, void* memory, cudaStream_t stream) {
  if (rows == 0) return;
  const Routes routes(routed, rows, memory);
  const uint32_t threads = std::min(most_route_threads, (routed.matrices + 1 + 31) / 32 * 32);
  launch(group_routes, 1, threads, stream, routed.ids + size_t{first} * routed.chosen, routes.places, routed.matrices,
         routes.height, routes.bound, routes.passes, routes.list);
}

void multiply_routed(const Routed& routed, uint32_t first, uint32_t rows, void* memory, void* scratch,
                     cudaStream_t stream) {
  if (rows == 0) return;
  const Routes routes(routed, rows, memory);
  const uint32_t x_rows = inputs_in(routed, rows);
  ByRoute cut{routed.product,
              static_cast<QuantisedBlock*>(scratch),
              routes.passes,
              routes.list,
              routed.matrix_bytes,
              routed.matrices,
              routes.bound,
              routed.one_input ? routed.chosen : 1,
              x_rows};
  cut.product.x += size_t{inputs_in(routed, first)} * cut.product.inputs;
  cut.product.y += size_t{first} * routed.chosen * cut.product.outputs;
  if (!is_quantised(cut.product.dtype)) return matmul_routed(cut, routes.height, stream);
  Products products{};
  products.count = 1;
  products.of[0] = cut.product;
  products.quantised[0] = cut.quantised;
  quantise(products, 0, x_rows, stream);
  quantised_routed(cut, routes.height, stream);
}

}  // namespace continuo::cuda
