// Products with matrices of a stack that each row picks: the host reads which, and launches a product for each matrix.
#include <algorithm>
#include <array>

#include "backends/cuda/check.h"
#include "backends/cuda/executor.h"
#include "backends/cuda/kernels/kernels.h"
#include "runtime/routes.h"

namespace continuo::cuda {

namespace {

Product product_with(const PackedMatrix& w) {
  Product p;
  p.dtype = w.dtype;
  p.outputs = static_cast<uint32_t>(w.outputs);
  p.inputs = static_cast<uint32_t>(w.inputs);
  p.group = static_cast<uint32_t>(w.group);
  p.data = w.data;
  return p;
}

}  // namespace

size_t CudaExecutor::reserve_routed(const Program& program, size_t rows) {
  const size_t bytes = gathered_bytes(*model_, program, rows);
  if (bytes > gathered_.size()) gathered_ = DeviceMemory(device_, bytes);
  size_t scratch = 0;
  each_routed(*model_, program, program.code, rows, [&](const Constant& stack, size_t places) {
    // The scratch of each product of a launch is rounded up: no more than that of a row each.
    const Product p = product_with(stack.matrix());
    scratch = std::max(scratch,
                       scratch_bytes(&p, 1, static_cast<uint32_t>(places)) + most_products * scratch_bytes(&p, 1, 1));
  });
  return scratch;
}

void CudaExecutor::routed(Space& space, const Instruction& instruction, size_t first, size_t rows) {
  const auto in_use = device_->use();
  const auto& stack = model_->constants[instruction.in[2].id];
  const size_t inputs = stack.inputs, outputs = stack.outputs, chosen = width(space, instruction.in[1].id);
  const bool one_input = declared(space, instruction.in[0].id).shape.size() == 1;
  const float* x = floats(space, instruction.in[0].id) + first * (one_input ? 1 : chosen) * inputs;
  float* y = floats(space, instruction.out) + first * chosen * outputs;
  const auto copy = [&](float* to, const float* from, size_t n) {
    check(cudaMemcpyAsync(to, from, n * sizeof(float), cudaMemcpyDeviceToDevice, stream_), "copy a row");
  };
  const auto input_of = [&](size_t place) { return x + (one_input ? place / chosen : place) * inputs; };

  const size_t places = rows * chosen;
  const auto* ids = reinterpret_cast<const int32_t*>(
      look_at(space, instruction.in[1].id, first, rows));  // on the host until the next copy
  const auto [routes, lost] = routes_of({ids, places}, stack.members);
  constexpr uint32_t not_a_number = 0x7FC00000;
  for (const size_t place : lost) cuda::fill(y + place * outputs, outputs, not_a_number, sizeof(float), stream_);
  for (size_t at = 0; at < routes.size();) {
    const auto batch = alike(routes, at, most_products);
    at += batch.size();
    const size_t count = batch[0].places.size();
    std::array<Product, most_products> products;
    auto* free = reinterpret_cast<float*>(gathered_.data());
    for (size_t i = 0; i < batch.size(); ++i) {
      const auto& [matrix, own] = batch[i];
      products[i] = product_with(stack.matrix(matrix));
      products[i].x = count == 1 ? input_of(own[0]) : free;
      products[i].y = count == 1 ? y + own[0] * outputs : free + count * inputs;
      if (count == 1) continue;
      for (size_t r = 0; r < count; ++r) copy(free + r * inputs, input_of(own[r]), inputs);
      free += count * (inputs + outputs);
    }
    cuda::multiply(products.data(), static_cast<uint32_t>(batch.size()), 0, static_cast<uint32_t>(count),
                   scratch_.data(), stream_);
    for (size_t i = 0; i < batch.size() && count > 1; ++i) {
      for (size_t r = 0; r < count; ++r) copy(y + batch[i].places[r] * outputs, products[i].y + r * outputs, outputs);
    }
  }
  check(cudaGetLastError(), "launch a product");
  pending_ = true;
}

}  // namespace continuo::cuda
