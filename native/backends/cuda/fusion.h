// Which lines of a program may run as one launch, and what that asks of its memory.
#pragma once

#include <vector>

#include "compile/program.h"

namespace continuo::cuda {

// Neighbouring lines that may run as one: products that do not depend on each other, with the epilogues of their
// outputs; or what stands between such.
struct FusionGroup {
  bool products;
  size_t first, last;  // of Program::code, last included
};

// In order; what goes row after row is in none.
std::vector<FusionGroup> fusion_groups(const Program& program);

// The program's lifetimes, where no value that lives in a group takes the place of another that does: they may be read
// and written at the same time.
std::vector<Lifetime> fused_lifetimes(const Program& program);

}  // namespace continuo::cuda
