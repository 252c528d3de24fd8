// Packed weights on disk, beside the model they were made from: mapped, they need no packing and are shared by all
// processes that use the model. It is a cache: made anew whenever it is not exactly what is wanted.
//
//   0   "CNTPACK1"                                        all numbers little-endian
//   8   u64   how many constants
//   16  64 bytes: the key, sha256 in hex of what the weights are and how the graph wants them
//   80  per constant 7 × u64: layout + 256 · dtype, outputs, inputs, group, offset, bytes, checksum of its bytes
//   …   u64   checksum of everything before it
//   …         the constants' bytes, each from a multiple of 64
//
// The checksum folds eight-byte words into four sums, word i into sum i mod 4, s = rotl((s xor w) · 0x9E3779B97F4A7C15,
// 29) from s = i, a last incomplete word padded with zeros; then the four sums and the length into one.
#pragma once

#include <span>

#include "weights/weights.h"

namespace continuo {

// Fills in bytes and owner of every constant, whose other fields and sizes say what is wanted. Otherwise changes
// nothing; the message is empty where there is no file, and else says why the file is not used.
Status read_packed(const PackCache& cache, std::span<Constant> constants, ThreadPool& pool);

// Writes the file, whole or not at all. Where the folder cannot be written there is no file, and nothing is said.
void write_packed(const PackCache& cache, std::span<const Constant> constants);

}  // namespace continuo
