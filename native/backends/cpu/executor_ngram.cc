// An ngram memory on the CPU (kernels/ngram.h): a thread takes all rows of a session.
#include "backends/cpu/executor.h"
#include "graph/ngram.h"

namespace continuo {

namespace {

constexpr size_t ngram_cost = 4000;  // of a row, in multiply-adds

}  // namespace

void CpuExecutor::ngram(Space& space, const Instruction& instruction, std::span<const Run> runs) {
  const auto& axes = model_->graph.declarations[instruction.places[0].table].axes;
  const auto slots = static_cast<size_t>(axes[axes.size() - 2].extent);
  const auto* token = reinterpret_cast<const int32_t*>(value(space, instruction.in[0].id));
  const float* base = instruction.in.size() > 1 ? floats(space, instruction.in[1].id) : nullptr;
  std::vector<Tables> tables;
  size_t rows = 0;
  for (const auto& run : runs) {
    rows += run.rows;
    tables.push_back(this->tables(space, instruction, run));
  }
  fork(runs.size(), rows * ngram_cost, [&](size_t i) {
    const auto& run = runs[i];
    if (!tables[i][0]) return;
    kernels_.ngram({reinterpret_cast<int32_t*>(tables[i][0]), reinterpret_cast<int32_t*>(tables[i][1]), tables[i][2],
                    token + run.row, base ? base + run.row * ngram::tokens : nullptr,
                    floats(space, instruction.out) + run.row * ngram::tokens, slots, run.rows,
                    !run.drawn || instruction.node->learns_drawn});
  });
}

void CpuExecutor::ngram_first(Space& space, const Instruction& instruction, std::span<const Run> runs) {
  const float* learned = instruction.in.empty() ? nullptr : model_->constants[instruction.in[0].id].vector();
  for (const auto& run : runs) {
    if (float* mixture = tables(space, instruction, run)[0]) kernels_.ngram_first(mixture, learned);
  }
}

}  // namespace continuo
