// Constants: read from the model's files once and laid out for the kernels. The files are not needed afterwards.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/threads.h"
#include "weights/packed_matrix.h"
#include "weights/storage.h"
#include "weights/tensor.h"

namespace continuo {

// How a graph declares one member of a constant. An empty `tensor` gives an empty Constant.
struct ConstantSpec {
  std::string name;
  Layout layout{};
  std::vector<uint64_t> shape;       // packed [N, K]; rows [rows, width]; vector [elements]
  std::string tensor;                // name in the file
  bool transposed = false;           // packed, plain: the file has [K, N]
  int64_t row = -1;                  // vector: the row of a larger tensor to take; −1: the whole tensor
  Storage storage = Storage::plain;  // other than plain: packed only
  std::string scales;                // storage other than plain: the tensor of the scales
  uint32_t group = 0;                // storage other than plain: inputs that share a scale
};

// Immutable. Copies share their bytes, which `owner` keeps alive: a block of memory, or a mapping of the cache file.
struct Constant {
  Layout layout{};
  Dtype dtype{};
  size_t outputs = 0;                // packed: outputs; rows: rows; vector: elements
  size_t inputs = 0;                 // packed: inputs; rows: width; vector: 1
  size_t group = 0;                  // packed, q8 and ternary
  std::span<const std::byte> bytes;  // packed: see packed_matrix.h; rows: row-major; vector: f32
  std::shared_ptr<const void> owner;

  PackedMatrix matrix() const { return {dtype, outputs, inputs, group, bytes.data()}; }
  const float* vector() const { return reinterpret_cast<const float*>(bytes.data()); }
};

// The cache file of packed weights (packed_file.h).
struct PackCache {
  std::string path;
  std::string key;  // 64 characters: identifies the weights and how the graph uses them
};

struct Packed {
  std::vector<Constant> constants;
  std::string note;  // why the cache file was not used; empty where it was used or there is none
};

// Packs one Constant per spec. Refuses a missing tensor, a wrong shape, dtype or code, and numbers that are not finite.
Result<Packed> pack_weights(std::span<const ConstantSpec> specs, const std::vector<Tensor>& tensors, ThreadPool& pool,
                            const PackCache* cache = nullptr);

}  // namespace continuo
