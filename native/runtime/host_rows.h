// Rows of a context's rings as the host reads them: where they lie, or, on a device with memory of its own, in copies.
#pragma once

#include <map>
#include <vector>

#include "runtime/context.h"

namespace continuo {

class HostRows {
 public:
  // The context is pinned, and no ring changes, while the rows are read.
  explicit HostRows(Context& context) : context_(context) {}

  // Brings positions first … last − 1 of a ring, of which it has as many places; of all outer parts.
  void bring(Name ring, size_t first, size_t last);
  // Writes positions of a ring that are its newest ones, [outer, last − first, inner].
  void put(Name ring, size_t first, size_t last, std::span<const std::byte> rows);
  // [inner] of a position that was brought last.
  const std::byte* at(Name ring, size_t outer, size_t position) const;
  // A table that is no ring and does not grow.
  const std::byte* table(Name name);

 private:
  struct Copy {
    size_t first = 0, last = 0;
    std::vector<std::byte> rows;  // [outer, last − first, inner]
  };

  // Calls visit(outer, at, end) for positions at … end − 1 that lie side by side.
  void each_piece(Name ring, size_t first, size_t last, const auto& visit) const;

  Context& context_;
  std::map<Name, Copy> copies_;
};

}  // namespace continuo
