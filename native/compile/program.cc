#include "compile/program.h"

#include <algorithm>
#include <limits>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "compile/arrange.h"
#include "graph/ops.h"

namespace continuo {

namespace {

// The most values and lines of an unrolled block: far more than any model has, and few enough to plan within seconds.
constexpr size_t max_values = size_t{1} << 16;

class Compiler {
 public:
  Compiler(const Graph& graph, const Block& block, const ConstantIndex& constants)
      : graph_(graph), block_(block), constants_(constants), current_(graph.declarations.size(), no_name) {}

  Result<Program> compile() {
    size_t returns = 0;
    find_shared(block_.nodes, false, returns);
    if (returns > 1) {
      for (const auto& [role, name] : block_.results) shared_.insert(name);
    }
    for (const Name input : block_.inputs) program_.inputs.push_back(define(input));
    bool ended = false;
    emit(block_.nodes, program_.code, ended);
    if (error_) return *error_;
    for (const auto& [role, name] : block_.results) {
      if (current_[name] == no_name)
        return invalid("graph: block \"", block_.name, "\" returns \"", graph_.declarations[name].name,
                       "\", which nothing wrote.");
      program_.results.emplace_back(role, current_[name]);
    }
    program_.last_value = current_;
    count();
    arrange(graph_, dynamic_counters_, most_rows(), program_);
    return std::move(program_);
  }

 private:
  template <class... Parts> void fail(const Parts&... parts) {
    if (!error_) error_ = invalid("graph: ", parts...);
  }

  // Of one context in a step: where there is an external memory, a step ends with a block of tokens.
  uint64_t most_rows() const {
    const bool ends = graph_.memory && &block_ == &graph_.blocks[graph_.language->step];
    return ends ? graph_.memory->block : std::numeric_limits<uint64_t>::max();
  }

  // A name that is written under a condition keeps one value for all its writes, so that readers find the number there
  // whichever arm ran.
  void find_shared(const std::vector<Node>& nodes, bool conditional, size_t& returns) {
    for (const auto& node : nodes) {
      if (node.op == Op::return_) ++returns;
      if (conditional && node.out != no_name) shared_.insert(node.out);
      const bool inside = conditional || (node.op == Op::branch && node.index == no_name);
      find_shared(node.body, inside, returns);
      find_shared(node.otherwise, inside, returns);
    }
  }

  uint32_t define(Name name) {
    const auto& d = graph_.declarations[name];
    const bool shared = shared_.contains(name);
    if (shared && current_[name] != no_name) return current_[name];
    const size_t bytes = static_cast<size_t>(d.elements()) * size_of(d.type);
    program_.widest = std::max(program_.widest, bytes);
    if (program_.values.size() == max_values)
      fail("block \"", block_.name, "\" unrolls to more than ", max_values, " values.");
    program_.values.push_back({name, bytes, shared});
    return current_[name] = static_cast<uint32_t>(program_.values.size() - 1);
  }

  void emit(const std::vector<Node>& nodes, std::vector<Instruction>& out, bool& ended) {
    for (const auto& node : nodes) {
      if (ended || error_) return;
      switch (node.op) {
        case Op::loop:
          for (uint64_t turn = node.from; turn < node.to && !ended && !error_; ++turn) {
            turns_.emplace_back(node.index, turn);
            emit(node.body, out, ended);
            turns_.pop_back();
          }
          break;
        case Op::branch: branch(node, out, ended); break;
        case Op::return_:
          ended = true;
          if (conditional_ > 0) out.push_back({&node, turns_, {}, no_name, {}, {}, {}});
          break;
        default: out.push_back(op(node)); break;
      }
    }
  }

  void branch(const Node& node, std::vector<Instruction>& out, bool& ended) {
    if (node.within) return within(node, out, ended);
    if (node.index != no_name)
      return emit(turn_of(node.index) == static_cast<uint64_t>(node.number) ? node.body : node.otherwise, out, ended);
    Instruction instruction{&node, turns_, {}, no_name, {}, {}, {}};
    instruction.in.push_back({false, written(node, node.in[0].name)});
    ++conditional_;
    bool then_ended = false, otherwise_ended = false;
    emit(node.body, instruction.then, then_ended);
    emit(node.otherwise, instruction.otherwise, otherwise_ended);
    --conditional_;
    // Code after a branch of which one arm returned runs for rows of the other arm. After two that returned none runs.
    ended = then_ended && otherwise_ended;
    out.push_back(std::move(instruction));
  }

