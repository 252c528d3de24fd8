#pragma once

#include <cstdint>

#include "binding/values.h"

namespace continuo::binding {

// Which positions of each persistent that grows, and places of each ring: arrays of numbers, one for each persistent; a
// `to` of −1: up to its counter, or all places.
inline std::vector<Positions> positions_of(const Context& context, const Napi::Value& first_ones,
                                           const Napi::Value& last_ones) {
  const auto& model = context.model();
  const auto from = first_ones.As<Napi::Array>(), to = last_ones.As<Napi::Array>();
  std::vector<Positions> rows(model.layout.size());
  for (uint32_t i = 0; i < rows.size(); ++i) {
    const auto& slice = model.layout[i];
    if (slice.follows() == no_name) continue;
    const int64_t positions = slice.grows() ? context.counter(slice.counter) : static_cast<int64_t>(slice.places);
    const int64_t first = from.Get(i).ToNumber().Int64Value(), end = to.Get(i).ToNumber().Int64Value();
    const int64_t last = end < 0 ? positions : end;
    if (first < 0 || last < first || last > positions)
      throw error_value(from.Env(),
                        invalid("the part has positions ", first, " to ", last, " of \"",
                                model.graph.declarations[slice.name].name, "\", which has ", positions, "."));
    rows[i] = {static_cast<size_t>(first), static_cast<size_t>(last)};
  }
  return rows;
}

}  // namespace continuo::binding
