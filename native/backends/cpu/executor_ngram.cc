// An ngram memory on the CPU (kernels/ngram.h): a thread takes all rows of a session.
#include "backends/cpu/executor.h"

namespace continuo {

namespace {

// Of a row, in multiply-adds: of all its contexts, and of each token of a vocabulary.
constexpr size_t ngram_cost = 4000, ngram_token_cost = 16;

}  // namespace

// Tokens have one text and one class, whichever memory reads them. Where only a model's first state is computed,
// nothing is read, and no vocabulary is there.
void CpuExecutor::prepare_subwords() {
  if (!options_.vocabulary) return;
  subwords_ = ngram::Subwords(*options_.vocabulary, ngram::subwords_in(programs()));
  texts_ = subwords_.texts();
}

void CpuExecutor::ngram(Space& space, const Instruction& instruction, std::span<const Run> runs) {
  const auto& axes = model_->graph.declarations[instruction.places[0].table].axes;
  const auto slots = static_cast<size_t>(axes[axes.size() - 2].extent);
  const auto& mixture = model_->graph.declarations[instruction.places.back().table].axes;
  const ngram::Kind kind = ngram::kind_of(mixture.back().extent);
  const bool subwords = kind == ngram::Kind::subwords;
  const size_t vocabulary = subwords ? texts_.count : ngram::tokens;
  const auto* token = reinterpret_cast<const int32_t*>(value(space, instruction.in[0].id));
  const float* base = instruction.in.size() > 1 ? floats(space, instruction.in[1].id) : nullptr;
  std::vector<Tables> tables;
  size_t rows = 0;
  for (const auto& run : runs) {
    rows += run.rows;
    tables.push_back(this->tables(space, instruction, run));
  }
  const size_t cost = ngram_cost + (subwords ? vocabulary * ngram_token_cost : 0);
  fork(runs.size(), rows * cost, [&](size_t i) {
    const auto& run = runs[i];
    const auto& of = tables[i];
    if (!of[0]) return;
    kernels_.ngram({.table = reinterpret_cast<int32_t*>(of[0]),
                    .text = reinterpret_cast<int32_t*>(of[1]),
                    .mixture = of[subwords ? 3 : 2],
                    .tokens = token + run.row,
                    .base = base ? base + run.row * vocabulary : nullptr,
                    .y = floats(space, instruction.out) + run.row * vocabulary,
                    .slots = slots,
                    .rows = run.rows,
                    .learns = !run.drawn || instruction.node->learns_drawn,
                    .texts = subwords ? &texts_ : nullptr,
                    .kept = subwords ? of[2] : nullptr,
                    .kind = kind});
  });
}

void CpuExecutor::ngram_first(Space& space, const Instruction& instruction, std::span<const Run> runs) {
  const float* learned = instruction.in.empty() ? nullptr : model_->constants[instruction.in[0].id].vector();
  const auto& axes = model_->graph.declarations[instruction.places[0].table].axes;
  const ngram::Kind kind = ngram::kind_of(axes.back().extent);
  for (const auto& run : runs) {
    if (float* mixture = tables(space, instruction, run)[0]) kernels_.ngram_first(mixture, learned, kind);
  }
}

}  // namespace continuo