  // A branch that is taken where an index has one of the values that a part of it numbers.
  void within(const Node& node, std::vector<Instruction>& out, bool& ended) {
    const auto& index = graph_.indices[node.index];
    const uint64_t value = turn_of(index.of);
    const auto found = std::lower_bound(index.at.begin(), index.at.end(), value);
    if (found == index.at.end() || *found != value) return emit(node.otherwise, out, ended);
    turns_.emplace_back(node.index, static_cast<uint64_t>(found - index.at.begin()));
    emit(node.body, out, ended);
    turns_.pop_back();
  }

  uint32_t written(const Node& node, Name name) {
    if (current_[name] == no_name) {
      fail("node ", instruction_text(graph_, {&node, turns_, {}, no_name, {}, {}, {}}), " uses \"",
           graph_.declarations[name].name, "\" before anything wrote it.");
      return 0;
    }
    return current_[name];
  }

  uint64_t turn_of(Index index) const {
    for (const auto& [i, turn] : turns_) {
      if (i == index) return turn;
    }
    return 0;
  }

  Instruction op(const Node& node) {
    if (++lines_ > max_values) fail("block \"", block_.name, "\" unrolls to more than ", max_values, " nodes.");
    Instruction out{&node, turns_, {}, no_name, {}, {}, {}};
    for (const auto& operand : node.in) {
      const auto& d = graph_.declarations[operand.name];
      if (d.kind == Kind::persistent)
        out.places.push_back(place(node, operand));
      else if (d.kind == Kind::constant)
        out.in.push_back({true, constant(node, operand)});
      else
        out.in.push_back({false, written(node, operand.name)});
    }
    if (node.state) out.places.push_back(place(node, *node.state));
    if (node.out == no_name) return out;
    out.out = define(node.out);
    const bool same =
        std::any_of(out.in.begin(), out.in.end(), [&](const Argument& a) { return !a.constant && a.id == out.out; });
    if (same && !traits_of(node.op).elementwise)
      fail("node ", node_text(graph_, node),
           " reads what it overwrites, and a branch gives that value one place in memory; write to another name.");
    return out;
  }

  uint32_t constant(const Node& node, const Operand& operand) {
    const auto& d = graph_.declarations[operand.name];
    if (d.over == no_name) return constants_.of(operand.name, 0);
    const auto& term = operand.at[0];
    const int64_t member = term.offset + (term.kind == Term::Kind::index ? static_cast<int64_t>(turn_of(term.id)) : 0);
    const auto extent = static_cast<int64_t>(graph_.indices[d.over].extent);
    if (member < static_cast<int64_t>(d.from) || member >= extent) {
      fail("node ", node_text(graph_, node), " uses \"", operand_text(graph_, operand), "\" with ", member,
           ", expected ", d.from, " to ", extent - 1, ".");
      return 0;
    }
    return constants_.of(operand.name, static_cast<uint64_t>(member) - d.from);
  }

  Place place(const Node& node, const Operand& operand) {
    Place out;
    out.table = operand.name;
    const auto& d = graph_.declarations[operand.name];
    for (size_t i = 0; i < operand.at.size(); ++i) {
      const auto& term = operand.at[i];
      Pick pick{term.kind, term.id, term.offset, 0};
      if (term.kind == Term::Kind::index)
        pick = {Term::Kind::number, 0, term.offset + static_cast<int64_t>(turn_of(term.id)), 0};
      if (term.kind == Term::Kind::value) pick.id = written(node, term.id);
      const auto extent = static_cast<int64_t>(d.axes[i].extent);
      // A volatile table has the members of its family only.
      const auto least = i == 0 && d.volatile_table() && d.over != no_name ? static_cast<int64_t>(d.from) : 0;
      if (pick.kind == Term::Kind::number && d.axes[i].counter == no_name &&
          (pick.offset < least || pick.offset >= extent)) {
        fail("node ", node_text(graph_, node), " picks ", pick.offset, " in \"", operand_text(graph_, operand),
             "\", expected ", least, " to ", extent - 1, ".");
      }
      out.picks.push_back(pick);
    }
    return out;
  }

