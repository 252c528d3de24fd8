// Routes: which rows of a step meet which matrix of a stack. A place is the number of a row times the matrices that a
// row goes to, plus the place among those.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compile/program.h"

namespace continuo {

struct Route {
  size_t matrix;
  std::vector<size_t> places;  // ascending
};

// ids: a matrix for each place. Routes of equally many places stand side by side; among those matrices ascend. A place
// whose id names no matrix is in `lost`.
struct Routes {
  std::vector<Route> routes;
  std::vector<size_t> lost;
};
Routes routes_of(std::span<const int32_t> ids, size_t matrices);

// The routes from `first` on that have equally many places, at most `most` of them.
std::span<const Route> alike(std::span<const Route> routes, size_t first, size_t most);

// Visits the routed instructions of the code, also those in arms of branches.
inline void each_routed(std::span<const Instruction> code, const auto& visit) {
  for (const auto& instruction : code) {
    if (instruction.node->op == Op::routed) visit(instruction);
    each_routed(instruction.then, visit);
    each_routed(instruction.otherwise, visit);
  }
}

}  // namespace continuo
