// Second moments Σ x xᵀ of the rows x that matrices are multiplied with. They say how much the rounding of a weight
// changes the outputs (src/models/quantize/rounding.ts). An executor that is given some adds every row of its products
// to them. Rows are added 128 at a time, in the order in which they come: so the sums do not depend on how a text was
// cut into steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "graph/graph.h"

namespace continuo {

struct Moments {
  static constexpr size_t batch = 128;

  // A member of a constant that is a matrix or a stack of them, whose matrices share one sum.
  struct Wanted {
    Name declaration;
    uint64_t member;
  };
  struct Sum {
    size_t inputs;
    std::vector<float> waiting;  // [at most batch][inputs]
    std::vector<float> sum;      // [inputs][inputs]
  };

  std::vector<Wanted> wanted;
  // Filled in by the executor. Matrices that are always multiplied with the same rows share a sum.
  std::vector<uint32_t> sum_of;  // [constants of the model]: index into sums, or no_name
  std::vector<Sum> sums;
  // Adds the rows that wait for others. While the executor runs no step.
  std::function<void(Sum&)> flush;
};

}  // namespace continuo
