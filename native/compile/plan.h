// Where each value of a block lives while the block runs: one arena, in which values that are never alive together may
// lie over each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace continuo {

// A value is alive from the moment `first` to the moment `last`, both included.
struct Lifetime {
  size_t bytes;
  size_t first;
  size_t last;
};

struct Plan {
  std::vector<size_t> offsets;  // per value
  size_t bytes = 0;             // of the arena: the peak

  // Without `reuse` every value has bytes of its own, to tell a planning fault from a wrong kernel.
  static Plan make(std::span<const Lifetime> values, bool reuse = true);
};

}  // namespace continuo
