// Reads the pickle of tensors that torch.save writes (data.pkl of a torch file; Python's pickle protocol 2, PEP 307 and
// Lib/pickletools.py) with a stack machine that knows nothing but tensors:
//   values     EMPTY_DICT EMPTY_TUPLE EMPTY_LIST NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE
//   structure  PROTO MARK TUPLE TUPLE1 TUPLE2 TUPLE3 SETITEM SETITEMS APPEND APPENDS STOP
//   memo       BINPUT LONG_BINPUT BINGET LONG_BINGET
//   objects    GLOBAL BINPERSID REDUCE BUILD, the last of which is dropped
// and these globals: torch._utils._rebuild_tensor_v2, torch._utils._rebuild_parameter, collections.OrderedDict and
// torch.{BFloat16,Half,Float,Double,Long,Int,Short,Char,Byte,Bool}Storage. Every other opcode and global is refused by
// name, so nothing is executed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace continuo {

// A dense row-major view of a storage.
struct PickledTensor {
  std::string name;
  const char* dtype;            // F32, F16, BF16, F64; of buffers I64, I32, I16, I8, U8, BOOL
  size_t number_bytes;          // of one number
  std::string storage;          // its key: the entry NAME/data/KEY of the file
  uint64_t storage_elements;    // numbers of the whole storage
  uint64_t offset;              // numbers before the first
  std::vector<uint64_t> shape;  // offset and elements lie inside the storage
};

constexpr size_t max_pickle_bytes = 25'000'000;
constexpr size_t max_pickle_values = size_t{1} << 20;  // some 50,000 tensors

// The members of the dict that the pickle holds, in its order. `file`: its name, for messages.
Result<std::vector<PickledTensor>> read_pickle(std::span<const std::byte> bytes, std::string_view file);

}  // namespace continuo
