// A file of an expert store: the experts of one layer (docs/experts.md). All numbers are little-endian. What is read
// while a model runs begins at a multiple of 4096 and is padded with zeros to one, so that it can be read past the page
// cache.
//
//   0    "CNTNEXP1"
//   8    u32 each: version 1, bytes of header and index (a multiple of 4096), layer, experts, channels, inner, group,
//   coding 40   u64 each: bytes of a record with padding, without; number of deltas; bytes of the file; 0 80   32
//   bytes: the source digest of the layer; 8 zeros 120  u64: checksum of header and index, itself taken as 0
//   (base/checksum.h) 128  for each expert u64 each: offset, bytes, checksum of its record without padding; 0 …    for
//   each delta, by (a, b): u32 a < b, u64 offset, bytes, checksum (delta.h) …    the records, then the deltas
//
// The source digest of a layer is the sha256 over experts ascending, of each gate, up, down, of each the codes as the
// source has them, then the scales.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "experts/record.h"

namespace continuo::experts {

constexpr size_t page = 4096;

struct RecordEntry {
  uint64_t offset, bytes, checksum, zero;
};
static_assert(sizeof(RecordEntry) == 32);

struct DeltaEntry {
  uint32_t a, b;
  uint64_t offset, bytes, checksum;
};
static_assert(sizeof(DeltaEntry) == 32);

struct StoreIndex {
  ExpertShape shape;
  uint32_t layer = 0;
  Digest digest = {};
  std::vector<RecordEntry> records;
  std::vector<DeltaEntry> deltas;

  size_t index_bytes() const;
  size_t record_bytes() const;  // with padding
  uint64_t file_bytes() const;
};

inline uint64_t padded(uint64_t bytes) { return (bytes + page - 1) / page * page; }

// Where the experts of a torus of a · b have neighbours: pairs one step apart, wrapping, the lower expert first, in
// order.
std::vector<std::pair<uint32_t, uint32_t>> neighbours(uint32_t columns, uint32_t rows);

// Header and index, padded. Offsets follow from the lengths: they are filled in here.
std::vector<std::byte> encode_index(StoreIndex& index);

// Reads header and index of the file at `path`, and refuses a file whose numbers do not fit each other or its length.
// `fd` is open for reading. Messages name the file.
Result<StoreIndex> read_index(int fd, const std::string& path);

// Reads all of `out` from `offset` on; a sentence with file, offset and the system's reason where that fails.
Status read_exactly(int fd, const std::string& path, uint64_t offset, std::span<std::byte> out);

}  // namespace continuo::experts
