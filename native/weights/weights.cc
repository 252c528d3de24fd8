#include "weights/weights.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <unordered_map>

#include "base/cast.h"
#include "base/memory.h"
#include "weights/block_packing.h"
#include "weights/map.h"
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
  return spec.extents.empty() ? spec.shape : spec.extents;
}

size_t inputs_of(const ConstantSpec& spec) {
  return spec.layout == Layout::vector ? 1 : static_cast<size_t>(spec.shape[1]);
}

// Numbers in one row of the tensor as a view sees it; 0 where the tensor has no rows of the constant's width.
uint64_t row_length(const ConstantSpec& spec, const Tensor& tensor) {
  if (spec.layout == Layout::vector) return 1;
  uint64_t length = 1;
  for (auto extent = tensor.shape.rbegin(); extent != tensor.shape.rend(); ++extent) {
    length *= *extent;
    if (spec.columns ? length > 1 : length == inputs_of(spec)) return length;
  }
  return 0;
}

bool fits_view(const ConstantSpec& spec, const Tensor& tensor) {
  const uint64_t length = row_length(spec, tensor);
  if (length == 0 || tensor.elements() == 0) return false;
  const uint64_t rows = tensor.elements() / length;
  const auto inside = [](const View& view, uint64_t extent, uint64_t wanted) {
    if (!view) return extent == wanted;
    const auto count = view.count(), end = view.end();
    return count && end && *count == wanted && *end <= extent;
  };
  return inside(spec.view, rows, spec.shape[0]) && inside(spec.columns, length, inputs_of(spec));
}

// Whether the tensor fits the spec. Elements are read in row-major order, so extents of 1 do not matter.
bool fits(const ConstantSpec& spec, const Tensor& tensor) {
  if (spec.view || spec.columns) return fits_view(spec, tensor);
  if (spec.row >= 0) {
    return tensor.shape.size() >= 2 && static_cast<uint64_t>(spec.row) < tensor.shape[0] &&
           tensor.elements() / tensor.shape[0] == spec.shape[0];
  }
  if (spec.layout == Layout::vector && spec.extents.empty()) return tensor.elements() == spec.shape[0];
  return squeezed(tensor.shape) == squeezed(wanted_shape(spec));
}

bool is_f8(const Tensor& tensor) { return tensor.dtype == "F8_E4M3"; }

// The block format of a tensor of a GGUF file; null for plain numbers.
const BlockFormat* blocks_of(const Tensor& tensor) {
  const auto* format = block_format(tensor.dtype);
  return format && format->widen ? format : nullptr;
}

