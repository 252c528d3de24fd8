// The product of rows with one expert of a store.
#include <algorithm>
#include <limits>

#include "backends/cpu/executor.h"
#include "backends/cpu/linear.h"
#include "experts/cache.h"
#include "experts/form.h"

namespace continuo {

void CpuExecutor::no_expert(Space& space, const Instruction& instruction, std::span<const size_t> places) {
  const size_t channels = width(space, instruction.in[0].id);
  for (const size_t place : places)
    std::fill_n(floats(space, instruction.out) + place * channels, channels, std::numeric_limits<float>::quiet_NaN());
}

void CpuExecutor::multiply_expert(Space& space, const Instruction& instruction, uint32_t, experts::Loan loan,
                                  std::span<const size_t> places) {
  const auto& shape = model_->experts->index(model_->constants[instruction.in[2].id].layer)->shape;
  const size_t channels = shape.channels, inner = shape.inner, chosen = width(space, instruction.in[1].id);
  const size_t n = places.size();
  size_t scratch = 0;
  for (size_t which = 0; which < experts::matrices; ++which)
    scratch = std::max(scratch, scratch_bytes(experts::matrix_of(shape, which, nullptr), n));
  grow(scratch_, 2 * scratch);
  grow(gathered_, n * 2 * (channels + inner) * sizeof(float));

  const float* x = floats(space, instruction.in[0].id);
  float* y = floats(space, instruction.out);
  auto* in = gathered_.as<float>();
  float *gate = in + n * channels, *up = gate + n * inner, *out = up + n * inner;
  for (size_t r = 0; r < n; ++r) std::copy_n(x + places[r] / chosen * channels, channels, in + r * channels);
  const auto matrix = [&](size_t which) { return experts::matrix_of(shape, which, loan.bytes().data()); };
  const Product inward[] = {{matrix(0), in, gate}, {matrix(1), in, up}};
  multiply(pool_, kernels_, inward, n, scratch_);
  kernels_.silu(gate, gate, n * inner);
  kernels_.mul(gate, up, gate, n * inner);
  const Product outward[] = {{matrix(2), gate, out}};
  multiply(pool_, kernels_, outward, n, scratch_);
  for (size_t r = 0; r < n; ++r) std::copy_n(out + r * channels, channels, y + places[r] * channels);
}

}  // namespace continuo
