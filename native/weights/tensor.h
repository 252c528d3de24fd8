// Tensor: numbers in a mapped file, as the file's header describes them. Which header that is, the readers know
// (safetensors.h, gguf.h, torch_zip.h); tensor_files.h finds the reader of a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"

namespace continuo {

constexpr size_t max_tensor_name = 1024;  // bytes
constexpr size_t max_tensor_axes = 8;

struct Tensor {
  std::string name;
  std::string dtype;                // F32, BF16, I64, …; a GGUF block format by its name: Q4_K
  std::vector<uint64_t> shape;      // rows before columns
  uint64_t offset;                  // bytes from the start of the file
  std::span<const std::byte> data;  // points into the mapped file
  uint32_t file = 0;                // which of the model's files

  uint64_t elements() const;
  // The dtype, where the engine computes with tensors of it; else none.
  std::optional<Dtype> number_format() const;
};

std::string shape_text(std::span<const uint64_t> shape);

// Elements of a shape; none where they need more than 64 bits.
std::optional<uint64_t> elements_of(std::span<const uint64_t> shape);

}  // namespace continuo
