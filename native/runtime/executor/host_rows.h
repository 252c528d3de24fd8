// Rows of a context's rings as the host reads them: where they lie, or, on a device with memory of its own, in copies.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "runtime/state/context.h"

namespace continuo {

struct Run;

class HostRows {
 public:
  // The context is pinned, and no ring changes, while the rows are read.
  explicit HostRows(Context& context) : context_(&context) {}

  // Positions first … last − 1 of a ring, of which it has as many places; of all outer parts.
  struct Wanted {
    HostRows* rows;
    Name ring;
    size_t first, last;
  };
  // Brings them, those of contexts of one model with one download. Of rings of which some are not there yet, all that
  // was brought before is dropped.
  static void bring(std::span<const Wanted> wanted);
  void bring(Name ring, size_t first, size_t last);
  // Writes positions of a ring that are its newest ones, [outer, last − first, inner].
  void put(Name ring, size_t first, size_t last, std::span<const std::byte> rows);
  // [inner] of a position that was brought.
  const std::byte* at(Name ring, size_t outer, size_t position) const;
  // A table that is no ring and does not grow.
  const std::byte* table(Name name);

 private:
  struct Copy {
    Name ring;
    size_t first, last;
    // [outer, last − first, inner], from `offset` on. Copies of one download share its bytes.
    std::shared_ptr<const std::byte[]> bytes;
    size_t offset;
  };

  // Calls visit(outer, at, end) for positions at … end − 1 that lie side by side.
  void each_piece(Name ring, size_t first, size_t last, const auto& visit) const;
  bool has(Name ring, size_t first, size_t last) const;
  void drop(Name ring);

  Context* context_;
  std::vector<Copy> copies_;
  std::map<Name, std::vector<std::byte>> tables_;
};

// After a step: of each of its contexts what the step's tokens asked and what they gave to tombstones, of all contexts
// with one download. They are contexts of a model with an external memory. [runs]
std::vector<HostRows> bring_asked(std::span<const Run> runs);

}  // namespace continuo
