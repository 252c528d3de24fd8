#include "graph/check.h"

#include <algorithm>
#include <unordered_set>

#include "graph/ops.h"
#include "weights/safetensors.h"

namespace continuo {

namespace {

class BlockChecker {
 public:
  BlockChecker(const Graph& graph, Block& block) : graph_(graph), block_(block) {}

  Status check(std::unordered_set<Name>& ever_written, std::unordered_set<Name>& states) {
    ever_written_ = &ever_written;
    states_ = &states;
    Known known{block_.inputs.begin(), block_.inputs.end()};
    bool ended = false;
    if (!nodes(block_.nodes, known, ended)) return *error_;
    if (!ended) return invalid("graph: block \"", block_.name, "\" does not end with a return.");
    return Done{};
  }

 private:
  using Known = std::unordered_set<Name>;

  template <class... Parts> bool fail(const Parts&... parts) {
    if (!error_) error_ = invalid("graph: block \"", block_.name, "\": ", parts...);
    return false;
  }

  // `known`: names that are written on every path through the list. `ended`: every path through the list returns.
  bool nodes(const std::vector<Node>& list, Known& known, bool& ended) {
    for (const auto& node : list) {
      if (ended) return fail("node ", node_text(graph_, node), " stands after a return and would never run.");
      const bool good = node.op == Op::loop      ? loop(node, known)
                        : node.op == Op::branch  ? branch(node, known, ended)
                        : node.op == Op::return_ ? results(node, known, ended)
                                                 : op(node, known);
      if (!good) return false;
    }
    return true;
  }

  bool loop(const Node& node, Known& known) {
    const std::string& name = graph_.indices[node.index].name;
    if (!open_.insert(node.index).second) return fail("a loop over \"", name, "\" stands inside another one.");
    // A turn may read a name that an earlier turn wrote. The compiler, which unrolls loops, refuses it where none did.
    bool ended = false;
    Known inside = known;
    written_in(node.body, inside);
    if (!nodes(node.body, inside, ended)) return false;
    if (ended) return fail("the loop over \"", name, "\" returns in its first turn.");
    // A loop without turns writes nothing.
    if (node.to > node.from) known = std::move(inside);
    open_.erase(node.index);
    return true;
  }

  static void written_in(const std::vector<Node>& list, Known& out) {
    for (const auto& node : list) {
      if (node.out != no_name) out.insert(node.out);
      written_in(node.body, out);
      written_in(node.otherwise, out);
    }
  }

  bool branch(const Node& node, Known& known, bool& ended) {
    if (node.index != no_name) {
      const Index looped = node.within ? graph_.indices[node.index].of : node.index;
      if (!open_.contains(looped))
        return fail("a branch on \"", graph_.indices[node.index].name, "\" stands outside the loop over ",
                    node.within ? text("\"", graph_.indices[looped].name, "\".") : "it.");
      if (node.within && open_.contains(node.index))
        return fail("a branch on \"", graph_.indices[node.index].name, "\" stands where it has a value already.");
    } else {
      const auto& condition = graph_.declarations[node.in[0].name];
      if (!use(node, node.in[0], known)) return false;
      if (condition.type != Type::boolean || condition.elements() != 1 || !node.in[0].at.empty())
        return fail("the branch on \"", condition.name, "\" needs one bool a row.");
    }
    Known then = known, otherwise = known;
    bool then_ended = false, otherwise_ended = false;
    if (node.within) open_.insert(node.index);
    if (!nodes(node.body, then, then_ended)) return false;
    if (node.within) open_.erase(node.index);
    if (!nodes(node.otherwise, otherwise, otherwise_ended)) return false;
    ended = then_ended && otherwise_ended;
    if (then_ended) {
      known = std::move(otherwise);
    } else if (otherwise_ended) {
      known = std::move(then);
    } else {
      known.clear();
      for (const Name name : then) {
        if (otherwise.contains(name)) known.insert(name);
      }
    }
    return true;
  }

  bool results(const Node& node, const Known& known, bool& ended) {
    ended = true;
    for (const auto& [role, name] : node.results) {
      const auto& d = graph_.declarations[name];
      if (d.kind != Kind::volatile_)
        return fail("\"", d.name, "\" is returned as ", role, " but is ", name_of(d.kind), ", expected volatile.");
      if (d.volatile_table())
        return fail("\"", d.name, "\" is returned as ", role,
                    " but is a volatile table: return what cache.read reads of it.");
      if (!known.contains(name)) return fail("\"", d.name, "\" is returned as ", role, " before anything wrote it.");
    }
    if (returned_ && block_.results != node.results) return fail("its returns name different results.");
    returned_ = true;
    block_.results = node.results;
    return true;
  }

