#include "weights/weights.h"

#include <cmath>
#include <unordered_map>

#include "base/memory.h"
#include "weights/blocks.h"
#include "weights/packed_file.h"
#include "weights/quantised.h"

namespace continuo {

namespace {

std::vector<uint64_t> squeezed(const std::vector<uint64_t>& shape) {
  std::vector<uint64_t> out;
  for (const auto extent : shape) {
    if (extent != 1) out.push_back(extent);
  }
  return out;
}

std::vector<uint64_t> wanted_shape(const ConstantSpec& spec) {
  if (spec.transposed) return {spec.shape[1], spec.shape[0]};
  return spec.shape;
}

// Whether the tensor fits the spec. Elements are read in row-major order, so extents of 1 do not matter.
bool fits(const ConstantSpec& spec, const Tensor& tensor) {
  if (spec.row >= 0) {
    return tensor.shape.size() >= 2 && static_cast<uint64_t>(spec.row) < tensor.shape[0] &&
           tensor.elements() / tensor.shape[0] == spec.shape[0];
  }
  if (spec.layout == Layout::vector) return tensor.elements() == spec.shape[0];
  return squeezed(tensor.shape) == squeezed(wanted_shape(spec));
}

bool is_f8(const Tensor& tensor) { return tensor.dtype == "F8_E4M3"; }

// The block format of a tensor of a GGUF file; null for plain numbers.
const BlockFormat* blocks_of(const Tensor& tensor) {
  const auto* format = block_format(tensor.dtype);
  return format && format->widen ? format : nullptr;
}

// The dtype in which the kernels read a plain tensor: f16 for F8_E4M3, f32 for F64 (rounded once) and for blocks. None
// for a dtype that they do not read.
std::optional<Dtype> kept_dtype(const Tensor& tensor) {
  if (is_f8(tensor)) return Dtype::f16;
  if (tensor.dtype == "F64" || blocks_of(tensor)) return Dtype::f32;
  return tensor.number_format();
}

// Elements of blocks, one after the other: each block is widened when the first of its elements is asked for.
class Widened {
 public:
  Widened(const BlockFormat& format, const std::byte* data) : format_(format), data_(data) {}
  uint32_t operator()(size_t i) {
    if (const size_t block = i / format_.values; block != block_) {
      format_.widen(data_ + block * format_.bytes, values_);
      block_ = block;
    }
    return std::bit_cast<uint32_t>(values_[i % format_.values]);
  }

