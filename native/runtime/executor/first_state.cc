// The first state of a model: what block "first" of its graph computes, and the first adapters.
#include <cmath>
#include <vector>

#include "runtime/executor/executor.h"
#include "runtime/model/chance.h"

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

// The first adapters: B is 0, A is normal of variance 1 / inputs, by the place of the layer and of the target.
void Model::begin_adapters(const std::shared_ptr<Model>& model) {
  const auto& form = model->graph.perspective;
  if (!form || !form->adaptation) return;
  const auto& adaptation = *form->adaptation;
  Context context(model);
  const Pinned pinned(*model->device, context);
  for (size_t target = 0; target < adaptation.targets.size(); ++target) {
    const Name A = adaptation.targets[target].A;
    const auto& shape = model->graph.declarations[A].shape;  // [layers, rank, inputs]
    const size_t layers = shape[0], each = shape[1] * shape[2];
    const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape[2])));
    std::vector<float> first(layers * each);
    for (size_t layer = 0; layer < layers; ++layer) {
      for (size_t i = 0; i < each; ++i)
        first[layer * each + i] = normal_of(chance(Purpose::adapter, static_cast<uint32_t>(target), layer,
                                                   adaptation.seed, static_cast<uint32_t>(i))) *
                                  scale;
    }
    model->device->upload(context.data(A), reinterpret_cast<const std::byte*>(first.data()),
                          first.size() * sizeof(float));
  }
  model->first = context.image();
}

}  // namespace continuo