  bool use(const Node& node, const Operand& operand, const Known& known) {
    const auto& d = graph_.declarations[operand.name];
    const bool row = (d.kind == Kind::volatile_ && !d.volatile_table()) || d.kind == Kind::dynamic;
    if (row && !known.contains(operand.name))
      return fail("node ", node_text(graph_, node), " uses \"", d.name, "\" before anything wrote it.");
    for (const auto& term : operand.at) {
      if (term.kind == Term::Kind::index && !open_.contains(term.id)) {
        return fail("node ", node_text(graph_, node), " uses the index \"", graph_.indices[term.id].name,
                    "\" outside the loop over it.");
      }
      if (term.kind == Term::Kind::value && !known.contains(term.id)) {
        return fail("node ", node_text(graph_, node), " uses \"", graph_.declarations[term.id].name,
                    "\" before anything wrote it.");
      }
    }
    return true;
  }

  bool op(const Node& node, Known& known) {
    if (node.state && node.op == Op::cache_write && graph_.declarations[node.state->name].kind != Kind::persistent &&
        !graph_.declarations[node.state->name].volatile_table()) {
      const auto& d = graph_.declarations[node.state->name];
      return fail("node ", node_text(graph_, node), " writes ", name_of(d.kind), " \"", d.name,
                  "\"; cache operations write persistents and volatile tables only.");
    }
    for (const auto& input : node.in) {
      if (!use(node, input, known)) return false;
    }
    if (node.state && !use(node, *node.state, known)) return false;
    const bool written = node.out != no_name;
    if (written && graph_.declarations[node.out].kind != Kind::volatile_) {
      const auto& d = graph_.declarations[node.out];
      return fail("node ", node_text(graph_, node), " writes ", name_of(d.kind), " \"", d.name,
                  "\"; a node's out is volatile",
                  d.kind == Kind::persistent ? ", and persistents are written by cache operations." : ".");
    }
    if (written && graph_.declarations[node.out].volatile_table())
      return fail("node ", node_text(graph_, node), " writes \"", graph_.declarations[node.out].name,
                  "\", which is a volatile table: cache.write writes it.");
    auto shape = check_node(graph_, node);
    if (!shape) {
      error_ = shape.error();
      return false;
    }
    if (node.state) states_->insert(node.state->name);
    for (const auto& input : node.in) states_->insert(input.name);
    for (const auto* operand : operands(node)) {
      for (const auto& term : operand->at) {
        if (term.kind == Term::Kind::counter) states_->insert(term.id);
      }
    }
    if (!written) return true;
    const auto& out = graph_.declarations[node.out];
    if (shape->extents != out.shape || shape->type != out.type) {
      return fail("node ", node_text(graph_, node), " gives ", name_of(shape->type), " ", shape_text(shape->extents),
                  ", but \"", out.name, "\" is declared ", name_of(out.type), " ", shape_text(out.shape), ".");
    }
    known.insert(node.out);
    ever_written_->insert(node.out);
    return true;
  }

  static std::vector<const Operand*> operands(const Node& node) {
    std::vector<const Operand*> out;
    for (const auto& input : node.in) out.push_back(&input);
    if (node.state) out.push_back(&*node.state);
    return out;
  }

