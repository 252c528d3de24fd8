// Reads a safetensors file and trusts nothing in it. Byte layout (all little-endian):
//   u64 n             length of the header, at most 25 000 000
//   n bytes           JSON: { "<tensor>": { "dtype", "shape", "data_offsets": [begin, end] },
//                             "__metadata__"?: {string: string} }
//   the rest          tensor data; offsets count from here
// Refused: offsets past the end, tensors that overlap or leave gaps, lengths that disagree with dtype × shape, unknown
// dtypes, a name given twice, sizes that overflow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"

namespace continuo {

struct Tensor {
  std::string name;
  std::string dtype;  // the file's word for it: F32, BF16, I64, …
  std::vector<uint64_t> shape;
  uint64_t offset;                  // bytes from the start of the file
  std::span<const std::byte> data;  // points into the mapped file

  uint64_t elements() const;
  // The dtype, where the engine computes with tensors of it; else none.
  std::optional<Dtype> number_format() const;
};

std::string shape_text(std::span<const uint64_t> shape);

// The tensors of a file, in the order of their data. `bytes`, the content of the file, must outlive them.
Result<std::vector<Tensor>> read_safetensors(std::span<const std::byte> bytes);

// A read-only mapping of a whole file.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  MappedFile(const std::byte* data, size_t size) : data_(data), size_(size) {}
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace continuo
