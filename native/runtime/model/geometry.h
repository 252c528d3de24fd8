// Numbers of constants that an op cannot take, found once when a model is loaded: positions outside of the torus, and
// half-spaces without a normal.
#pragma once

#include <vector>

#include "base/result.h"
#include "compile/program.h"
#include "weights/weights.h"

namespace continuo {

// `constants`, on the host, have the order of the index. The error names the tensor.
Status check_geometry(const Graph& graph, const ConstantIndex& index, const std::vector<Program>& programs,
                      const std::vector<Constant>& constants);

}  // namespace continuo
