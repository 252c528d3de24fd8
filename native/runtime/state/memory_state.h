// Rules that the integer tables of an external memory keep, so that the controller can use their entries as indices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "runtime/model/model.h"

namespace continuo {

// Whether a state from outside is one that the controller could have left (docs/infinite-context.md, section 4): block
// numbers in lists, spans of tombstones, offsets of anchors, members of topics. `counters` [slices]; `tables` [slices]:
// where the state has each table, with as many positions as its counter says. INVALID names the persistent that cannot
// be. For a model with an external memory.
Status check_memory_state(const Model& model, std::span<const int64_t> counters,
                          std::span<const std::byte* const> tables);

}  // namespace continuo
