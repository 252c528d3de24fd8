// The first state of a model whose graph computes it (block "first").
#include "runtime/executor/executor.h"

namespace continuo {

// Computes the first state once, with the kernels of every later step. Each context copies it.
Status Model::run_first(const std::shared_ptr<Model>& model, ThreadPool& pool) {
  if (!model->graph.first) return Done{};
  Context context(model);
  const auto executor = model->device->executor(model, pool, {});
  const Run run{&context, 0, 1};
  const Pinned pinned(*model->device, context);
  executor->step(*model->graph.first, 1, {&run, 1});
  executor->settle();
  if (!executor->faults().empty()) return invalid("graph: block \"first\": ", executor->faults()[0].message);
  if (!context.finite(true))
    return invalid(
        "graph: block \"first\" leaves a number that is not finite in the first state. The model is damaged: use "
        "another copy.");
  model->first = context.image();
  return Done{};
}

}  // namespace continuo
