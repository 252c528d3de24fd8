// Plan: the place of each value of a block in one arena. Values whose lifetimes do not overlap may share bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace continuo {

// A value is alive from moment `first` to moment `last`, both included. A moment is a line of Program::code.
struct Lifetime {
  size_t bytes;  // of one row
  size_t first;
  size_t last;
};

// Makes the lines `first` to `last` one moment: a value that is alive at one of them is alive at all of them. For lines
// that a device runs at the same time.
void join_lines(std::span<Lifetime> values, size_t first, size_t last);

struct Plan {
  std::vector<size_t> offsets;  // [values], bytes for one row
  size_t bytes = 0;             // of the arena for one row

  // Without `reuse` every value has bytes of its own: a result that changes then points to the plan, not to a kernel.
  static Plan make(std::span<const Lifetime> values, bool reuse = true);
};

}  // namespace continuo