// How the kernels read a plain tensor: F8_E4M3 as f16, F64 (rounded once) as f32. Blocks are multiplied as they are
// where the kernels have a dtype for it and the file has whole rows of the matrix; else they are widened to f32. None
// for a dtype that the kernels do not read.
std::optional<PackedAs> kept_as(const ConstantSpec& spec, const Tensor& tensor) {
  if (is_f8(tensor)) return PackedAs{Dtype::f16, 0};
  if (const auto* format = blocks_of(tensor)) {
    const bool rows = spec.layout == Layout::packed && !spec.transposed && !spec.columns;
    const auto packed =
        rows && !tensor.shape.empty() && tensor.shape.back() == spec.shape[1] ? packed_as(*format) : std::nullopt;
    return packed.value_or(PackedAs{Dtype::f32, 0});
  }
  if (tensor.dtype == "F64") return PackedAs{Dtype::f32, 0};
  const auto dtype = tensor.number_format();
  if (!dtype) return std::nullopt;
  return PackedAs{*dtype, 0};
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

// Calls use(place), where place(n, k) is the element of the tensor that is number k of row n of the constant.
template <class Use> auto with_places(const ConstantSpec& spec, const Tensor& tensor, const Use& use) {
  const size_t inputs = inputs_of(spec);
  if (spec.view || spec.columns) {
    const auto in_order = [](const View& view, size_t extent) {
      std::vector<size_t> places(extent);
      std::iota(places.begin(), places.end(), size_t{0});
      return view ? view.order() : places;
    };
    const auto rows = in_order(spec.view, spec.shape[0]), columns = in_order(spec.columns, inputs);
    const auto length = static_cast<size_t>(row_length(spec, tensor));
    return use([&](size_t n, size_t k) { return rows[n] * length + columns[k]; });
  }
  if (spec.transposed) return use([outputs = spec.shape[0]](size_t n, size_t k) { return k * outputs + n; });
  const size_t first = spec.row > 0 ? static_cast<size_t>(spec.row) * spec.shape[0] : 0;
  return use([=](size_t n, size_t k) { return first + n * inputs + k; });
}

float number_of(uint32_t bits, Dtype) { return std::bit_cast<float>(bits); }
float number_of(uint16_t bits, Dtype dtype) { return dtype == Dtype::f16 ? widen_f16(bits) : widen_bf16(bits); }

// As `fill`, of rows that lie in the tensor as they are: a square of 64 × 64 numbers at a time, which stays in the
// first cache while it is turned. False where a number is not finite.
template <class Bits, class Place>
bool fill_whole(const ConstantSpec& spec, const Tensor& tensor, Dtype dtype, const Place& place, Bits* out) {
  const size_t rows = spec.shape[0], inputs = inputs_of(spec);
  const Type type = dtype == Dtype::f32 ? Type::f32 : dtype == Dtype::f16 ? Type::f16 : Type::bf16;
  const auto finite = [&](const Bits* bits, size_t count) {
    return first_not_finite(reinterpret_cast<const std::byte*>(bits), type, count) == count;
  };
  const auto row = [&](size_t n) { return tensor.data.data() + place(n, 0) * sizeof(Bits); };
  if (spec.layout == Layout::rows) {
    for (size_t n = 0; n < rows; ++n) {
      Bits* to = out + n * inputs;
      std::memcpy(to, row(n), inputs * sizeof(Bits));
      if (!finite(to, inputs)) return false;
    }
    return true;
  }
  for (size_t first = 0; first < rows; first += tile_lanes) {
    const size_t lanes = std::min(tile_lanes, rows - first);
    Bits* tile = out + first * inputs;
    for (size_t k = 0; k < inputs; k += tile_lanes) {
      const size_t count = std::min(tile_lanes, inputs - k);
      for (size_t lane = 0; lane < lanes; ++lane) {
        Bits piece[tile_lanes];
        std::memcpy(piece, row(first + lane) + k * sizeof(Bits), count * sizeof(Bits));
        for (size_t i = 0; i < count; ++i) tile[(k + i) * tile_lanes + lane] = piece[i];
        if (!finite(piece, count)) return false;
      }
    }
  }
  return true;
}

// Whether the rows of a constant lie in its tensor as the kernels read numbers, each in one piece.
bool has_whole_rows(const ConstantSpec& spec, const Tensor& tensor) {
  return spec.layout != Layout::vector && !spec.transposed && !spec.columns && !is_f8(tensor) && !blocks_of(tensor) &&
         tensor.dtype != "F64";
}

// Fills `out` with the constant; refuses numbers that are not finite.
std::optional<Error> fill(const ConstantSpec& spec, const Tensor& tensor, Dtype dtype, std::byte* to) {
  const size_t rows = spec.shape[0], inputs = inputs_of(spec);
  return with_bits(tensor, [&](auto&& element) {
    return with_places(spec, tensor, [&](const auto& place) -> std::optional<Error> {
      using Bits = decltype(element(0));
      auto* out = reinterpret_cast<Bits*>(to);
      auto* numbers = reinterpret_cast<float*>(to);
      // What is not finite is looked for anew below, for its message.
      if (has_whole_rows(spec, tensor) && fill_whole(spec, tensor, dtype, place, out)) return std::nullopt;
      for (size_t n = 0; n < rows; ++n) {
        Bits* lane = out + n / tile_lanes * inputs * tile_lanes + n % tile_lanes;
        for (size_t k = 0; k < inputs; ++k) {
          const size_t at = place(n, k);
          const Bits bits = element(at);
          float value = number_of(bits, dtype);
          if (spec.layout == Layout::vector) numbers[n] = value = mapped(spec.map, value);
          if (spec.layout == Layout::rows) out[n * inputs + k] = bits;
          if (spec.layout == Layout::packed) lane[k * tile_lanes] = bits;
          if (std::isfinite(value)) continue;
          return invalid(
              "tensor \"", tensor.name, "\" holds ", std::isnan(value) ? "NaN" : "an infinity", " at element ", at,
              ", expected finite numbers. The model is damaged or its training diverged: use another checkpoint.");
        }
      }
      return std::nullopt;
    });
  });
}

// The specs of a constant's members: of a stack one for each of its matrices, else the spec itself.
std::vector<ConstantSpec> members_of(const ConstantSpec& spec) {
  if (spec.layout != Layout::stack) return {spec};
  const uint64_t outputs = spec.shape[1];
  const bool named = spec.tensor.find("{e}") != std::string::npos;
  std::vector<ConstantSpec> members;
  for (uint64_t e = 0; e < spec.shape[0]; ++e) {
    const auto filled = [&](std::string name) {
      const auto at = name.find("{e}");
      return at == std::string::npos ? name : name.replace(at, 3, std::to_string(e));
    };
    ConstantSpec member = spec;
    member.layout = Layout::packed;
    member.shape = {outputs, spec.shape[2]};
    member.tensor = filled(spec.tensor);
    member.scales = filled(spec.scales);
    if (spec.view)
      member.view = spec.view.of(e);
    else if (!named)
      member.view = {e * outputs, 1, 0, 0, {{0, outputs, 1}}};
    members.push_back(std::move(member));
  }
  return members;
}

size_t bytes_needed(const ConstantSpec& spec, const PackedMatrix& m) {
  switch (spec.layout) {
    case Layout::packed:
    case Layout::stack: return m.tiles() * m.tile_bytes();
    case Layout::rows: return m.outputs * m.inputs * size_of(m.dtype);
    case Layout::vector: return m.outputs * sizeof(float);
    case Layout::experts: break;
  }
  return 0;
}

// One matrix, table or vector to read, and its checked tensors.
struct Source {
  size_t constant;  // index into specs
  size_t member;    // of a stack: number of the matrix
  ConstantSpec spec;
  const Tensor* tensor = nullptr;
  const Tensor* scales = nullptr;  // storages other than plain
};

using Tensors = std::unordered_map<std::string_view, const Tensor*>;

// Finds and checks the tensors of a source. Returns how the kernels read them.
Result<PackedAs> find_tensors(Source& source, const Tensors& by_name) {
  const auto find = [&](const std::string& name) {
    const auto found = by_name.find(name);
    return found == by_name.end() ? nullptr : found->second;
  };
  const auto& spec = source.spec;
  const Tensor* tensor = source.tensor = find(spec.tensor);
  if (!tensor)
    return invalid("tensor \"", spec.tensor, "\" is missing from the model's files, expected shape ",
                   shape_text(wanted_shape(spec)), ".");
  if (spec.storage != Storage::plain) {
    source.scales = find(spec.scales);
    if (!source.scales) {
      return invalid("tensor \"", spec.scales, "\" is missing from the model's files, expected the scales of \"",
                     spec.tensor, "\" (", name_of(spec.storage), ").");
    }
    if (auto error = check_quantised(spec, *tensor, *source.scales)) return *error;
    return PackedAs{packed_dtype(spec.storage), spec.group};
  }
  const auto kept = kept_as(spec, *tensor);
  if (!kept)
    return invalid("tensor \"", spec.tensor, "\" is stored as ", tensor->dtype,
                   ", expected F32, F16, BF16, F64, F8_E4M3 or a block format of GGUF: convert the model.");
  if (!fits(spec, *tensor)) {
    return invalid("tensor \"", spec.tensor, "\" has shape ", shape_text(tensor->shape),
                   spec.view || spec.columns ? ", which lacks rows or columns of \"" : ", expected ",
                   spec.view || spec.columns ? spec.name + "\"" : "", shape_text(wanted_shape(spec)), ".");
  }
  return *kept;
}

// The rows of the tensor that are those of a matrix, in order.
std::vector<size_t> rows_of(const ConstantSpec& spec) {
  if (spec.view) return spec.view.order();
  std::vector<size_t> rows(spec.shape[0]);
  std::iota(rows.begin(), rows.end(), size_t{0});
  return rows;
}

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

size_t packed_bytes(std::span<const Constant> constants) {
  size_t total = 0;
  for (const auto& constant : constants) total += constant.bytes.size();
  return total;
}

Result<Packed> pack_weights(std::span<const ConstantSpec> specs, const std::vector<Tensor>& tensors, ThreadPool& pool,
                            const PackCache* cache) {
  Tensors by_name;
  for (const auto& tensor : tensors) by_name.emplace(tensor.name, &tensor);

  std::vector<Constant> constants(specs.size());
  std::vector<Source> sources;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].tensor.empty()) continue;
    auto& constant = constants[i];
    const auto members = members_of(specs[i]);
    for (size_t e = 0; e < members.size(); ++e) {
      Source source{i, e, members[e]};
      const auto kept = find_tensors(source, by_name);
      if (!kept) return kept.error();
      if (e > 0 && kept->dtype != constant.dtype)
        return invalid("tensor \"", source.spec.tensor, "\" is stored as ", source.tensor->dtype,
                       ", expected the dtype of \"", members[0].tensor, "\": all matrices of \"", specs[i].name,
                       "\" have one.");
      if (e == 0) {
        constant = {specs[i].layout, kept->dtype, source.spec.shape[0], inputs_of(source.spec), kept->group, {}, {},
                    members.size()};
        const size_t bytes = bytes_needed(source.spec, constant.matrix()) * members.size();
        constant.bytes = {static_cast<const std::byte*>(nullptr), bytes};
      }
      sources.push_back(std::move(source));
    }
  }

  Packed packed;
  if (cache != nullptr) {
    auto mapped = PackedFile::open(*cache, constants, pool);
    if (mapped) {
      packed.file = std::move(*mapped);
      packed.constants = std::move(constants);
      return packed;
    }
    packed.note = mapped.error().message;
  }
  std::vector<std::shared_ptr<SealedMemory>> memories(specs.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].tensor.empty()) continue;
    memories[i] = std::make_shared<SealedMemory>(constants[i].bytes.size());
    constants[i].bytes = {memories[i]->data(), constants[i].bytes.size()};
    constants[i].owner = memories[i];
  }

  std::vector<std::optional<Error>> errors(sources.size());
  pool.parallel_for(sources.size(), [&](size_t s) {
    const auto& [i, member, spec, tensor, scales] = sources[s];
    const auto& constant = constants[i];
    std::byte* to = memories[i]->data() + constant.bytes.size() / constant.members * member;
    if (scales)
      errors[s] = pack_quantised(spec, *tensor, *scales, constant.matrix(member), to);
    else if (is_quantised(constant.dtype))
      errors[s] = pack_blocks(*tensor, rows_of(spec), constant.matrix(member), to);
    else
      errors[s] = fill(spec, *tensor, constant.dtype, to);
  });
  for (auto& memory : memories) {
    if (memory) memory->seal();
  }
  for (const auto& error : errors) {
    if (error) return *error;
  }
  packed.constants = std::move(constants);
  return packed;
}

}  // namespace continuo
