#include "graph/graph.h"

#include <algorithm>

#include "graph/ops.h"

namespace continuo {

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::constant: return "constant";
    case Kind::dynamic: return "dynamic";
    case Kind::persistent: return "persistent";
    case Kind::volatile_: return "volatile";
  }
  return "unknown";
}

std::string operand_text(const Graph& graph, const Operand& operand) {
  std::string out = graph.declarations[operand.name].name;
  for (size_t i = 0; i < operand.at.size(); ++i) {
    const auto& term = operand.at[i];
    out += i == 0 ? "(" : ",";
    if (term.kind == Term::Kind::number) {
      out += std::to_string(term.offset);
      continue;
    }
    out += term.kind == Term::Kind::index ? graph.indices[term.id].name : graph.declarations[term.id].name;
    if (term.offset > 0) out += "+";
    if (term.offset != 0) out += std::to_string(term.offset);
  }
  return operand.at.empty() ? out : out + ")";
}

namespace {

bool any_reads_subwords(const std::vector<Node>& nodes) {
  return std::any_of(nodes.begin(), nodes.end(), [](const Node& node) {
    return reads_subwords(node) || any_reads_subwords(node.body) || any_reads_subwords(node.otherwise);
  });
}

}  // namespace

bool reads_subwords(const Graph& graph) {
  return std::any_of(graph.blocks.begin(), graph.blocks.end(),
                     [](const Block& block) { return any_reads_subwords(block.nodes); });
}

std::string node_text(const Graph& graph, const Node& node) {
  std::string out(traits_of(node.op).name);
  if (node.out != no_name) return text(out, " \"", graph.declarations[node.out].name, "\"");
  return node.state ? text(out, " \"", operand_text(graph, *node.state), "\"") : out;
}

}  // namespace continuo
