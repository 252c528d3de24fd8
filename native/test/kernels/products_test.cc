#include "backends/cpu/products.h"

#include <list>

#include "compile/plan.h"
#include "graph/graph.h"
#include "test/image.h"

namespace continuo::test::products_test {

namespace {

// A layer whose products k and v read different inputs.
Program some_program() {
  auto text = test::small_model(1, 8, 16, 2, Dtype::f32).graph;
  const std::string from = R"("in":["m","wk"])";
  text.replace(text.find(from), from.size(), R"("in":["n","wk"])");
  const auto graph = parse_graph(text);
  CHECK(graph);
  // Instructions point to the nodes of the graph.
  static std::list<Graph> kept;
  kept.push_back(*graph);
  auto program = Program::make(kept.back(), kept.back().blocks[0], ConstantIndex(kept.back()));
  CHECK(program);
  return *program;
}

// Whether what a product of a group writes lies where another one of the group reads or writes.
bool in_the_way(const Program& program, const std::vector<Lifetime>& lifetimes) {
  const auto plan = Plan::make(lifetimes);
  const auto overlap = [&](uint32_t a, uint32_t b) {
    return plan.offsets[a] < plan.offsets[b] + lifetimes[b].bytes &&
           plan.offsets[b] < plan.offsets[a] + lifetimes[a].bytes;
  };
  for (const auto& [first, count] : product_groups(program)) {
    for (size_t i = first; i < first + count; ++i) {
      for (size_t j = first; j < first + count; ++j) {
        const auto& other = program.code[j];
        if (i != j && (overlap(program.code[i].out, other.out) || overlap(program.code[i].out, other.in[0].id)))
          return true;
      }
    }
  }
  return false;
}

}  // namespace

TEST("cpu: neighbouring products that do not need each other are a group") {
  const auto program = some_program();
  std::vector<size_t> counts;
  for (const auto& [first, count] : product_groups(program)) {
    counts.push_back(count);
    for (size_t line = first; line < first + count; ++line) CHECK(program.code[line].node->op == Op::matmul);
  }
  CHECK((counts == std::vector<size_t>{2, 3, 1, 1}));
}

TEST("cpu: no product of a group writes where another one reads, which the memory of products one by one would do") {
  const auto program = some_program();
  CHECK(in_the_way(program, program.lifetimes));
  CHECK(!in_the_way(program, grouped_lifetimes(program)));
}

}  // namespace continuo::test::products_test
