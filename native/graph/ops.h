// What each operation takes and gives: one table, used to check a graph before it runs.
#pragma once

#include <optional>
#include <string_view>

#include "graph/graph.h"

namespace continuo {

struct OpRule {
  Op op;
  std::string_view name;
  size_t inputs;     // where `more_inputs`: at least
  bool output;       // writes a volatile
  bool grouped;      // needs "groups"
  bool has_eps;      // needs "eps"
  bool stateful;     // needs "state"
  bool elementwise;  // element i of the output needs no other element of an input: it may lie over one
};

// Takes as many inputs as its form asks for; check_node() counts them.
constexpr bool more_inputs(Op op) {
  return op == Op::cache_attend || op == Op::cache_memory || op == Op::cache_memory_first;
}

const OpRule* find_op(std::string_view name);
const OpRule& rule_of(Op op);

struct RowShape {
  std::vector<uint64_t> extents;
  Type type = Type::f32;
};

// Checks kinds, layouts, types and shapes of the operands of a node that is no loop, branch or return, and gives what
// it writes. The message names node and variable.
Result<RowShape> check_node(const Graph& graph, const Node& node);

}  // namespace continuo
