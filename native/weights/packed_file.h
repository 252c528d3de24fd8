// A file of packed weights. A process that maps it need not pack the weights, and all processes share its pages. The
// layout (packed_matrix.h) is one for all instruction sets and devices, so a file serves every machine.
//
//   0    "CNTPACK2"                                       all numbers little-endian
//   8    u64   number of constants
//   16   4 × 64 hex digits, sha256 each (src/engine/packed.ts says of what):
//        key          what the graph makes of the weights
//        seal         by what the files are known that they were packed from
//        head         the text that the model's fingerprint begins with
//        fingerprint  of the model
//   272  per constant 7 × u64: layout + 256 · dtype, outputs, inputs, group, offset, bytes, checksum of its bytes
//   …    u64   checksum of all bytes before this one
//   …          the bytes of the constants, each from a multiple of 64
//
// The checksums are those of base/checksum.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weights/mapped_file.h"
#include "weights/weights.h"

namespace continuo {

// What the file says of itself; none where there is no file of this version whose head is whole.
std::optional<PackedName> read_packed_name(const std::string& path);

// A mapped file of packed weights, of which every byte was checked once.
class PackedFile {
 public:
  // Fills in bytes and owner of every constant from the file, where each entry matches the other fields of its constant
  // and all checksums are right. Otherwise changes nothing: the message says why the file is not used.
  static Result<std::shared_ptr<const PackedFile>> open(const PackCache& cache, std::span<Constant> constants,
                                                        ThreadPool& pool);

  // Whether all bytes still have their checksums.
  bool intact() const;

 private:
  struct Part {
    std::span<const std::byte> bytes;
    uint64_t checksum;
  };
  PackedFile(MappedFile file, std::vector<Part> parts) : file_(std::move(file)), parts_(std::move(parts)) {}

  MappedFile file_;
  std::vector<Part> parts_;
};

// Writes a file whole, or leaves what is at `path` as it is. One process writes at a time: the others leave it to that
// one and do nothing. Returns the bytes of the file; the message says why it cannot be written.
Result<uint64_t> write_packed(const std::string& path, const PackedName& name, std::span<const Constant> constants);

}  // namespace continuo
