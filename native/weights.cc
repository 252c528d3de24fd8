#include "weights.h"

#include <cmath>
#include <optional>
#include <unordered_map>

namespace continuo {

namespace {

std::vector<uint64_t> squeezed(const std::vector<uint64_t>& shape) {
  std::vector<uint64_t> out;
  for (const auto extent : shape) {
    if (extent != 1) out.push_back(extent);
  }
  return out;
}

// Whether the tensor can serve the declaration; the elements are taken in row-major order, so extents of 1 do not matter.
bool fits(const ConstantSpec& d, const Tensor& tensor) {
  if (d.row >= 0) return tensor.shape.size() >= 2 && static_cast<uint64_t>(d.row) < tensor.shape[0] && tensor.elements() / tensor.shape[0] == d.shape[0];
  if (d.layout == Layout::vector) return tensor.elements() == d.shape[0];
  const auto wanted = d.transposed ? std::vector<uint64_t>{d.shape[1], d.shape[0]} : d.shape;
  return squeezed(tensor.shape) == squeezed(wanted);
}

std::string wanted_shape(const ConstantSpec& d) {
  if (d.transposed) return shape_text(std::vector<uint64_t>{d.shape[1], d.shape[0]});
  return shape_text(d.shape);
}

std::optional<Error> check_finite(const Tensor& tensor, Dtype dtype) {
  const size_t n = tensor.elements();
  for (size_t i = 0; i < n; ++i) {
    const float value = read_element(tensor.data.data(), dtype, i);
    if (!std::isfinite(value)) {
      return invalid("tensor \"", tensor.name, "\" holds ", std::isnan(value) ? "NaN" : "an infinity", " at element ", i,
                     ", expected finite numbers. The model is damaged or its training diverged: use another checkpoint.");
    }
  }
  return std::nullopt;
}

// Moves stored bits without looking at them: T has the size of the dtype.
template <class T>
void pack_matrix(const Tensor& tensor, const ConstantSpec& d, T* out) {
  const size_t outputs = d.shape[0], inputs = d.shape[1];
  const std::byte* in = tensor.data.data();
  for (size_t n = 0; n < outputs; ++n) {
    T* lane = out + n / tile_lanes * inputs * tile_lanes + n % tile_lanes;
    for (size_t k = 0; k < inputs; ++k) {
      const size_t from = d.transposed ? k * outputs + n : n * inputs + k;
      std::memcpy(lane + k * tile_lanes, in + from * sizeof(T), sizeof(T));
    }
  }
}

void fill(Constant& constant, const ConstantSpec& d, const Tensor& tensor, Dtype dtype) {
  switch (constant.layout) {
    case Layout::packed:
      if (size_of(dtype) == 4) pack_matrix(tensor, d, constant.memory.as<uint32_t>());
      else pack_matrix(tensor, d, constant.memory.as<uint16_t>());
      return;
    case Layout::rows:
      std::memcpy(constant.memory.data(), tensor.data.data(), tensor.data.size());
      return;
    case Layout::vector: {
      const size_t from = d.row > 0 ? static_cast<size_t>(d.row) * d.shape[0] : 0;
      for (size_t i = 0; i < d.shape[0]; ++i) constant.memory.as<float>()[i] = read_element(tensor.data.data(), dtype, from + i);
      return;
    }
  }
}

size_t bytes_needed(const ConstantSpec& d, Dtype dtype) {
  switch (d.layout) {
    case Layout::packed: return (d.shape[0] + tile_lanes - 1) / tile_lanes * tile_lanes * d.shape[1] * size_of(dtype);
    case Layout::rows: return d.shape[0] * d.shape[1] * size_of(dtype);
    case Layout::vector: return d.shape[0] * sizeof(float);
  }
  return 0;
}

}  // namespace

Result<std::vector<Constant>> pack_weights(std::span<const ConstantSpec> specs, const std::vector<Tensor>& tensors, ThreadPool& pool) {
  std::unordered_map<std::string_view, const Tensor*> by_name;
  for (const auto& tensor : tensors) by_name.emplace(tensor.name, &tensor);

  std::vector<Constant> constants(specs.size());
  std::vector<const Tensor*> sources(specs.size(), nullptr);
  for (size_t i = 0; i < specs.size(); ++i) {
    const auto& d = specs[i];
    const auto found = by_name.find(d.tensor);
    if (found == by_name.end()) return invalid("tensor \"", d.tensor, "\" is missing from model.safetensors, expected shape ", wanted_shape(d), ".");
    const auto& tensor = *found->second;
    const auto dtype = tensor.number_format();
    if (!dtype) return invalid("tensor \"", d.tensor, "\" is stored as ", tensor.dtype, ", expected F32, F16 or BF16: convert the model.");
    if (!fits(d, tensor)) return invalid("tensor \"", d.tensor, "\" has shape ", shape_text(tensor.shape), ", expected ", wanted_shape(d), ".");
    sources[i] = &tensor;
    const bool vector = d.layout == Layout::vector;
    constants[i] = {d.layout, *dtype, static_cast<size_t>(d.shape[0]), static_cast<size_t>(vector ? 1 : d.shape[1]), Memory(bytes_needed(d, *dtype))};
  }

  std::vector<std::optional<Error>> errors(specs.size());
  pool.parallel_for(specs.size(), [&](size_t i) {
    if (!sources[i]) return;
    errors[i] = check_finite(*sources[i], constants[i].dtype);
    if (!errors[i]) fill(constants[i], specs[i], *sources[i], constants[i].dtype);
  });
  for (const auto& error : errors) {
    if (error) return *error;
  }
  return constants;
}

}  // namespace continuo
