#include "weights/tensor.h"

namespace continuo {

uint64_t Tensor::elements() const {
  uint64_t n = 1;
  for (const auto extent : shape) n *= extent;
  return n;
}

std::optional<Dtype> Tensor::number_format() const {
  if (dtype == "F32") return Dtype::f32;
  if (dtype == "F16") return Dtype::f16;
  if (dtype == "BF16") return Dtype::bf16;
  return std::nullopt;
}

std::string shape_text(std::span<const uint64_t> shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += (i ? ", " : "") + std::to_string(shape[i]);
  return out + "]";
}

std::optional<uint64_t> elements_of(std::span<const uint64_t> shape) {
  uint64_t n = 1;
  for (const auto extent : shape) {
    if (__builtin_mul_overflow(n, extent, &n)) return std::nullopt;
  }
  return n;
}

}  // namespace continuo
