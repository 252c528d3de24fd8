// Reads a safetensors file and trusts nothing in it. Byte layout (all little-endian):
//   u64 n             length of the header, at most 25 000 000
//   n bytes           JSON: { "<tensor>": { "dtype", "shape", "data_offsets": [begin, end] },
//                             "__metadata__"?: {string: string} }
//   the rest          tensor data; offsets count from here
// Refused: offsets past the end, tensors that overlap or leave gaps, lengths that disagree with dtype × shape, unknown
// dtypes, a name given twice, sizes that overflow.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "weights/tensor.h"

namespace continuo {

// The tensors of a file, in the order of their data. `bytes`, the content of the file, must outlive them; `file` is its
// name, for messages.
Result<std::vector<Tensor>> read_safetensors(std::span<const std::byte> bytes,
                                             std::string_view file = "model.safetensors");

}  // namespace continuo
