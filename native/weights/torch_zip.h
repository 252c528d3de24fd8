// Reads the file of tensors that torch.save writes (.pth, .pt, pytorch_model.bin): a zip archive (PKWARE
// APPNOTE 6.3.10, with zip64) whose entries are stored, not compressed:
//   NAME/data.pkl     a dict of names and tensors (pickle.h)
//   NAME/data/KEY     the numbers of a storage, little-endian
//   NAME/byteorder    "little"; absent: little
// Other entries mean nothing. Trusts nothing: every offset is checked against the file.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "weights/tensor.h"

namespace continuo {

// The tensors of a file, in the order of their data. Tensors may share numbers, but all of them together must not have
// more than four times the bytes of the file. `bytes`, the content of the file, must outlive them; `file` is its name,
// for messages.
Result<std::vector<Tensor>> read_torch_zip(std::span<const std::byte> bytes, std::string_view file);

// Whether the file begins as those do that torch.save wrote before version 1.6, which are no archives.
bool is_old_torch(std::span<const std::byte> bytes);

}  // namespace continuo
