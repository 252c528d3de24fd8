#include "compile/arrange.h"

#include <algorithm>
#include <map>
#include <span>

#include "graph/ops.h"

namespace continuo {

namespace {

bool row_local(Op op) { return traits_of(op).rows == Rows::local; }

// Whether the op's kernel walks the rows of a run in token order by itself.
bool recurrence(Op op) { return traits_of(op).state == State::advances; }

constexpr size_t line_bytes = 64;

class Arranger {
 public:
  Arranger(const Graph& graph, const std::unordered_set<Name>& dynamic_counters, uint64_t most_rows, Program& program)
      : graph_(graph), dynamic_counters_(dynamic_counters), most_rows_(most_rows), program_(program) {}

  void arrange() {
    stage();
    live();
  }

 private:
  struct Access {
    size_t line;  // in Program::code, of the instruction or of the branch around it
    Op op;
    const Place* place;
    uint64_t segment;
  };

  // Spans of lines, [first, last], that must run row after row.
  std::vector<std::pair<size_t, size_t>> row_by_row() {
    std::vector<std::pair<size_t, size_t>> out;
    std::map<Name, std::vector<Access>> tables;
    std::map<Name, std::pair<size_t, size_t>> dynamic_counters;
    for (size_t line = 0; line < program_.code.size(); ++line) {
      auto& top = program_.code[line];
      if (top.node->op == Op::branch) {
        // After a return under a condition, only some rows run the lines that follow.
        const bool returned = returns(top.then) || returns(top.otherwise);
        out.emplace_back(line, returned ? program_.code.size() - 1 : line);
      }
      const auto look = [&](Instruction& instruction, bool) {
        for (const auto& at : instruction.places) {
          const auto touch = [&](Name counter) {
            if (dynamic_counters_.contains(counter))
              dynamic_counters.emplace(counter, std::pair(line, line)).first->second.second = line;
          };
          graph_.each_followed(at.table, touch);
          for (const auto& pick : at.picks) {
            if (pick.kind == Term::Kind::counter) touch(pick.id);
          }
          if (!graph_.declarations[at.table].counter)
            tables[at.table].push_back({line, instruction.node->op, &at, instruction.node->segment});
        }
      };
      each_instruction(top, look);
    }
    for (const auto& [counter, span] : dynamic_counters) out.push_back(span);
    for (const auto& [table, accesses] : tables) conflicts(table, accesses, out);
    return out;
  }

  // Adds the span of the accesses to one member of a table that rows could not make at once. A member is known by the
  // leading picks that are numbers in every access.
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
    const auto reads = [](const Access& a) { return traits_of(a.op).state == State::reads; };
    // The kernels of these ops take one member for all rows. Where each row picks its own, rows must run one by one.
    const auto row_dependent = [](const Access& a) {
      const auto picks_anew = [](const Pick& pick) { return pick.kind != Term::Kind::number; };
      return traits_of(a.op).one_place && std::any_of(a.place->picks.begin(), a.place->picks.end(), picks_anew);
    };
    if (std::any_of(list.begin(), list.end(), row_dependent)) return false;
    if (std::all_of(list.begin(), list.end(), reads)) return true;
    // Each row begins with the numbers of the file.
    if (graph_.declarations[table].volatile_table()) return false;
    if (list.size() == 1 && recurrence(list[0].op)) return true;
    // Only the first row of a segment mixes, and a step stays within a segment: all rows of a step read the same mix.
    if (traits_of(list[0].op).state == State::mixes && list[0].segment > 0) {
      const std::span rest(list.begin() + 1, list.end());
      if (std::all_of(rest.begin(), rest.end(), reads) || (rest.size() == 1 && recurrence(rest[0].op))) return true;
    }
    // Rows may also run at once where every row writes positions of its own along a growing axis before any row reads.
    const auto& axes = graph_.declarations[table].axes;
    for (size_t axis = 0; axis < axes.size(); ++axis) {
      const auto& [kind, extent, counter] = axes[axis];
      if (kind == Axis::Kind::grows && apart_along(axis, counter, list)) return true;
      // The same along a ring that the block does not read, with a place for each position of a step.
      if (kind == Axis::Kind::ring && std::none_of(list.begin(), list.end(), reads) &&
          apart_along(axis, counter, list) && extent / static_cast<uint64_t>(growth_of(counter)) >= most_rows_)
        return true;
    }
    return false;
  }

