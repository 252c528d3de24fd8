#include "weights/quantised.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "weights/block_packing.h"

namespace continuo {

namespace {

constexpr int8_t no_code = std::numeric_limits<int8_t>::min();

struct Coding {
  const char* dtype;
  uint64_t per_byte;     // numbers in one byte of the file
  const char* expected;  // the valid bytes, for messages
};

Coding coding_of(Storage storage) {
  switch (storage) {
    case Storage::i4: return {"U8", 2, "two nibbles"};
    case Storage::ternary2: return {"U8", 4, "codes 0, 1 and 2 of two bits"};
    case Storage::ternary3: return {"U8", 5, "at most 242"};
    case Storage::plain:
    case Storage::q8: break;
  }
  return {"I8", 1, "-127 to 127"};
}

uint64_t parts(uint64_t n, uint64_t of) { return (n + of - 1) / of; }

// Number i of a byte; no_code where the byte is invalid.
int8_t decode(Storage storage, uint8_t byte, uint64_t i) {
  constexpr uint8_t powers[5] = {1, 3, 9, 27, 81};
  switch (storage) {
    case Storage::i4: return static_cast<int8_t>((i == 0 ? byte & 15 : byte >> 4) - 8);
    case Storage::ternary2: {
      const int code = byte >> (2 * i) & 3;
      return code == 3 ? no_code : static_cast<int8_t>(code - 1);
    }
    case Storage::ternary3: return byte > 242 ? no_code : static_cast<int8_t>(byte / powers[i] % 3 - 1);
    case Storage::plain:
    case Storage::q8: break;
  }
  return static_cast<int8_t>(byte);  // −128, which is invalid in q8, equals no_code
}

// Decodes row n of the file into `row` [K]. False at an invalid byte; `bad` is its index then.
bool decode_row(Storage storage, const std::byte* data, size_t inputs, int8_t* row, size_t& bad) {
  const size_t per_byte = coding_of(storage).per_byte;
  for (size_t k = 0; k < inputs; ++k) {
    row[k] = decode(storage, std::to_integer<uint8_t>(data[k / per_byte]), k % per_byte);
    if (row[k] == no_code) {
      bad = k / per_byte;
      return false;
    }
  }
  return true;
}

}  // namespace

Dtype packed_dtype(Storage storage) {
  switch (storage) {
    case Storage::i4: return Dtype::q4;
    case Storage::ternary2:
    case Storage::ternary3: return Dtype::ternary;
    case Storage::plain:
    case Storage::q8: break;
  }
  return Dtype::q8;
}

std::optional<Error> check_quantised(const ConstantSpec& spec, const Tensor& codes, const Tensor& scales) {
  const Coding coding = coding_of(spec.storage);
  if (spec.layout != Layout::packed || spec.transposed || spec.shape.size() != 2) {
    return invalid("constant \"", spec.name, "\" is stored as ", name_of(spec.storage),
                   ", which only a matrix [outputs, inputs] of the layout packed can be.");
  }
  if (spec.group != 32 && spec.group != 64) {
    return invalid("constant \"", spec.name, "\" has groups of ", spec.group,
                   " inputs, expected 32 or 64: quantise the model with one of these.");
  }
  if (spec.columns)
    return invalid("constant \"", spec.name, "\" reorders inputs of a matrix stored as ", name_of(spec.storage),
                   ", whose groups would come apart.");
  const auto inside = [&](const Tensor& tensor) {
    const auto count = spec.view.count(), end = spec.view.end();
    return count == spec.shape[0] && end && *end <= tensor.elements() / std::max<uint64_t>(1, tensor.shape.back());
  };
  const std::vector<uint64_t> shape{spec.shape[0], parts(spec.shape[1], coding.per_byte)},
      scale_shape{spec.shape[0], parts(spec.shape[1], spec.group)};
  const auto check = [&](const Tensor& tensor, const char* dtype,
                         const std::vector<uint64_t>& expected) -> std::optional<Error> {
    if (tensor.dtype != dtype) {
      return invalid("tensor \"", tensor.name, "\" is stored as ", tensor.dtype, ", expected ", dtype, " for ",
                     name_of(spec.storage), " weights: convert the model again.");
    }
    const bool fits = !spec.view ? tensor.shape == expected
                                 : !tensor.shape.empty() && tensor.shape.back() == expected[1] && inside(tensor);
    if (!fits) {
      return invalid("tensor \"", tensor.name, "\" has shape ", shape_text(tensor.shape), ", expected ",
                     shape_text(expected), " for ", name_of(spec.storage), " weights ", shape_text(spec.shape),
                     " in groups of ", spec.group, ".");
    }
    return std::nullopt;
  };
  if (auto error = check(codes, coding.dtype, shape)) return error;
  return check(scales, "F16", scale_shape);
}

std::optional<Error> pack_quantised(const ConstantSpec& spec, const Tensor& codes, const Tensor& scales,
                                    const PackedMatrix& m, std::byte* out) {
  const Coding coding = coding_of(spec.storage);
  const size_t row_bytes = parts(m.inputs, coding.per_byte), groups = m.groups(), padded = groups * m.group;
  std::vector<int8_t> row(padded, 0);  // zero past the last input and the last output
  const auto order = spec.view.order();
  for (size_t n = 0; n < m.tiles() * tile_lanes; ++n) {
    const bool exists = n < m.outputs;
    const size_t from = exists && spec.view ? order[n] : n;  // row of the tensors
    size_t bad = 0;
    if (!exists)
      std::fill(row.begin(), row.end(), int8_t{0});
    else if (!decode_row(spec.storage, codes.data.data() + from * row_bytes, m.inputs, row.data(), bad)) {
      const auto byte = std::to_integer<int>(codes.data[from * row_bytes + bad]);
      return invalid("tensor \"", codes.name, "\" holds ", spec.storage == Storage::q8 ? byte - 256 : byte,
                     " at element ", from * row_bytes + bad, ", expected ", coding.expected, " for ",
                     name_of(spec.storage), " weights. The model is damaged: convert it again.");
    }
    for (size_t g = 0; g < groups; ++g) {
      std::byte* group = out + (n / tile_lanes * groups + g) * m.group_bytes();
      put_codes(m.dtype, group, n % tile_lanes, row.data() + g * m.group, m.group);
      uint16_t scale = 0;
      if (exists) std::memcpy(&scale, scales.data.data() + (from * groups + g) * 2, 2);
      if (!std::isfinite(widen_f16(scale))) {
        return invalid("tensor \"", scales.name, "\" holds ", std::isnan(widen_f16(scale)) ? "NaN" : "an infinity",
                       " at element ", from * groups + g,
                       ", expected finite numbers. The model is damaged: convert it again.");
      }
      std::memcpy(group + m.group_bytes() - PackedMatrix::scales_bytes + n % tile_lanes * 2, &scale, 2);
    }
  }
  return std::nullopt;
}

}  // namespace continuo
