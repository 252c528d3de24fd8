// What a disk gives by itself: records read at random past the page cache, as many pieces at once as the cache of
// experts reads. A measure to hold the cache against.
#pragma once

#include <cstdint>
#include <string>

#include "experts/disk.h"

namespace continuo::experts {

struct ReadRate {
  uint64_t bytes = 0;
  double seconds = 0;
  bool direct = false;  // past the page cache
};

// Reads `reads` records, chosen at random, of a layer's file, `depth` pieces at once. `one`: a record begins when the
// one before it has ended, as where a token must have an expert before it is known which the next one is.
Result<ReadRate> measure_reads(const std::string& path, size_t reads, size_t depth, bool one, Backend backend);

// Drops the file's pages from the page cache, as far as the system does.
void drop_pages(const std::string& path);

}  // namespace continuo::experts
