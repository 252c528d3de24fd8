#include "backends/cuda/fusion.h"

#include <algorithm>

#include "backends/cuda/translate.h"
#include "graph/ops.h"

namespace continuo::cuda {

namespace {

using Kind = FusionGroup::Kind;

bool is_product(const Instruction& instruction) { return instruction.node->op == Op::matmul; }
Kind kind_of(const Instruction& instruction) {
  if (is_product(instruction)) return Kind::products;
  if (of_store(instruction.node->op)) return Kind::store;
  return instruction.node->op == Op::routed ? Kind::routed : Kind::commands;
}

// Whether the line can be added to the group of products that ends before it.
bool joins_products(const std::vector<Instruction>& code, const FusionGroup& group, size_t line) {
  const auto& next = code[line];
  const auto any = [&](const auto& holds) {
    return std::any_of(code.begin() + static_cast<ptrdiff_t>(group.first), code.begin() + static_cast<ptrdiff_t>(line),
                       holds);
  };
  if (next.in.empty()) return false;
  const uint32_t from = next.in[0].id;
  const bool of_the_group = any([&](const Instruction& i) { return is_product(i) && i.out == from; });
  // A product after an epilogue begins a new group.
  if (is_product(next)) return is_product(code[line - 1]) && !of_the_group;
  // A product has one epilogue at most.
  return traits_of(next.node->op).epilogue && of_the_group &&
         !any([&](const Instruction& i) { return !is_product(i) && i.in[0].id == from; });
}

}  // namespace

std::vector<FusionGroup> fusion_groups(const Program& program) {
  std::vector<FusionGroup> groups;
  for (const auto& stage : program.stages) {
    if (stage.order == Stage::Order::row_serial) continue;
    for (size_t line = stage.first; line <= stage.last; ++line) {
      const Kind kind = kind_of(program.code[line]);
      const bool open = !groups.empty() && groups.back().last + 1 == line;
      const bool joins = open && (groups.back().kind == Kind::products
                                      ? joins_products(program.code, groups.back(), line)
                                      : groups.back().kind == Kind::commands && kind == Kind::commands);
      if (joins) {
        groups.back().last = line;
      } else {
        groups.push_back({kind, line, line});
      }
    }
  }
  return groups;
}

std::vector<Lifetime> fused_lifetimes(const Program& program) {
  auto lifetimes = program.lifetimes;
  for (const auto& group : fusion_groups(program)) join_lines(lifetimes, group.first, group.last);
  return lifetimes;
}

}  // namespace continuo::cuda