 private:
  const BlockFormat& format_;
  const std::byte* data_;
  size_t block_ = static_cast<size_t>(-1);
  float values_[max_block_values];
};

// Calls use(element), where element(i) gives the bits of the tensor's element i in that dtype: u32 or u16.
template <class Use> auto with_bits(const Tensor& tensor, const Use& use) {
  const std::byte* data = tensor.data.data();
  const auto whole = [data]<class T>(T, size_t i) {
    T bits;
    std::memcpy(&bits, data + i * sizeof(T), sizeof(T));
    return bits;
  };
  if (is_f8(tensor)) return use([data](size_t i) { return widen_f8(std::to_integer<uint8_t>(data[i])); });
  if (const auto* format = blocks_of(tensor)) return use(Widened(*format, data));
  if (tensor.dtype == "F64")
    return use([whole](size_t i) {
      return std::bit_cast<uint32_t>(static_cast<float>(std::bit_cast<double>(whole(uint64_t{}, i))));
    });
  if (tensor.dtype == "F32") return use([whole](size_t i) { return whole(uint32_t{}, i); });
  return use([whole](size_t i) { return whole(uint16_t{}, i); });
}

float number_of(uint32_t bits, Dtype) { return std::bit_cast<float>(bits); }
float number_of(uint16_t bits, Dtype dtype) { return dtype == Dtype::f16 ? widen_f16(bits) : widen_bf16(bits); }

std::optional<Error> check_finite(const Tensor& tensor, Dtype dtype) {
  return with_bits(tensor, [&](auto&& element) -> std::optional<Error> {
    const size_t n = tensor.elements();
    for (size_t i = 0; i < n; ++i) {
      const float value = number_of(element(i), dtype);
      if (!std::isfinite(value)) {
        return invalid(
            "tensor \"", tensor.name, "\" holds ", std::isnan(value) ? "NaN" : "an infinity", " at element ", i,
            ", expected finite numbers. The model is damaged or its training diverged: use another checkpoint.");
      }
    }
    return std::nullopt;
  });
}

void fill(const ConstantSpec& spec, const Tensor& tensor, Dtype dtype, Memory& memory) {
  with_bits(tensor, [&](auto&& element) {
    auto* out = memory.as<decltype(element(0))>();
    switch (spec.layout) {
      case Layout::packed: {
        const size_t outputs = spec.shape[0], inputs = spec.shape[1];
        for (size_t n = 0; n < outputs; ++n) {
          auto* lane = out + n / tile_lanes * inputs * tile_lanes + n % tile_lanes;
          for (size_t k = 0; k < inputs; ++k)
            lane[k * tile_lanes] = element(spec.transposed ? k * outputs + n : n * inputs + k);
        }
        return;
      }
      case Layout::rows:
        for (size_t i = 0; i < tensor.elements(); ++i) out[i] = element(i);
        return;
      case Layout::vector: {
        const size_t from = spec.row > 0 ? static_cast<size_t>(spec.row) * spec.shape[0] : 0;
        for (size_t i = 0; i < spec.shape[0]; ++i) memory.as<float>()[i] = number_of(element(from + i), dtype);
        return;
      }
    }
  });
}

size_t bytes_needed(const ConstantSpec& spec, const PackedMatrix& m) {
  switch (spec.layout) {
    case Layout::packed:
      return spec.storage == Storage::plain ? m.tiles() * tile_lanes * m.inputs * size_of(m.dtype)
                                            : m.tiles() * m.groups() * m.group_bytes();
    case Layout::rows: return m.outputs * m.inputs * size_of(m.dtype);
    case Layout::vector: return m.outputs * sizeof(float);
  }
  return 0;
}

// The least size for which a cache file is written: packing fewer bytes takes milliseconds.
constexpr size_t kept_bytes = size_t{1} << 23;

// The checked tensors of one constant, and the memory to pack them into.
struct Source {
  const Tensor* tensor = nullptr;
  const Tensor* scales = nullptr;  // storages other than plain
  std::shared_ptr<SealedMemory> memory;
};

}  // namespace

const char* name_of(Storage storage) {
  switch (storage) {
    case Storage::plain: return "plain";
    case Storage::q8: return "q8";
    case Storage::i4: return "i4";
    case Storage::ternary2: return "ternary2";
    case Storage::ternary3: return "ternary3";
  }
  return "unknown";
}

Result<Packed> pack_weights(std::span<const ConstantSpec> specs, const std::vector<Tensor>& tensors, ThreadPool& pool,
                            const PackCache* cache) {
  std::unordered_map<std::string_view, const Tensor*> by_name;
  for (const auto& tensor : tensors) by_name.emplace(tensor.name, &tensor);
  const auto find = [&](const std::string& name) {
    const auto found = by_name.find(name);
    return found == by_name.end() ? nullptr : found->second;
  };

  std::vector<Constant> constants(specs.size());
  std::vector<Source> sources(specs.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    const auto& spec = specs[i];
    if (spec.tensor.empty()) continue;
    const Tensor* tensor = find(spec.tensor);
    if (!tensor)
      return invalid("tensor \"", spec.tensor, "\" is missing from the model's files, expected shape ",
                     shape_text(wanted_shape(spec)), ".");
    std::optional<Dtype> dtype = kept_dtype(*tensor);
    if (spec.storage == Storage::plain) {
      if (!dtype)
        return invalid("tensor \"", spec.tensor, "\" is stored as ", tensor->dtype,
                       ", expected F32, F16, BF16, F64, F8_E4M3 or a block format of GGUF: convert the model.");
      if (!fits(spec, *tensor)) {
        return invalid("tensor \"", spec.tensor, "\" has shape ", shape_text(tensor->shape), ", expected ",
                       shape_text(wanted_shape(spec)), ".");
      }
    } else {
      sources[i].scales = find(spec.scales);
      if (!sources[i].scales) {
        return invalid("tensor \"", spec.scales, "\" is missing from the model's files, expected the scales of \"",
                       spec.tensor, "\" (", name_of(spec.storage), ").");
      }
      if (auto error = check_quantised(spec, *tensor, *sources[i].scales)) return *error;
      dtype = packed_dtype(spec.storage);
    }
    auto& constant = constants[i];
    constant = {spec.layout,
                *dtype,
                static_cast<size_t>(spec.shape[0]),
                static_cast<size_t>(spec.layout == Layout::vector ? 1 : spec.shape[1]),
                spec.group,
                {},
                {}};
    sources[i].tensor = tensor;
    constant.bytes = {static_cast<const std::byte*>(nullptr), bytes_needed(spec, constant.matrix())};
  }

  Packed packed;
  size_t total = 0;
  for (const auto& constant : constants) total += constant.bytes.size();
  const bool keep = cache != nullptr && total >= kept_bytes;
  if (keep) {
    auto found = read_packed(*cache, constants, pool);
    if (found) {
      packed.constants = std::move(constants);
      return packed;
    }
    packed.note = found.error().message;
  }
  for (size_t i = 0; i < specs.size(); ++i) {
    if (!sources[i].tensor) continue;
    sources[i].memory = std::make_shared<SealedMemory>(constants[i].bytes.size());
    constants[i].bytes = {sources[i].memory->memory().data(), constants[i].bytes.size()};
    constants[i].owner = sources[i].memory;
  }

  std::vector<std::optional<Error>> errors(specs.size());
  pool.parallel_for(specs.size(), [&](size_t i) {
    const auto& [tensor, scales, memory] = sources[i];
    if (!tensor) return;
    if (scales) {
      errors[i] = pack_quantised(specs[i], *tensor, *scales, constants[i].matrix(), memory->memory().data());
    } else {
      errors[i] = check_finite(*tensor, constants[i].dtype);
      if (!errors[i]) fill(specs[i], *tensor, constants[i].dtype, memory->memory());
    }
    memory->seal();
  });
  for (const auto& error : errors) {
    if (error) return *error;
  }
  if (keep) write_packed(*cache, constants);
  packed.constants = std::move(constants);
  return packed;
}

}  // namespace continuo
