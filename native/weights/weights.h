// Constants, taken out of the file once and laid out for the kernels; afterwards the file is not needed.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/threads.h"
#include "weights/packed_matrix.h"
#include "weights/safetensors.h"
#include "weights/storage.h"

namespace continuo {

// What a model wants of a file. Without a tensor: no constant.
struct ConstantSpec {
  std::string name;
  Layout layout{};
  std::vector<uint64_t> shape;  // packed [N, K]; rows [rows, width]; vector [elements]
  std::string tensor;
  bool transposed = false;           // packed, plain: the file holds [K, N]
  int64_t row = -1;                  // vector: one row of a larger tensor
  Storage storage = Storage::plain;  // other than plain: packed only
  std::string scales;                // other than plain: the tensor that holds them
  uint32_t group = 0;                // other than plain: inputs under one scale
};

// Immutable: copies share their bytes, which may be memory of the engine's or a mapping that `owner` keeps alive.
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

// Where packed weights are kept between loads (packed_file.h).
struct PackCache {
  std::string path;
  std::string key;  // 64 characters: what the weights are and how the graph wants them
};

struct Packed {
  std::vector<Constant> constants;
  std::string note;  // why a kept file could not be used; empty when there was nothing to say
};

// One Constant per spec (empty where there is no tensor). Refuses a missing tensor, a wrong shape, dtype or code, and
// numbers that are not finite.
Result<Packed> pack_weights(std::span<const ConstantSpec> specs, const std::vector<Tensor>& tensors, ThreadPool& pool,
                            const PackCache* cache = nullptr);

}  // namespace continuo
