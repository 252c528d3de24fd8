// The order of a program's work: which lines go row after row, and from when to when each value lives.
#pragma once

#include <unordered_set>
#include <vector>

#include "compile/program.h"

namespace continuo {

// The instruction and what stands in its arms, in the written order; `visit` is told whether a condition stands before
// it.
void each_instruction(Instruction& instruction, const auto& visit, bool conditional = false) {
  visit(instruction, conditional);
  for (auto& inner : instruction.then) each_instruction(inner, visit, true);
  for (auto& inner : instruction.otherwise) each_instruction(inner, visit, true);
}

bool returns(const std::vector<Instruction>& code);

// Fills in stages and lifetimes of a program whose code, growth and segments are there. `dynamic_counters`: counters
// that rows move each in its own way, which must be followed row by row.
void arrange(const Graph& graph, const std::unordered_set<Name>& dynamic_counters, Program& program);

}  // namespace continuo
