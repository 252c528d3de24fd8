// Where each value of a block lives while the block runs. Values that are never alive together share a slot.
#pragma once

#include <cstddef>
#include <vector>

#include "graph.h"

namespace continuo {

struct Plan {
  static constexpr size_t none = static_cast<size_t>(-1);

  // Per declaration: its slot, or none. A slot holds rows × width floats; offsets count floats per row.
  std::vector<size_t> slot_of;
  std::vector<size_t> widths;  // per slot

  // `kept` stay alive to the end of the block. Without `reuse` every value has a slot of its own, to tell a planning fault
  // from a wrong kernel.
  static Plan make(const Graph& graph, const Block& block, const std::vector<Name>& kept, bool reuse = true);
};

}  // namespace continuo
