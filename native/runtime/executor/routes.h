// Routes: which rows of a step meet which matrix of a stack. A place is the number of a row times the matrices that a
// row goes to, plus the place among those.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/model/model.h"

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

// Visits the routed instructions of the code, also those in arms of branches: visit(stack, places), with the places of
// a step of `rows` rows.
inline void each_routed(const Model& model, const Program& program, std::span<const Instruction> code, size_t rows,
                        const auto& visit) {
  for (const auto& instruction : code) {
    if (instruction.node->op == Op::routed) {
      const auto& ids = model.graph.declarations[program.values[instruction.in[1].id].name];
      visit(model.constants[instruction.in[2].id], rows * static_cast<size_t>(ids.elements()));
    }
    each_routed(model, program, instruction.then, rows, visit);
    each_routed(model, program, instruction.otherwise, rows, visit);
  }
}

}  // namespace continuo
