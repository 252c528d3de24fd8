// The blocks of a graph: their nodes, loops, branches and operands.
#include <algorithm>

#include "graph/node_attributes.h"
#include "graph/ops.h"
#include "graph/reader.h"

namespace continuo {

bool Reader::operand(const std::string& user, const Value& item, Operand& out) {
  if (!item.is_string()) return fail(user, " has an operand that is no string.");
  const std::string& source = item.text;
  const size_t open = std::min(source.find('('), source.size());
  const auto found = names_.find(source.substr(0, open));
  if (found == names_.end()) return fail(user, " uses \"", source.substr(0, open), "\", which is not declared.");
  out.name = found->second;
  if (open == source.size()) return true;
  if (source.back() != ')') return fail(user, ": the operand \"", source, "\" lacks its closing bracket.");
  for (size_t at = open + 1; at < source.size();) {
    const size_t end = std::min(source.find(',', at), source.size() - 1);
    Term term;
    if (!read_term(user, source.substr(at, end - at), term)) return false;
    out.at.push_back(term);
    at = end + 1;
  }
  return true;
}

bool Reader::read_term(const std::string& user, const std::string& source, Term& term) {
  if (const auto n = whole_number(source); n && *n >= 0) {
    term.offset = *n;
    return true;
  }
  // A name may contain a minus sign, so the whole text is tried as a name first.
  const auto named = [&](const std::string& name) {
    if (const auto index = index_names_.find(name); index != index_names_.end()) {
      term.kind = Term::Kind::index;
      term.id = index->second;
      return true;
    }
    const auto found = names_.find(name);
    if (found == names_.end()) return false;
    term.kind = graph_.declarations[found->second].counter ? Term::Kind::counter : Term::Kind::value;
    term.id = found->second;
    return true;
  };
  if (named(source)) return true;
  const size_t sign = source.find_last_of("+-");
  if (sign != std::string::npos && sign > 0 && named(source.substr(0, sign))) {
    const auto n = whole_number(std::string_view(source).substr(sign + (source[sign] == '+' ? 1 : 0)));
    if (n) {
      term.offset = *n;
      return true;
    }
  }
  return fail(user, ": \"", source, "\" is no number, index, counter or value to pick a member by.");
}

bool Reader::blocks() {
  const auto* list = root_.list_of("blocks");
  if (!list || list->empty()) return fail("blocks are missing.");
  for (const auto& item : *list) {
    Block block;
    const auto* name = item.text_of("name");
    const auto* inputs = item.list_of("inputs");
    const auto* nodes = item.list_of("nodes");
    if (!name || name->empty()) return fail("a block lacks its name.");
    for (const auto& other : graph_.blocks) {
      if (other.name == *name) return fail("block \"", *name, "\" is there twice.");
    }
    block.name = *name;
    if (!inputs || !nodes) return fail("block \"", *name, "\" lacks its inputs or nodes.");
    for (const auto& input : *inputs) {
      Operand in;
      if (!operand(text("block \"", *name, "\""), input, in)) return false;
      if (graph_.declarations[in.name].kind != Kind::dynamic)
        return fail("block \"", *name, "\": its input \"", input.text, "\" must be dynamic.");
      block.inputs.push_back(in.name);
    }
    if (!read_nodes(*nodes, block.nodes)) return false;
    graph_.blocks.push_back(std::move(block));
  }
  return true;
}

bool Reader::read_nodes(const std::vector<Value>& list, std::vector<Node>& out) {
  for (const auto& item : list) {
    Node node;
    const bool good = item.find("loop")     ? read_loop(item, node)
                      : item.find("branch") ? read_branch(item, node)
                      : item.find("return") ? read_return(item, node)
                                            : read_op(item, node);
    if (!good) return false;
    out.push_back(std::move(node));
  }
  return true;
}

bool Reader::read_loop(const Value& item, Node& node) {
  node.op = Op::loop;
  const auto* over = item.text_of("loop");
  const auto found = over ? index_names_.find(*over) : index_names_.end();
  if (found == index_names_.end()) return fail("a loop runs over \"", over ? *over : "", "\", which is no index.");
  node.index = found->second;
  const uint64_t extent = graph_.indices[node.index].extent;
  const std::string user = text("the loop over \"", *over, "\"");
  const auto* nodes = item.list_of("nodes");
  if (!nodes) return fail(user, " has no nodes.");
  return number(item, "from", user, 0, extent, node.from, 0) &&
         number(item, "to", user, node.from, extent, node.to, extent) && read_nodes(*nodes, node.body);
}

bool Reader::read_branch(const Value& item, Node& node) {
  node.op = Op::branch;
  const auto* when = item.text_of("branch");
  if (!when) return fail("a branch lacks its condition.");
  const std::string user = text("the branch on \"", *when, "\"");
  if (const auto found = index_names_.find(*when); found != index_names_.end()) {
    node.index = found->second;
    node.within = !item.find("equals") && graph_.indices[node.index].of != no_name;
    uint64_t equals = 0;
    if (!node.within && !number(item, "equals", user, 0, max_extent, equals)) return false;
    node.number = static_cast<int64_t>(equals);
  } else {
    Operand condition;
    if (!operand(user, *item.find("branch"), condition)) return false;
    node.in.push_back(std::move(condition));
  }
  const auto* then = item.list_of("nodes");
  const auto* otherwise = item.list_of("otherwise");
  if (!then) return fail(user, " has no nodes to run.");
  return read_nodes(*then, node.body) && (!otherwise || read_nodes(*otherwise, node.otherwise));
}

bool Reader::read_return(const Value& item, Node& node) {
  node.op = Op::return_;
  const auto* results = item.find("return");
  if (!results->is_object()) return fail("a return names its results as { role: name }.");
  for (const auto& [role, value] : results->members) {
    Operand result;
    if (!operand(text("return of \"", role, "\""), value, result)) return false;
    if (!result.at.empty()) return fail("return of \"", role, "\": expected a plain name.");
    node.results.emplace_back(role, result.name);
  }
  return true;
}

bool Reader::read_op(const Value& item, Node& node) {
  const auto* op = item.text_of("op");
  if (!op) return fail("a node has no op.");
  const auto* traits = find_op(*op);
  if (!traits) return fail("there is no op \"", *op, "\".");
  node.op = traits->op;
  std::string user = text("node ", *op);
  const auto* out = item.text_of("out");
  if (out) user += text(" \"", *out, "\"");
  if (traits->out != (out != nullptr))
    return fail(user, traits->out ? " needs an out." : " has an out, which it cannot write.");
  if (out) {
    const auto found = names_.find(*out);
    if (found == names_.end()) return fail(user, " writes \"", *out, "\", which is not declared.");
    node.out = found->second;
  }
  const auto* in = item.list_of("in");
  const size_t wanted = traits->inputs();
  if (!in && wanted > 0) return fail(user, " has no inputs.");
  if (in) {
    for (const auto& input : *in) {
      if (!operand(user, input, node.in.emplace_back())) return false;
    }
  }
  const bool literal = traits->has(attribute::value) && item.find("value") != nullptr;
  const size_t count = node.in.size() + (literal ? 1 : 0);
  if (traits->more ? count < wanted : count != wanted)
    return fail(user, " has ", node.in.size(), " inputs, expected ", traits->more ? "at least " : "", wanted, ".");
  if (traits->named_state) {
    const auto* state = item.find("state");
    if (!state) return fail(user, " needs a state.");
    if (!operand(user, *state, node.state.emplace())) return false;
  }
  if (const auto good = read_attributes(item, *traits, user, literal, node); !good) {
    error_ = good.error();
    return false;
  }
  return true;
}

}  // namespace continuo
