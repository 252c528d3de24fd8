// Constants: read from the model's files once and laid out for the kernels. The files are not needed afterwards.
#pragma once

#include <cstdint>
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
#include "weights/view.h"

namespace continuo {

// How a graph declares one member of a constant. An empty `tensor` gives an empty Constant.
struct ConstantSpec {
  std::string name;
  Layout layout{};
  std::vector<uint64_t> shape;       // packed [N, K]; rows [rows, width]; vector [elements]; stack [E, N, K]
  std::string tensor;                // name in the file; of a stack: {e} stands for the number of the matrix
  bool transposed = false;           // packed, plain: the file has [K, N]
  int64_t row = -1;                  // vector: the row of a larger tensor to take; −1: the whole tensor
  Storage storage = Storage::plain;  // other than plain: packed only
  std::string scales;                // storage other than plain: the tensor of the scales
  uint32_t group = 0;                // storage other than plain: inputs that share a scale
  View view = {};                    // rows of the tensor: outputs, rows or elements. Of a stack: of matrix 0
  View columns = {};                 // packed, plain: inputs
  Map map = Map::none;               // vector
  // vector: the extents that its tensor must have, where it is a table in row-major order. Empty: any.
  std::vector<uint64_t> extents = {};
};

// Immutable. Copies share their bytes, which `owner` keeps alive: a block of memory, or a mapping of the cache file.
struct Constant {
  Layout layout{};
  Dtype dtype{};
  size_t outputs = 0;                // packed, stack: outputs of a matrix; rows: rows; vector: elements
  size_t inputs = 0;                 // packed, stack: inputs of a matrix; rows: width; vector: 1
  size_t group = 0;                  // packed, stack: quantised dtypes
  std::span<const std::byte> bytes;  // packed: see packed_matrix.h; stack: [E] of these; rows: row-major; vector: f32
  std::shared_ptr<const void> owner;
  size_t members = 1;  // stack, experts: E
  uint32_t layer = 0;  // experts: of the store

  // Of a stack: matrix `member`.
  PackedMatrix matrix(size_t member = 0) const {
    return {dtype, outputs, inputs, group, bytes.data() + bytes.size() / members * member};
  }
  const float* vector() const { return reinterpret_cast<const float*>(bytes.data()); }
};

// Which file of packed weights (packed_file.h) is to be mapped.
struct PackCache {
  std::string path;
  std::string key, seal;  // as the file must have them
};

// What a file of packed weights says of itself: 64 hex digits each.
struct PackedName {
  std::string key, seal, head, fingerprint;
};

class PackedFile;

struct Packed {
  std::vector<Constant> constants;
  std::shared_ptr<const PackedFile> file;  // that they are mapped from; null: they were packed
  std::string note;                        // why the file that was named is not used; else empty
};

size_t packed_bytes(std::span<const Constant> constants);

// Packs one Constant per spec. Refuses a missing tensor, a wrong shape, dtype or code, and numbers that are not finite.
Result<Packed> pack_weights(std::span<const ConstantSpec> specs, const std::vector<Tensor>& tensors, ThreadPool& pool,
                            const PackCache* cache = nullptr);

}  // namespace continuo
