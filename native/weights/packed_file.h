// A cache of packed weights on disk, beside the model's file. A process that maps the cache need not pack the weights,
// and all processes share its pages. A cache that does not match exactly is written again.
//
//   0   "CNTPACK1"                                        all numbers little-endian
//   8   u64   number of constants
//   16  64 bytes: the key, sha256 in hex of the weights and of how the graph uses them
//   80  per constant 7 × u64: layout + 256 · dtype, outputs, inputs, group, offset, bytes, checksum of its bytes
//   …   u64   checksum of all bytes before this one
//   …         the bytes of the constants, each from a multiple of 64
//
// The checksums are those of base/checksum.h.
#pragma once

#include <span>

#include "weights/weights.h"

namespace continuo {

// Fills in bytes and owner of every constant from the cache, where each entry matches the other fields of its constant.
// Otherwise changes nothing: the message is empty where there is no file, and says else why the file is not used.
Status read_packed(const PackCache& cache, std::span<Constant> constants, ThreadPool& pool);

// Writes the cache, whole or not at all. Where it cannot be written there is none, which is no error.
void write_packed(const PackCache& cache, std::span<const Constant> constants);

}  // namespace continuo
