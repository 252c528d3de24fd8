// The files that hold a model's tensors: each mapped once, its format found by its content, never by its name.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weights/gguf.h"
#include "weights/mapped_file.h"
#include "weights/tensor.h"

namespace continuo {

enum class FileFormat { safetensors, gguf, torch };

const char* name_of(FileFormat format);

struct TensorFile {
  FileFormat format;
  std::vector<Tensor> tensors;      // in the order of their data
  std::vector<GgufEntry> metadata;  // of a GGUF file
};

// Reads one file. `bytes`, its content, must outlive the result; `file` is its name, for messages.
Result<TensorFile> read_tensor_file(std::span<const std::byte> bytes, std::string_view file);

// The files of one model.
class TensorFiles {
 public:
  // Refuses files that hold a tensor of the same name.
  static Result<TensorFiles> open(std::span<const std::string> paths);

  std::span<const TensorFile> files() const { return files_; }
  // Of all files; `Tensor::file` says which. They point into this.
  const std::vector<Tensor>& tensors() const { return tensors_; }

 private:
  std::vector<MappedFile> mapped_;
  std::vector<TensorFile> files_;  // their tensors moved into tensors_
  std::vector<Tensor> tensors_;
};

}  // namespace continuo
