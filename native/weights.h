// Constants, taken out of the file once and laid out for the kernels; afterwards the file is not needed.
#pragma once

#include <vector>

#include "graph.h"
#include "kernels/cpu/kernels.h"
#include "memory.h"
#include "safetensors.h"
#include "threads.h"

namespace continuo {

struct Constant {
  Layout layout{};
  Dtype dtype{};
  size_t outputs = 0;  // packed: outputs; rows: rows; vector: elements
  size_t inputs = 0;   // packed: inputs; rows: width; vector: 1
  Memory memory;       // packed: see kernels.h; rows: row-major as stored; vector: f32

  PackedMatrix matrix() const { return {dtype, outputs, inputs, memory.data()}; }
  const float* vector() const { return memory.as<float>(); }
};

// One tensor as a graph wants it.
struct ConstantSpec {
  std::string name;
  Layout layout{};
  std::vector<uint64_t> shape;
  std::string tensor;
  bool transposed = false;
  int64_t row = -1;
  Storage storage = Storage::plain;
  std::string scales;
  uint32_t group = 0;
};

// One Constant per spec. Refuses a missing tensor, a wrong shape, a dtype other than F32, F16, BF16, and numbers that are not
// finite.
Result<std::vector<Constant>> pack_weights(std::span<const ConstantSpec> specs, const std::vector<Tensor>& tensors, ThreadPool& pool);

}  // namespace continuo
