// Products with matrices of a stack that each row picks.
#include <algorithm>
#include <array>
#include <limits>

#include "backends/cpu/executor.h"
#include "backends/cpu/linear.h"
#include "backends/cpu/moments.h"
#include "runtime/executor/routes.h"

namespace continuo {

size_t CpuExecutor::reserve_routed(const Program& program, size_t rows) {
  size_t scratch = 0, bytes = gathered_.size();
  each_routed(*model_, program, program.code, rows, [&](const Constant& stack, size_t places) {
    bytes = std::max(bytes, places * (stack.inputs + stack.outputs) * sizeof(float));
    scratch = std::max(scratch, scratch_bytes(stack.matrix(), places));
  });
  grow(gathered_, bytes);
  return scratch;
}

// Rows that go to the same matrix are brought together, so that its weights are read once for all of them. Rows that
// are alone with theirs are multiplied where they lie.
void CpuExecutor::routed(Space& space, const Instruction& instruction, size_t first, size_t rows) {
  const auto& stack = model_->constants[instruction.in[2].id];
  const size_t inputs = stack.inputs, outputs = stack.outputs, chosen = width(space, instruction.in[1].id);
  const bool one_input = declared(space, instruction.in[0].id).shape.size() == 1;
  const float* x = floats(space, instruction.in[0].id) + first * (one_input ? 1 : chosen) * inputs;
  float* y = floats(space, instruction.out) + first * chosen * outputs;
  const auto* ids = reinterpret_cast<const int32_t*>(value(space, instruction.in[1].id)) + first * chosen;
  const auto input_of = [&](size_t place) { return x + (one_input ? place / chosen : place) * inputs; };

  if (options_.moments) {
    const uint32_t sum = options_.moments->sum_of[instruction.in[2].id];
    if (sum != no_name) add_rows(options_.moments->sums[sum], x, rows * (one_input ? 1 : chosen), pool_, kernels_);
  }
  const auto [routes, lost] = routes_of({ids, rows * chosen}, stack.members);
  for (const size_t place : lost) std::fill_n(y + place * outputs, outputs, std::numeric_limits<float>::quiet_NaN());
  for (size_t at = 0; at < routes.size();) {
    const auto batch = alike(routes, at, max_products);
    at += batch.size();
    const size_t count = batch[0].places.size();
    std::array<Product, max_products> products;
    auto* free = gathered_.as<float>();
    for (size_t i = 0; i < batch.size(); ++i) {
      const auto& [matrix, places] = batch[i];
      if (count == 1) {
        products[i] = {stack.matrix(matrix), input_of(places[0]), y + places[0] * outputs};
        continue;
      }
      for (size_t r = 0; r < count; ++r) std::copy_n(input_of(places[r]), inputs, free + r * inputs);
      products[i] = {stack.matrix(matrix), free, free + count * inputs};
      free += count * (inputs + outputs);
    }
    multiply(pool_, kernels_, std::span(products).first(batch.size()), count, scratch_);
    if (count == 1) continue;
    for (size_t i = 0; i < batch.size(); ++i) {
      for (size_t r = 0; r < count; ++r)
        std::copy_n(products[i].y + r * outputs, outputs, y + batch[i].places[r] * outputs);
    }
  }
}

}  // namespace continuo
