// Packs the experts of one layer into a file of a store, and checks such a file whole.
#pragma once

#include <cstdint>

#include "base/threads.h"
#include "experts/store.h"

namespace continuo::experts {

// Of the pairs of neighbours: the share of trits that differ. Only of ternary3.
struct Shares {
  double mean = 0, least = 0, most = 0;
};

struct LayerReport {
  uint32_t layer = 0;
  ExpertShape shape;
  uint64_t file_bytes = 0, record_bytes = 0, payload_bytes = 0;
  size_t experts = 0, pairs = 0, deltas = 0;
  uint64_t bytes_of_deltas = 0;  // without padding
  Shares trits;
  std::string digest;  // 64 hex digits
};

// Writes a new file at `path`, and syncs it. `torus`: columns and rows; 0, 0: none, and so no deltas. Holds the records
// of the layer in memory. A source that is damaged is INVALID, with the expert; a file that cannot be written
// UNAVAILABLE.
Result<LayerReport> pack_layer(const std::string& path, uint32_t layer, const ExpertShape& shape,
                               std::pair<uint32_t, uint32_t> torus, std::span<const ExpertSource> experts,
                               ThreadPool& pool);

// Reads all of the file: each record by its checksum, the source digest of what it unpacks to, each delta in both
// directions. Holds the records of the layer in memory. The first fault is REFUSED, with file and expert.
Result<LayerReport> check_layer(const std::string& path, ThreadPool& pool);

}  // namespace continuo::experts
