#include "plan.h"

#include <algorithm>

namespace continuo {

Plan Plan::make(const Graph& graph, const Block& block, const std::vector<Name>& kept, bool reuse) {
  Plan plan;
  plan.slot_of.assign(graph.declarations.size(), none);
  std::vector<size_t> last_use(graph.declarations.size(), 0);
  for (size_t i = 0; i < block.nodes.size(); ++i) {
    for (const Name input : block.nodes[i].in) last_use[input] = i;
    last_use[block.nodes[i].out] = std::max(last_use[block.nodes[i].out], i);
  }
  for (const Name name : kept) last_use[name] = block.nodes.size();

  std::vector<size_t> free;
  const auto take = [&](Name name) {
    const size_t width = graph.width(name);
    // The tightest free slot that is wide enough.
    auto best = free.end();
    for (auto it = free.begin(); it != free.end(); ++it) {
      if (plan.widths[*it] >= width && (best == free.end() || plan.widths[*it] < plan.widths[*best])) best = it;
    }
    if (best != free.end()) {
      plan.slot_of[name] = *best;
      free.erase(best);
    } else {
      plan.slot_of[name] = plan.widths.size();
      plan.widths.push_back(width);
    }
  };

  if (!graph.declarations[block.input].integer) take(block.input);
  for (size_t i = 0; i < block.nodes.size(); ++i) {
    const auto& node = block.nodes[i];
    // The output gets its slot before the inputs give theirs back: no kernel works in place.
    take(node.out);
    if (!reuse) continue;
    std::vector<Name> touched = node.in;
    touched.push_back(node.out);
    std::sort(touched.begin(), touched.end());
    touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
    for (const Name name : touched) {
      if (plan.slot_of[name] != none && last_use[name] == i) free.push_back(plan.slot_of[name]);
    }
  }
  return plan;
}

}  // namespace continuo
