// Which products of a program run side by side, and what that asks of its memory.
#pragma once

#include <vector>

#include "compile/program.h"

namespace continuo {

// Products on neighbouring lines, none of which reads what another one writes; at most max_products (linear.h).
struct ProductGroup {
  size_t first, count;  // lines of Program::code
};

// In order; what goes row after row is in none.
std::vector<ProductGroup> product_groups(const Program& program);

// The program's lifetimes, where a group is one moment: what one product of a group writes must not take the place of
// what another one still reads.
std::vector<Lifetime> grouped_lifetimes(const Program& program);

}  // namespace continuo