  // Tells the two kinds of counters apart. Where every row adds the same amount, a row's value follows from the row's
  // number. Other counters are dynamic (`dynamic_counters_`): rows that use them run one after the other.
  void count() {
    bool returned = false;
    for (auto& top : program_.code) {
      const auto look = [&](Instruction& instruction, bool conditional) {
        const State state = traits_of(instruction.node->op).state;
        const bool moves = state == State::counts ||
                           (state == State::resets && graph_.declarations[instruction.places[0].table].counter);
        const bool up = instruction.node->op == Op::cache_increment;
        if (moves && (!up || conditional || returned)) dynamic_counters_.insert(instruction.places[0].table);
      };
      each_instruction(top, look);
      returned = returned || returns(top.then) || returns(top.otherwise);
    }
    std::map<Name, int64_t> so_far;
    // The clock already counts the row itself when the row begins.
    // Rows of block "again" stand where the last token stood, and do not move it.
    if (note_clock() && block_.name != "again") so_far[graph_.clock] = 1;
    const auto number = [&](Instruction& instruction, bool) {
      for (auto& at : instruction.places) {
        at.seen = so_far[graph_.followed(at.table)];
        if (graph_.declarations[at.table].growing() > 1) {
          for (const auto& axis : graph_.declarations[at.table].axes) at.along.push_back(so_far[axis.counter]);
        }
        for (auto& pick : at.picks) {
          if (pick.kind == Term::Kind::counter) pick.seen = so_far[pick.id];
        }
      }
      if (instruction.node->op != Op::cache_increment) return;
      const Name counter = instruction.places[0].table;
      if (!dynamic_counters_.contains(counter)) so_far[counter] += instruction.node->number;
    };
    for (auto& top : program_.code) each_instruction(top, number);
    for (const auto& [counter, by] : so_far) {
      if (by > 0) program_.growth.emplace_back(counter, by);
    }
  }

  // Notes the segments that the steps of the block must stay within. Returns whether its rows use the clock.
  bool note_clock() {
    bool used = false;
    for (auto& top : program_.code) {
      each_instruction(top, [&](Instruction& instruction, bool) {
        const uint64_t segment = instruction.node->segment;
        if (segment > 0 &&
            std::find(program_.segments.begin(), program_.segments.end(), segment) == program_.segments.end())
          program_.segments.push_back(segment);
        used = used || uses_clock(*instruction.node);
        for (const auto& at : instruction.places) {
          used = used || (graph_.followed(at.table) == graph_.clock && graph_.clock != no_name);
          for (const auto& pick : at.picks)
            used = used || (pick.kind == Term::Kind::counter && pick.id == graph_.clock);
        }
      });
    }
    return used;
  }

  const Graph& graph_;
  const Block& block_;
  const ConstantIndex& constants_;
  Program program_;
  std::vector<uint32_t> current_;    // [declarations]: the value written last so far, or no_name
  std::unordered_set<Name> shared_;  // names with one value for all their writes
  std::unordered_set<Name> dynamic_counters_;
  std::vector<std::pair<Index, uint64_t>> turns_;
  size_t conditional_ = 0;
  size_t lines_ = 0;
  std::optional<Error> error_;
};

}  // namespace

ConstantIndex::ConstantIndex(const Graph& graph) : base_(graph.declarations.size(), 0) {
  for (Name name = 0; name < graph.declarations.size(); ++name) {
    const auto& d = graph.declarations[name];
    if (d.kind != Kind::constant && !d.volatile_table()) continue;
    base_[name] = members_.size();
    const uint64_t first = d.over == no_name ? 0 : d.from;
    const uint64_t end = d.over == no_name ? 1 : graph.indices[d.over].extent;
    for (uint64_t member = first; member < end; ++member) members_.push_back({name, member});
  }
}

uint32_t Program::result(std::string_view role) const {
  for (const auto& [name, value] : results) {
    if (name == role) return value;
  }
  return no_name;
}

Result<Program> Program::make(const Graph& graph, const Block& block, const ConstantIndex& constants) {
  return Compiler(graph, block, constants).compile();
}

const char* name_of(Stage::Order order) {
  switch (order) {
    case Stage::Order::row_parallel: return "row_parallel";
    case Stage::Order::row_local: return "row_local";
    case Stage::Order::row_serial: return "row_serial";
  }
  return "unknown";
}

std::string instruction_text(const Graph& graph, const Instruction& instruction) {
  std::string out = node_text(graph, *instruction.node);
  for (const auto& [index, turn] : instruction.turns) out += text(" (", graph.indices[index].name, "=", turn, ")");
  return out;
}

}  // namespace continuo