  const Graph& graph_;
  Block& block_;
  std::unordered_set<Name>* ever_written_ = nullptr;
  std::unordered_set<Name>* states_ = nullptr;
  std::unordered_set<Index> open_;
  bool returned_ = false;
  std::optional<Error> error_;
};

const Name* role_of(const Block& block, std::string_view role) {
  for (const auto& [name, value] : block.results) {
    if (name == role) return &value;
  }
  return nullptr;
}

void each_node(const std::vector<Node>& nodes, const auto& visit) {
  for (const auto& node : nodes) {
    visit(node);
    each_node(node.body, visit);
    each_node(node.otherwise, visit);
  }
}

// Checks the blocks "step" and "predict", where the graph has them: such a graph can read and generate tokens.
Status find_language_model(Graph& graph) {
  const auto block_named = [&](std::string_view name) {
    return static_cast<size_t>(
        std::find_if(graph.blocks.begin(), graph.blocks.end(), [&](const Block& block) { return block.name == name; }) -
        graph.blocks.begin());
  };
  LanguageModel model;
  model.step = block_named("step");
  model.predict = block_named("predict");
  if (model.step == graph.blocks.size() || model.predict == graph.blocks.size()) return Done{};
  const auto& step = graph.blocks[model.step];
  const auto& predict = graph.blocks[model.predict];
  const auto* hidden = role_of(step, "hidden");
  const auto* previous = role_of(step, "previous");
  const auto* logits = role_of(predict, "logits");
  if (!hidden || !previous || !logits) return Done{};
  model.hidden = *hidden;
  model.previous = *previous;
  model.logits = *logits;
  const auto* inner = role_of(step, "inner");
  model.inner = inner ? *inner : model.hidden;
  for (const auto& node : step.nodes) {
    if (node.op != Op::cache_shift || !node.state->at.empty()) continue;
    if (node.out == model.previous && node.in[0].name == model.hidden) model.last = node.state->name;
    if (inner && node.in[0].name == model.inner) model.inner_last = node.state->name;
  }
  if (model.last == no_name)
    return invalid("graph: \"previous\" must be the cache.shift of \"hidden\", with a persistent of its own.");
  if (!inner) model.inner_last = model.last;
  const auto& read = graph.declarations[model.inner];
  if (model.inner_last == no_name || read.type != Type::f32 || read.shape.size() != 1)
    return invalid("graph: \"inner\" must be a vector of f32 that a cache.shift puts into a persistent of its own.");
  const auto one = [&](const Block& block) -> const Declaration* {
    return block.inputs.size() == 1 ? &graph.declarations[block.inputs[0]] : nullptr;
  };
  const auto* token = one(step);
  if (!token || token->type != Type::i32 || token->elements() != 1)
    return invalid("graph: block \"step\" of a language model takes one input, the i32 token id.");
  const auto* input = one(predict);
  if (!input || input->type != Type::f32 || input->shape != graph.declarations[model.hidden].shape) {
    return invalid("graph: block \"predict\" of a language model takes one input, with the shape of \"hidden\".");
  }
  graph.language = model;
  std::optional<Error> problem;
  each_node(predict.nodes, [&](const Node& node) {
    const bool touches = traits_of(node.op).state != State::none;
    if (touches && !problem)
      problem = invalid("graph: node ", node_text(graph, node),
                        ": block \"predict\" of a language model must not touch persistent memory.");
  });
  // A token id may be any index of the logits, so an embedding table has at least as many rows as there are logits.
  each_node(step.nodes, [&](const Node& node) {
    if (node.op != Op::embed || node.in[0].name != step.inputs[0]) return;
    const auto rows = graph.declarations[node.in[1].name].shape[0];
    if (rows < graph.vocabulary() && !problem) {
      problem = invalid("graph: node ", node_text(graph, node), " looks ids up in a table of ", rows,
                        " rows, but there are ", graph.vocabulary(), " logits.");
    }
  });
  if (problem) return *problem;
  return Done{};
}

}  // namespace

Status check_graph(Graph& graph) {
  std::unordered_set<Name> written, states;
  for (auto& block : graph.blocks) {
    if (auto good = BlockChecker(graph, block).check(written, states); !good) return good;
  }
  for (const auto& d : graph.declarations) {
    for (const auto& axis : d.axes) {
      if (axis.counter != no_name) states.insert(axis.counter);
    }
  }
  for (const auto& block : graph.blocks) {
    each_node(block.nodes, [&](const Node& node) {
      if (uses_clock(node)) states.insert(graph.clock);
    });
  }
  for (const Name name : states) {
    const auto& d = graph.declarations[name];
    if (d.kind == Kind::persistent && d.block != Declaration::most_block)
      return invalid("graph: persistent \"", d.name, "\" has blocks of ", d.block,
                     " positions, and a node uses it; nodes read blocks of ", Declaration::most_block, ".");
  }
  // The memory controller uses all others.
  for (Name name = 0; name < graph.declarations.size() && !graph.memory; ++name) {
    const auto& d = graph.declarations[name];
    // What is recalled and bound is no op's.
    if (graph.perspective && (name == graph.perspective->banks || name == graph.perspective->through)) continue;
    if (d.kind == Kind::persistent && !states.contains(name))
      return invalid("graph: persistent \"", d.name, "\" is used by no node.");
  }
  for (size_t i = 0; i < graph.blocks.size(); ++i) {
    if (graph.blocks[i].name != "first") continue;
    if (!graph.blocks[i].inputs.empty())
      return invalid("graph: block \"first\" runs when the model is loaded and takes no inputs.");
    std::optional<Error> problem;
    each_node(graph.blocks[i].nodes, [&](const Node& node) {
      const bool moves = traits_of(node.op).state == State::counts;
      if (moves && !problem)
        problem = invalid("graph: node ", node_text(graph, node),
                          ": block \"first\" moves no counters; a context begins with all of them at 0.");
    });
    if (problem) return *problem;
    graph.first = i;
  }
  for (size_t i = 0; i < graph.blocks.size(); ++i) {
    if (graph.blocks[i].name != "again") continue;
    std::optional<Error> problem;
    each_node(graph.blocks[i].nodes, [&](const Node& node) {
      const State state = traits_of(node.op).state;
      if (state != State::none && state != State::reads && !problem)
        problem = invalid("graph: node ", node_text(graph, node),
                          ": block \"again\" reads what the last token left, and writes nothing.");
    });
    if (problem) return *problem;
    graph.again = i;
  }
  if (auto good = find_language_model(graph); !good) return good;
  if (graph.memory && !graph.language) return invalid("graph: only a language model has a memory.");
  if (graph.memory && graph.width(graph.memory->names.topic_sum) != graph.width(graph.language->inner))
    return invalid(
        "graph: \"topic.sum\" of the memory needs the width of what block \"step\" returns as its hidden vector, ",
        graph.width(graph.language->inner), ".");
  return Done{};
}

}  // namespace continuo
