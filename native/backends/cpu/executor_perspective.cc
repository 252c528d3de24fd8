// What the perspective family adds on the CPU (docs/perspective.md): its recurrence, routes on a torus, a projection,
// adapters.
#include <algorithm>
#include <limits>
#include <numeric>

#include "backends/cpu/executor.h"

namespace continuo {

void CpuExecutor::torus(Space& space, const Instruction& instruction, std::span<const Run> runs) {
  const size_t experts = width(space, instruction.out);
  const float* positions = model_->constants[instruction.in[1].id].vector();
  for (const auto& run : runs) {
    const float* offsets = instruction.places.empty() ? nullptr : tables(space, instruction, run)[0];
    for (size_t row = run.row; row < run.row + run.rows; ++row)
      kernels_.torus(floats(space, instruction.in[0].id) + row * 2, positions, offsets,
                     floats(space, instruction.out) + row * experts, experts);
  }
}

// The experts of ranks first … first + K − 1 by ascending distance; of equal distances the lower expert first. NaN is
// far.
void CpuExecutor::nearest(Space& space, const Instruction& instruction, size_t first, size_t rows) {
  const size_t n = width(space, instruction.in[0].id), chosen = width(space, instruction.out);
  std::vector<int32_t> order(n);
  for (size_t row = first; row < first + rows; ++row) {
    const float* d = floats(space, instruction.in[0].id) + row * n;
    int32_t rank = 0;
    if (instruction.in.size() > 1) rank = number(space, instruction.in[1].id, row);
    auto* out = reinterpret_cast<int32_t*>(value(space, instruction.out)) + row * chosen;
    if (rank < 0 || static_cast<size_t>(rank) + chosen > n) {
      std::fill_n(out, chosen, -1);
      continue;
    }
    const auto far = [](float x) { return x == x ? x : std::numeric_limits<float>::infinity(); };
    const auto nearer = [&](int32_t a, int32_t b) {
      const float of_a = far(d[a]), of_b = far(d[b]);
      return of_a < of_b || (of_a == of_b && a < b);
    };
    if (rank == 0 && chosen == 1) {
      int32_t best = 0;
      for (int32_t i = 1; i < static_cast<int32_t>(n); ++i) {
        if (nearer(i, best)) best = i;
      }
      out[0] = best;
      continue;
    }
    std::iota(order.begin(), order.end(), 0);
    const auto end = order.begin() + rank + static_cast<ptrdiff_t>(chosen);
    std::partial_sort(order.begin(), end, order.end(), nearer);
    std::copy(order.begin() + rank, end, out);
  }
}

// Dykstra's algorithm on half-spaces (Boyle and Dykstra 1986). What a half-space has moved y by is a multiple of its
// normal, so one number for each of them keeps it. A sweep that changes none of these numbers is the last one.
void CpuExecutor::project(Space& space, const Instruction& instruction, size_t first, size_t rows) {
  const auto& node = *instruction.node;
  const size_t n = width(space, instruction.out);
  const auto& offsets = model_->constants[instruction.in[2].id];
  const float* normals = model_->constants[instruction.in[1].id].vector();
  const size_t spaces = offsets.outputs;
  std::vector<float> corrections(spaces), inverse(spaces), bounds(spaces);
  for (size_t j = 0; j < spaces; ++j) {
    inverse[j] = 1.0f / kernels_.dot(normals + j * n, normals + j * n, n);
    bounds[j] = offsets.vector()[j] + node.scale;
  }
  for (size_t row = first; row < first + rows; ++row) {
    float* y = floats(space, instruction.out) + row * n;
    std::copy_n(floats(space, instruction.in[0].id) + row * n, n, y);
    std::fill(corrections.begin(), corrections.end(), 0.0f);
    bool changed = true;
    for (int64_t sweep = 0; sweep < node.number && changed; ++sweep) {
      changed = false;
      for (size_t j = 0; j < spaces; ++j) {
        const float* normal = normals + j * n;
        const float s = (kernels_.dot(normal, y, n) - bounds[j]) * inverse[j];
        const float c = corrections[j] + s, next = c > 0.0f ? c : c == c ? 0.0f : c;
        if (next == corrections[j]) continue;
        kernels_.axpy(corrections[j] - next, normal, y, n);
        corrections[j] = next;
        changed = true;
      }
    }
  }
}

void CpuExecutor::whole(Space& space, const Instruction& instruction, size_t first, size_t rows) {
  const size_t n = width(space, instruction.out);
  for (size_t row = first; row < first + rows; ++row)
    kernels_.whole(floats(space, instruction.in[0].id) + row * n,
                   reinterpret_cast<int8_t*>(value(space, instruction.out)) + row * n, n);
}

// y + B (A x): what a session's adapter adds to a linear map.
void CpuExecutor::adapter(Space& space, const Instruction& instruction, std::span<const Run> runs) {
  const size_t outputs = width(space, instruction.out), inputs = width(space, instruction.in[1].id);
  const auto& place = instruction.places[0];
  const auto& axes = model_->graph.declarations[place.table].axes;
  const auto rank = static_cast<size_t>(axes[place.picks.size()].extent);
  std::vector<float> low(rank);
  for (const auto& run : runs) {
    const Tables own = tables(space, instruction, run);  // A, B
    if (!own[0]) continue;
    for (size_t row = run.row; row < run.row + run.rows; ++row) {
      const float* x = floats(space, instruction.in[1].id) + row * inputs;
      const float* y = floats(space, instruction.in[0].id) + row * outputs;
      float* out = floats(space, instruction.out) + row * outputs;
      for (size_t i = 0; i < rank; ++i) low[i] = kernels_.dot(own[0] + i * inputs, x, inputs);
      for (size_t i = 0; i < outputs; ++i) out[i] = y[i] + kernels_.dot(own[1] + i * rank, low.data(), rank);
    }
  }
}

}  // namespace continuo
