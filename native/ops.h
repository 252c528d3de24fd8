// What each operation takes and gives: one table, used to check a graph before it runs.
#pragma once

#include <optional>
#include <string_view>

#include "graph.h"

namespace continuo {

struct OpRule {
  Op op;
  std::string_view name;
  size_t inputs;
  bool grouped;   // needs "groups"
  bool has_eps;   // needs "eps"
  bool stateful;  // needs "state"
};

const OpRule* find_op(std::string_view name);
const OpRule& rule_of(Op op);

// Checks operand kinds, layouts and shapes of one node and gives its output shape.
Result<std::vector<uint64_t>> check_node(const Graph& graph, const Node& node);

}  // namespace continuo
