#include "weights/tensor_files.h"

#include <cstring>
#include <unordered_map>

#include "weights/safetensors.h"
#include "weights/torch_zip.h"

namespace continuo {

namespace {

bool begins_with(std::span<const std::byte> bytes, std::string_view word) {
  return bytes.size() >= word.size() && std::memcmp(bytes.data(), word.data(), word.size()) == 0;
}

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

const char* name_of(FileFormat format) {
  switch (format) {
    case FileFormat::safetensors: return "safetensors";
    case FileFormat::gguf: return "gguf";
    case FileFormat::torch: return "torch";
  }
  return "unknown";
}

Result<TensorFile> read_tensor_file(std::span<const std::byte> bytes, std::string_view file) {
  using namespace std::string_view_literals;
  if (begins_with(bytes, "GGUF")) {
    auto gguf = read_gguf(bytes, file);
    if (!gguf) return gguf.error();
    return TensorFile{FileFormat::gguf, std::move(gguf->tensors), std::move(gguf->entries)};
  }
  if (begins_with(bytes, "FUGG")) {
    return invalid(file,
                   " is a GGUF file of a big-endian machine (byte-swapped), expected little-endian numbers. "
                   "Convert the model again without that option.");
  }
  if (begins_with(bytes, "PK\x03\x04"sv)) {
    auto tensors = read_torch_zip(bytes, file);
    if (!tensors) return tensors.error();
    return TensorFile{FileFormat::torch, std::move(*tensors), {}};
  }
  if (is_old_torch(bytes)) {
    return invalid(file,
                   " was written by PyTorch before 1.6, expected the archive that torch.save writes since. Load and "
                   "save it again, or save it as safetensors.");
  }
  auto tensors = read_safetensors(bytes, file);
  if (!tensors) return tensors.error();
  return TensorFile{FileFormat::safetensors, std::move(*tensors), {}};
}

Result<TensorFiles> TensorFiles::open(std::span<const std::string> paths) {
  TensorFiles out;
  for (const auto& path : paths) {
    auto mapped = MappedFile::open(path);
    if (!mapped) return mapped.error();
    auto file = read_tensor_file(mapped->bytes(), base_name(path));
    if (!file) return file.error();
    for (auto& tensor : file->tensors) {
      tensor.file = static_cast<uint32_t>(out.files_.size());
      out.tensors_.push_back(std::move(tensor));
    }
    file->tensors.clear();
    out.mapped_.push_back(std::move(*mapped));
    out.files_.push_back(std::move(*file));
  }
  std::unordered_map<std::string_view, uint32_t> seen;
  for (const auto& tensor : out.tensors_) {
    const auto [found, fresh] = seen.emplace(tensor.name, tensor.file);
    if (!fresh) {
      return invalid("tensor \"", tensor.name, "\" stands in ", base_name(paths[found->second]), " and in ",
                     base_name(paths[tensor.file]), ", expected in one file. They belong to different models.");
    }
  }
  return out;
}

}  // namespace continuo
