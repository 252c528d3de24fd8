// Fusion: which lines of a program may run as one launch, and the lifetimes of values that this needs.
#pragma once

#include <cstdint>
#include <vector>

#include "compile/program.h"

namespace continuo::cuda {

// Neighbouring lines that may run as one launch: products that do not depend on each other, with the epilogues of their
// outputs; the lines between two such groups; or one product with matrices that rows pick; or one line about
// experts of a store.
struct FusionGroup {
  enum class Kind : uint8_t { commands, products, routed, store } kind;
  size_t first, last;  // lines of Program::code, both included
};

// In order of their lines. Lines of a row_serial stage are in no group.
std::vector<FusionGroup> fusion_groups(const Program& program);

// The program's lifetimes, each extended to whole groups. So no two values of a group share memory: the lines of a
// group run at the same time.
std::vector<Lifetime> fused_lifetimes(const Program& program);

}  // namespace continuo::cuda
