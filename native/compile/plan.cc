#include "compile/plan.h"

#include <algorithm>
#include <numeric>

namespace continuo {

void join_lines(std::span<Lifetime> values, size_t first, size_t last) {
  for (auto& life : values) {
    if (life.first > first && life.first <= last) life.first = first;
    if (life.last >= first && life.last < last) life.last = last;
  }
}

Plan Plan::make(std::span<const Lifetime> values, bool reuse) {
  Plan plan;
  plan.offsets.resize(values.size());
  if (!reuse) {
    for (size_t i = 0; i < values.size(); ++i) {
      plan.offsets[i] = plan.bytes;
      plan.bytes += values[i].bytes;
    }
    return plan;
  }
  // The largest value first; each value goes into the lowest gap between the placed values that are alive with it.
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a].bytes > values[b].bytes; });
  std::vector<size_t> placed;  // in order of their offsets
  for (const size_t i : order) {
    size_t at = 0;
    for (const size_t other : placed) {
      if (values[other].last < values[i].first || values[i].last < values[other].first) continue;
      if (plan.offsets[other] >= at + values[i].bytes) break;
      at = std::max(at, plan.offsets[other] + values[other].bytes);
    }
    plan.offsets[i] = at;
    plan.bytes = std::max(plan.bytes, at + values[i].bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), i,
                                   [&](size_t a, size_t b) { return plan.offsets[a] < plan.offsets[b]; }),
                  i);
  }
  return plan;
}

}  // namespace continuo
