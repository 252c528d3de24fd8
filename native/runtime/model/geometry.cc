#include "runtime/model/geometry.h"

#include <algorithm>

namespace continuo {

namespace {

// The error of the first instruction that `check` finds one in, those of branches among them.
Status each_instruction(const std::vector<Instruction>& code, const auto& check) {
  for (const auto& line : code) {
    if (auto good = check(line); !good) return good;
    if (auto good = each_instruction(line.then, check); !good) return good;
    if (auto good = each_instruction(line.otherwise, check); !good) return good;
  }
  return Done{};
}

}  // namespace

Status check_geometry(const Graph& graph, const ConstantIndex& index, const std::vector<Program>& programs,
                      const std::vector<Constant>& constants) {
  const auto tensor = [&](uint32_t constant) -> const std::string& {
    return graph.declarations[index.members()[constant].declaration].tensor;
  };
  const auto check = [&](const Instruction& line) -> Status {
    if (!line.node || (line.node->op != Op::torus && line.node->op != Op::project)) return Done{};
    const uint32_t points = line.in[1].id;
    const float* numbers = constants[points].vector();
    const size_t count = constants[points].outputs;
    if (line.node->op == Op::torus) {
      const float* outside = std::find_if(numbers, numbers + count, [](float p) { return !(p >= 0.0f && p < 1.0f); });
      if (outside == numbers + count) return Done{};
      return invalid("tensor \"", tensor(points), "\" holds ", *outside, " at element ", outside - numbers,
                     ", expected positions from 0 to less than 1.");
    }
    const size_t spaces = constants[line.in[2].id].outputs, width = count / spaces;
    for (size_t j = 0; j < spaces; ++j) {
      const float* normal = numbers + j * width;
      // The square of its length is what it is divided by.
      float length = 0;
      for (size_t i = 0; i < width; ++i) length += normal[i] * normal[i];
      if (!(length >= 0x1p-126f && length <= 0x1p126f))
        return invalid("tensor \"", tensor(points), "\" has a normal of squared length ", length, " in row ", j,
                       ", expected one that f32 can divide by.");
    }
    return Done{};
  };
  for (const auto& program : programs) {
    if (auto good = each_instruction(program.code, check); !good) return good;
  }
  return Done{};
}

}  // namespace continuo
