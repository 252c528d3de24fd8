#include "program.h"

#include <algorithm>
#include <map>
#include <span>
#include <unordered_map>
#include <unordered_set>

#include "ops.h"

namespace continuo {

namespace {

bool row_local(Op op) {
  switch (op) {
    case Op::matmul:
    case Op::attend:
    case Op::rope:
    case Op::cache_shift:
    case Op::cache_conv:
    case Op::cache_wkv7:
    case Op::cache_attend:
    case Op::cache_memory:
    case Op::cache_memory_first:
    case Op::cache_mix:
    case Op::cache_recall:
    case Op::cache_read:
    case Op::cache_write:
    case Op::cache_increment:
    case Op::cache_decrement:
    case Op::cache_reset:
    case Op::branch:
    case Op::return_:
    case Op::loop: return false;
    default: return true;
  }
}

// Walks its rows in order by itself.
bool recurrence(Op op) { return op == Op::cache_shift || op == Op::cache_conv || op == Op::cache_wkv7 || op == Op::cache_attend || op == Op::cache_memory; }

constexpr size_t line_bytes = 64;
// Of an unrolled block: far beyond any model, and small enough that planning its memory takes moments.
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
      if (current_[name] == no_name) return invalid("graph: block \"", block_.name, "\" returns \"", graph_.declarations[name].name, "\", which nothing wrote.");
      program_.results.emplace_back(role, current_[name]);
    }
    program_.last_value = current_;
    count();
    arrange();
    join();
    live();
    return std::move(program_);
  }

 private:
  template <class... Parts>
  void fail(const Parts&... parts) {
    if (!error_) error_ = invalid("graph: ", parts...);
  }

  // Names written under a condition keep one place in memory: whichever arm ran, readers find it there.
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
    if (program_.values.size() == max_values) fail("block \"", block_.name, "\" unrolls to more than ", max_values, " values.");
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
    if (node.index != no_name) return emit(turn_of(node.index) == static_cast<uint64_t>(node.number) ? node.body : node.otherwise, out, ended);
    Instruction instruction{&node, turns_, {}, no_name, {}, {}, {}};
    instruction.in.push_back({false, written(node, node.in[0].name)});
    ++conditional_;
    bool then_ended = false, otherwise_ended = false;
    emit(node.body, instruction.then, then_ended);
    emit(node.otherwise, instruction.otherwise, otherwise_ended);
    --conditional_;
    // What follows an arm that returned belongs to the other arm; both having returned, nothing follows.
    ended = then_ended && otherwise_ended;
    out.push_back(std::move(instruction));
  }

  uint32_t written(const Node& node, Name name) {
    if (current_[name] == no_name) {
      fail("node ", instruction_text(graph_, {&node, turns_, {}, no_name, {}, {}, {}}), " uses \"", graph_.declarations[name].name, "\" before anything wrote it.");
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
      if (d.kind == Kind::persistent) out.places.push_back(place(node, operand));
      else if (d.kind == Kind::constant) out.in.push_back({true, constant(node, operand)});
      else out.in.push_back({false, written(node, operand.name)});
    }
    if (node.state) out.places.push_back(place(node, *node.state));
    if (node.out == no_name) return out;
    out.out = define(node.out);
    const bool same = std::any_of(out.in.begin(), out.in.end(), [&](const Argument& a) { return !a.constant && a.id == out.out; });
    if (same && !rule_of(node.op).elementwise) fail("node ", node_text(graph_, node), " reads what it overwrites, and a branch gives that value one place in memory; write to another name.");
    return out;
  }

  uint32_t constant(const Node& node, const Operand& operand) {
    const auto& d = graph_.declarations[operand.name];
    if (d.over == no_name) return constants_.of(operand.name, 0);
    const auto& term = operand.at[0];
    const int64_t member = term.offset + (term.kind == Term::Kind::index ? static_cast<int64_t>(turn_of(term.id)) : 0);
    const auto extent = static_cast<int64_t>(graph_.indices[d.over].extent);
    if (member < static_cast<int64_t>(d.from) || member >= extent) {
      fail("node ", node_text(graph_, node), " uses \"", operand_text(graph_, operand), "\" with ", member, ", expected ", d.from, " to ", extent - 1, ".");
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
      if (term.kind == Term::Kind::index) pick = {Term::Kind::number, 0, term.offset + static_cast<int64_t>(turn_of(term.id)), 0};
      if (term.kind == Term::Kind::value) pick.id = written(node, term.id);
      const auto extent = static_cast<int64_t>(d.axes[i].extent);
      if (pick.kind == Term::Kind::number && d.axes[i].counter == no_name && (pick.offset < 0 || pick.offset >= extent)) {
        fail("node ", node_text(graph_, node), " picks ", pick.offset, " in \"", operand_text(graph_, operand), "\", expected 0 to ", extent - 1, ".");
      }
      out.picks.push_back(pick);
    }
    return out;
  }

  // The instruction and what stands in its arms, in the written order.
  static void each(Instruction& instruction, const auto& visit, bool conditional = false) {
    visit(instruction, conditional);
    for (auto& inner : instruction.then) each(inner, visit, true);
    for (auto& inner : instruction.otherwise) each(inner, visit, true);
  }

  static bool returns(const std::vector<Instruction>& code) {
    return std::any_of(code.begin(), code.end(), [](const Instruction& i) { return i.node->op == Op::return_ || returns(i.then) || returns(i.otherwise); });
  }

  // Counters that every row raises alike are a matter of arithmetic; the others (`moody_`) must be followed row by row.
  void count() {
    bool returned = false;
    for (auto& top : program_.code) {
      const auto look = [&](Instruction& instruction, bool conditional) {
        const Op op = instruction.node->op;
        const bool moves = op == Op::cache_increment || op == Op::cache_decrement || (op == Op::cache_reset && graph_.declarations[instruction.places[0].table].counter);
        if (moves && (op != Op::cache_increment || conditional || returned)) moody_.insert(instruction.places[0].table);
      };
      each(top, look);
      returned = returned || returns(top.then) || returns(top.otherwise);
    }
    std::map<Name, int64_t> so_far;
    // The clock counts a row from its beginning on.
    if (mind_clock()) so_far[graph_.clock] = 1;
    const auto number = [&](Instruction& instruction, bool) {
      for (auto& at : instruction.places) {
        at.seen = so_far[followed(at.table)];
        for (auto& pick : at.picks) {
          if (pick.kind == Term::Kind::counter) pick.seen = so_far[pick.id];
        }
      }
      if (instruction.node->op != Op::cache_increment) return;
      const Name counter = instruction.places[0].table;
      if (!moody_.contains(counter)) so_far[counter] += instruction.node->number;
    };
    for (auto& top : program_.code) each(top, number);
    for (const auto& [counter, by] : so_far) {
      if (by > 0) program_.growth.emplace_back(counter, by);
    }
  }

  // Notes the segments that the block's steps stay within. Whether its rows use the clock.
  bool mind_clock() {
    bool used = false;
    for (auto& top : program_.code) {
      each(top, [&](Instruction& instruction, bool) {
        const uint64_t segment = instruction.node->segment;
        if (segment > 0 && std::find(program_.segments.begin(), program_.segments.end(), segment) == program_.segments.end()) program_.segments.push_back(segment);
        used = used || minds_clock(*instruction.node);
        for (const auto& at : instruction.places) {
          used = used || (followed(at.table) == graph_.clock && graph_.clock != no_name);
          for (const auto& pick : at.picks) used = used || (pick.kind == Term::Kind::counter && pick.id == graph_.clock);
        }
      });
    }
    return used;
  }

  // The counter that a table is, or that one of its axes follows.
  Name followed(Name table) const {
    const auto& d = graph_.declarations[table];
    if (d.counter) return table;
    for (const auto& axis : d.axes) {
      if (axis.counter != no_name) return axis.counter;
    }
    return no_name;
  }

  struct Access {
    size_t line;  // of the top instruction
    Op op;
    const Place* place;
    uint64_t segment;
  };

  // Which neighbouring instructions must go row after row.
  std::vector<std::pair<size_t, size_t>> row_by_row() {
    std::vector<std::pair<size_t, size_t>> out;
    std::map<Name, std::vector<Access>> tables;
    std::map<Name, std::pair<size_t, size_t>> moody;
    for (size_t line = 0; line < program_.code.size(); ++line) {
      auto& top = program_.code[line];
      if (top.node->op == Op::branch) {
        // A return under a condition: what follows runs for some rows only.
        const bool returned = returns(top.then) || returns(top.otherwise);
        out.emplace_back(line, returned ? program_.code.size() - 1 : line);
      }
      const auto look = [&](Instruction& instruction, bool) {
        for (const auto& at : instruction.places) {
          const auto touch = [&](Name counter) {
            if (moody_.contains(counter)) moody.emplace(counter, std::pair(line, line)).first->second.second = line;
          };
          touch(followed(at.table));
          for (const auto& pick : at.picks) {
            if (pick.kind == Term::Kind::counter) touch(pick.id);
          }
          if (!graph_.declarations[at.table].counter) tables[at.table].push_back({line, instruction.node->op, &at, instruction.node->segment});
        }
      };
      each(top, look);
    }
    for (const auto& [counter, span] : moody) out.push_back(span);
    for (const auto& [table, accesses] : tables) conflicts(table, accesses, out);
    return out;
  }

  // Accesses to one member of a table (as far as it is known beforehand which) that rows could not make side by side.
  void conflicts(Name table, const std::vector<Access>& accesses, std::vector<std::pair<size_t, size_t>>& out) const {
    const auto leading = [](const Place& at) {
      size_t n = 0;
      while (n < at.picks.size() && at.picks[n].kind == Term::Kind::number) ++n;
      return n;
    };
    size_t known = static_cast<size_t>(-1);
    for (const auto& access : accesses) known = std::min(known, leading(*access.place));
    std::map<std::vector<int64_t>, std::vector<Access>> members;
    for (const auto& access : accesses) {
      std::vector<int64_t> key;
      for (size_t i = 0; i < known; ++i) key.push_back(access.place->picks[i].offset);
      members[key].push_back(access);
    }
    for (const auto& [key, list] : members) {
      if (!side_by_side(table, list)) out.emplace_back(list.front().line, list.back().line);
    }
  }

  bool side_by_side(Name table, const std::vector<Access>& list) const {
    const auto reads = [](const Access& a) { return a.op == Op::cache_read || a.op == Op::attend || a.op == Op::cache_recall; };
    // These find their place once for all rows: where each row picks its own, rows go one by one.
    const auto wanders = [](const Access& a) {
      const auto picks_anew = [](const Pick& pick) { return pick.kind != Term::Kind::number; };
      return (recurrence(a.op) || a.op == Op::cache_mix || a.op == Op::cache_recall) && std::any_of(a.place->picks.begin(), a.place->picks.end(), picks_anew);
    };
    if (std::any_of(list.begin(), list.end(), wanders)) return false;
    if (std::all_of(list.begin(), list.end(), reads)) return true;
    if (list.size() == 1 && recurrence(list[0].op)) return true;
    // What a segment's first row mixes, and only that, is there for all rows of a step: a step stays within a segment.
    if (list[0].op == Op::cache_mix && list[0].segment > 0) {
      const std::span rest(list.begin() + 1, list.end());
      if (std::all_of(rest.begin(), rest.end(), reads) || (rest.size() == 1 && recurrence(rest[0].op))) return true;
    }
    // Every row writes a place of its own along an axis that grows, before any row reads.
    const Axis* axis = graph_.declarations[table].growing();
    if (!axis || moody_.contains(axis->counter)) return false;
    const auto each_row = std::find_if(program_.growth.begin(), program_.growth.end(), [&](const auto& g) { return g.first == axis->counter; });
    if (each_row == program_.growth.end()) return false;
    bool reading = false;
    for (const auto& access : list) {
      if (reads(access)) {
        reading = true;
        continue;
      }
      if (reading || access.op != Op::cache_write) return false;
      const auto& picks = access.place->picks;
      const auto follows = std::find_if(picks.begin(), picks.end(), [&](const Pick& p) { return p.kind == Term::Kind::counter && p.id == axis->counter; });
      // Places of different rows must differ: a row's writes stay within what the row itself added.
      if (follows == picks.end() || follows->offset + follows->seen < 0 || follows->offset + follows->seen >= each_row->second) return false;
    }
    return true;
  }

  void arrange() {
    auto spans = row_by_row();
    std::sort(spans.begin(), spans.end());
    size_t line = 0;
    const auto plain = [&](size_t end) {
      while (line < end) {
        size_t last = line;
        if (row_local(program_.code[line].node->op)) {
          while (last + 1 < end && row_local(program_.code[last + 1].node->op)) ++last;
        }
        program_.stretches.push_back({last > line ? Stretch::Way::local : Stretch::Way::one, line, last});
        line = last + 1;
      }
    };
    for (size_t i = 0; i < spans.size();) {
      auto [first, last] = spans[i];
      for (++i; i < spans.size() && spans[i].first <= last; ++i) last = std::max(last, spans[i].second);
      plain(first);
      program_.stretches.push_back({Stretch::Way::rows, first, last});
      line = last + 1;
    }
    plain(program_.code.size());
  }

  // Cuts what does not go row after row into joints.
  void join() {
    for (const auto& stretch : program_.stretches) {
      if (stretch.way == Stretch::Way::rows) continue;
      for (size_t line = stretch.first; line <= stretch.last; ++line) {
        const auto& code = program_.code;
        Joint* open = program_.joints.empty() || program_.joints.back().last + 1 != line ? nullptr : &program_.joints.back();
        const auto any = [&](Op op, bool writes, uint32_t id) {
          for (size_t i = open->first; i < line; ++i) {
            if ((code[i].node->op == Op::matmul) == (op == Op::matmul) && (writes ? code[i].out : code[i].in[0].id) == id) return true;
          }
          return false;
        };
        const Op op = code[line].node->op;
        bool joins = open && !open->products && op != Op::matmul;
        if (open && open->products) {
          const uint32_t id = code[line].in.empty() ? no_name : code[line].in[0].id;
          // A product after a bend begins anew; of one product one bend is taken.
          joins = op == Op::matmul ? code[line - 1].node->op == Op::matmul && !any(Op::matmul, true, id) : bends(op) && any(Op::matmul, true, id) && !any(op, false, id);
        }
        if (joins) open->last = line;
        else program_.joints.push_back({op == Op::matmul, line, line});
      }
    }
  }

  // Moments are lines of code. A stretch that takes rows apart, or a joint, is one moment for what crosses its border: row 1 may still
  // read what row 0 has done with.
  void live() {
    std::vector<size_t> moment_first(program_.code.size()), moment_last(program_.code.size());
    for (const auto& stretch : program_.stretches) {
      for (size_t line = stretch.first; line <= stretch.last; ++line) {
        moment_first[line] = stretch.way == Stretch::Way::one ? line : stretch.first;
        moment_last[line] = stretch.way == Stretch::Way::one ? line : stretch.last;
      }
    }
    for (const auto& joint : program_.joints) {
      for (size_t line = joint.first; line <= joint.last; ++line) {
        moment_first[line] = std::min(moment_first[line], moment_first[joint.first]);
        moment_last[line] = std::max(moment_last[line], moment_last[joint.last]);
      }
    }
    const size_t end = program_.code.size();
    struct Span {
      size_t first, last;
      bool seen = false;
    };
    std::vector<Span> spans(program_.values.size(), Span{0, 0});
    const auto touch = [&](uint32_t value, size_t line) {
      auto& span = spans[value];
      if (!span.seen) span = {line, line, true};
      span.last = std::max(span.last, line);
    };
    for (const uint32_t input : program_.inputs) touch(input, 0);
    for (size_t line = 0; line < end; ++line) {
      const auto look = [&](Instruction& instruction, bool) {
        for (const auto& argument : instruction.in) {
          if (!argument.constant) touch(argument.id, line);
        }
        for (const auto& at : instruction.places) {
          for (const auto& pick : at.picks) {
            if (pick.kind == Term::Kind::value) touch(pick.id, line);
          }
        }
        if (instruction.out != no_name) touch(instruction.out, line);
      };
      each(program_.code[line], look);
    }
    for (size_t i = 0; i < spans.size(); ++i) {
      auto& value = program_.values[i];
      auto span = spans[i];
      if (end > 0) span = {moment_first[span.first], moment_last[span.last], true};
      // Zeroed when a step begins, so alive from there.
      if (value.reset) span.first = 0;
      program_.lifetimes.push_back({(value.bytes + line_bytes - 1) / line_bytes * line_bytes, span.first, span.last});
    }
    for (const auto& [role, value] : program_.results) program_.lifetimes[value].last = end;
    // What the host inserts lies there before the first line runs.
    for (const uint32_t input : program_.inputs) program_.lifetimes[input].first = 0;
  }

  const Graph& graph_;
  const Block& block_;
  const ConstantIndex& constants_;
  Program program_;
  std::vector<uint32_t> current_;  // per declaration: the value that holds it now
  std::unordered_set<Name> shared_;
  std::unordered_set<Name> moody_;
  std::vector<std::pair<Index, uint64_t>> turns_;
  size_t conditional_ = 0;
  size_t lines_ = 0;
  std::optional<Error> error_;
};

}  // namespace

ConstantIndex::ConstantIndex(const Graph& graph) : base_(graph.declarations.size(), 0) {
  for (Name name = 0; name < graph.declarations.size(); ++name) {
    const auto& d = graph.declarations[name];
    if (d.kind != Kind::constant) continue;
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

Result<Program> Program::make(const Graph& graph, const Block& block, const ConstantIndex& constants) { return Compiler(graph, block, constants).compile(); }

std::string instruction_text(const Graph& graph, const Instruction& instruction) {
  std::string out = node_text(graph, *instruction.node);
  for (const auto& [index, turn] : instruction.turns) out += text(" (", graph.indices[index].name, "=", turn, ")");
  return out;
}

}  // namespace continuo
