#include "backends/cpu/products.h"

#include <algorithm>

#include "backends/cpu/linear.h"

namespace continuo {

std::vector<ProductGroup> product_groups(const Program& program) {
  const auto& code = program.code;
  std::vector<ProductGroup> groups;
  const auto joins = [&](size_t line) {
    if (groups.empty()) return false;
    const auto [first, count] = groups.back();
    if (first + count != line || count == max_products) return false;
    return std::none_of(code.begin() + static_cast<ptrdiff_t>(first), code.begin() + static_cast<ptrdiff_t>(line),
                        [&](const Instruction& product) { return product.out == code[line].in[0].id; });
  };
  for (const auto& stage : program.stages) {
    if (stage.order == Stage::Order::row_serial) continue;
    for (size_t line = stage.first; line <= stage.last; ++line) {
      if (code[line].node->op != Op::matmul) continue;
      if (joins(line))
        ++groups.back().count;
      else
        groups.push_back({line, 1});
    }
  }
  return groups;
}

std::vector<Lifetime> grouped_lifetimes(const Program& program) {
  auto lifetimes = program.lifetimes;
  for (const auto& [first, count] : product_groups(program)) join_lines(lifetimes, first, first + count - 1);
  return lifetimes;
}

}  // namespace continuo