  // What each row adds to the counter; 0 where it is not moved, or is dynamic.
  int64_t growth_of(Name counter) const {
    const auto each_row =
        std::find_if(program_.growth.begin(), program_.growth.end(), [&](const auto& g) { return g.first == counter; });
    return each_row == program_.growth.end() || dynamic_counters_.contains(counter) ? 0 : each_row->second;
  }

  // Whether all writes come before all reads, and each row writes only positions along this axis that it added itself.
  // Then no row reads or writes what a later row writes: to it those positions are not there.
  bool apart_along(size_t axis, Name counter, const std::vector<Access>& list) const {
    const int64_t each_row = growth_of(counter);
    bool reading = false;
    for (const auto& access : list) {
      if (traits_of(access.op).state == State::reads) {
        reading = true;
        continue;
      }
      if (reading || traits_of(access.op).state != State::writes) return false;
      const auto& picks = access.place->picks;
      if (axis >= picks.size() || picks[axis].kind != Term::Kind::counter || picks[axis].id != counter) return false;
      const int64_t at = picks[axis].offset + picks[axis].seen;
      if (at < 0 || at >= each_row) return false;
    }
    return true;
  }

  void stage() {
    auto spans = row_by_row();
    std::sort(spans.begin(), spans.end());
    size_t line = 0;
    const auto plain = [&](size_t end) {
      while (line < end) {
        size_t last = line;
        if (row_local(program_.code[line].node->op)) {
          while (last + 1 < end && row_local(program_.code[last + 1].node->op)) ++last;
        }
        program_.stages.push_back({last > line ? Stage::Order::row_local : Stage::Order::row_parallel, line, last});
        line = last + 1;
      }
    };
    for (size_t i = 0; i < spans.size();) {
      auto [first, last] = spans[i];
      for (++i; i < spans.size() && spans[i].first <= last; ++i) last = std::max(last, spans[i].second);
      plain(first);
      program_.stages.push_back({Stage::Order::row_serial, first, last});
      line = last + 1;
    }
    plain(program_.code.size());
  }

  // Computes lifetimes in lines of code. In a stage that is not row_parallel, row 1 may still read a value that row 0
  // no longer needs: values that enter or leave such a stage live through all its lines.
  void live() {
    std::vector<size_t> moment_first(program_.code.size()), moment_last(program_.code.size());
    for (const auto& stage : program_.stages) {
      for (size_t line = stage.first; line <= stage.last; ++line) {
        moment_first[line] = stage.order == Stage::Order::row_parallel ? line : stage.first;
        moment_last[line] = stage.order == Stage::Order::row_parallel ? line : stage.last;
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
      each_instruction(program_.code[line], look);
    }
    for (size_t i = 0; i < spans.size(); ++i) {
      auto& value = program_.values[i];
      auto span = spans[i];
      if (end > 0) span = {moment_first[span.first], moment_last[span.last], true};
      // The value is zeroed when a step begins, so it is alive from there.
      if (value.reset) span.first = 0;
      program_.lifetimes.push_back({(value.bytes + line_bytes - 1) / line_bytes * line_bytes, span.first, span.last});
    }
    for (const auto& [role, value] : program_.results) program_.lifetimes[value].last = end;
    // Inputs are written before the first line runs.
    for (const uint32_t input : program_.inputs) program_.lifetimes[input].first = 0;
  }

  const Graph& graph_;
  const std::unordered_set<Name>& dynamic_counters_;
  const uint64_t most_rows_;
  Program& program_;
};

}  // namespace

bool returns(const std::vector<Instruction>& code) {
  return std::any_of(code.begin(), code.end(), [](const Instruction& i) {
    return i.node->op == Op::return_ || returns(i.then) || returns(i.otherwise);
  });
}

void arrange(const Graph& graph, const std::unordered_set<Name>& dynamic_counters, uint64_t most_rows,
             Program& program) {
  Arranger(graph, dynamic_counters, most_rows, program).arrange();
}

}  // namespace continuo
