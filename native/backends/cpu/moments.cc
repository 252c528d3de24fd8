#include "backends/cpu/moments.h"

#include <algorithm>

#include "backends/cpu/linear.h"
#include "backends/cpu/products.h"
#include "compile/arrange.h"
#include "runtime/model/model.h"

namespace continuo {

namespace {

// Rows of a sum that are computed at a time: few, so that large sums need no second memory of their size.
constexpr size_t strip = 256;

bool wants(const Moments& moments, const ConstantIndex::Member& member) {
  return std::any_of(moments.wanted.begin(), moments.wanted.end(), [&](const Moments::Wanted& wanted) {
    return wanted.declaration == member.declaration && wanted.member == member.member;
  });
}

// Visits the products and the routed products of a program, those in the arms of branches too: visit(op, constant).
void each_product(const Program& program, const auto& visit) {
  for (const auto& line : program.code) {
    each_instruction(line, [&](const Instruction& instruction, bool) {
      if (!instruction.node) return;
      const Op op = instruction.node->op;
      if (op == Op::matmul || op == Op::routed) visit(op, instruction.in[op == Op::matmul ? 1 : 2].id);
    });
  }
}

void flush_rows(Moments::Sum& sum, ThreadPool& pool, const Kernels& kernels) {
  const size_t inputs = sum.inputs, rows = sum.waiting.size() / inputs;
  if (rows == 0) return;
  // Σ x xᵀ is a product of the engine: the rows as weights [inputs outputs, rows inputs] in f32, with themselves.
  const size_t tiles = (inputs + tile_lanes - 1) / tile_lanes;
  std::vector<float> packed(tiles * rows * tile_lanes), turned(inputs * rows), out(std::min(strip, inputs) * inputs);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t i = 0; i < inputs; ++i) {
      const float x = sum.waiting[r * inputs + i];
      packed[(i / tile_lanes * rows + r) * tile_lanes + i % tile_lanes] = x;
      turned[i * rows + r] = x;
    }
  }
  const PackedMatrix matrix{Dtype::f32, inputs, rows, 0, packed.data()};
  Memory scratch(scratch_bytes(matrix, strip));
  for (size_t from = 0; from < inputs; from += strip) {
    const size_t count = std::min(strip, inputs - from);
    const Product product{matrix, turned.data() + from * rows, out.data()};
    multiply(pool, kernels, {&product, 1}, count, scratch);
    kernels.add(out.data(), sum.sum.data() + from * inputs, sum.sum.data() + from * inputs, count * inputs);
  }
  sum.waiting.clear();
}

}  // namespace

void prepare_moments(Moments& moments, const Model& model, ThreadPool& pool, const Kernels& kernels) {
  moments.flush = [&pool, &kernels](Moments::Sum& sum) { flush_rows(sum, pool, kernels); };
  const auto& members = model.constant_index.members();
  moments.sum_of.assign(members.size(), no_name);
  moments.sums.clear();
  const auto make = [&](uint32_t id) {
    if (moments.sum_of[id] != no_name || !wants(moments, members[id])) return;
    const size_t inputs = model.constants[id].inputs;
    moments.sum_of[id] = static_cast<uint32_t>(moments.sums.size());
    moments.sums.push_back({inputs, {}, std::vector<float>(inputs * inputs)});
  };
  std::vector<size_t> uses(members.size());
  for (const auto& program : model.programs) {
    each_product(program, [&](Op op, uint32_t id) { uses[id] += op == Op::matmul; });
  }
  for (const auto& program : model.programs) {
    // Products of a group read their rows before any of them is written.
    for (const auto& [first, count] : product_groups(program)) {
      const auto group = std::span(program.code).subspan(first, count);
      for (const auto& instruction : group) {
        const uint32_t id = instruction.in[1].id;
        const auto same = std::find_if(group.begin(), group.end(), [&](const Instruction& other) {
          return other.in[0].id == instruction.in[0].id && uses[other.in[1].id] == 1 &&
                 moments.sum_of[other.in[1].id] != no_name;
        });
        if (uses[id] == 1 && same != group.end() && wants(moments, members[id]))
          moments.sum_of[id] = moments.sum_of[same->in[1].id];
        else
          make(id);
      }
    }
    each_product(program, [&](Op, uint32_t id) { make(id); });
  }
}

void add_rows(Moments::Sum& sum, const float* x, size_t rows, ThreadPool& pool, const Kernels& kernels) {
  while (rows > 0) {
    const size_t room = Moments::batch - sum.waiting.size() / sum.inputs, count = std::min(room, rows);
    sum.waiting.insert(sum.waiting.end(), x, x + count * sum.inputs);
    x += count * sum.inputs;
    rows -= count;
    if (count == room) flush_rows(sum, pool, kernels);
  }
}

}  // namespace continuo
