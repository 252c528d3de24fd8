// Arranges a program: which lines run row after row, and the lifetime of each value.
#pragma once

#include <cstdint>
#include <unordered_set>
#include <vector>

#include "compile/program.h"

namespace continuo {

// Visits the instruction and those in its arms, in the written order. `conditional`: whether it stands in an arm.
void each_instruction(auto& instruction, const auto& visit, bool conditional = false) {
  visit(instruction, conditional);
  for (auto& inner : instruction.then) each_instruction(inner, visit, true);
  for (auto& inner : instruction.otherwise) each_instruction(inner, visit, true);
}

// Whether the code has a return, in an arm or not.
bool returns(const std::vector<Instruction>& code);

// Fills in stages and lifetimes of a program that has its code, growth and segments. `dynamic_counters`: counters that
// each row may move by another amount. Their value in a row is known only once the rows before have run. `most_rows`:
// of one context in a step.
void arrange(const Graph& graph, const std::unordered_set<Name>& dynamic_counters, uint64_t most_rows,
             Program& program);

}  // namespace continuo
