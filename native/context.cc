#include "context.h"

#include <algorithm>

namespace continuo {

Context::Context(std::shared_ptr<const Model> model) : model_(std::move(model)), memory_(model_->state_elements * sizeof(float)) {
  reset();
  head = Head{};
}

void Context::reset() {
  for (const auto& slice : model_->layout) std::fill_n(state() + slice.offset, slice.elements, model_->graph.declarations[slice.name].init);
  head.origin = head.pulse;
  head.chain.reset();
  broken = false;
}

void Context::serialize(std::span<std::byte> out) const { std::memcpy(out.data(), memory_.data(), bytes()); }

Status Context::restore(std::span<const std::byte> state_bytes, const Head& new_head) {
  if (state_bytes.size() != bytes()) return invalid("the state has ", state_bytes.size(), " bytes, expected ", bytes(), " by this model's layout.");
  if (new_head.origin > new_head.pulse) return invalid("the state's origin ", new_head.origin, " lies after its pulse ", new_head.pulse, ".");
  for (const auto& slice : model_->layout) {
    for (size_t i = 0; i < slice.elements; ++i) {
      const float value = read_element(state_bytes.data(), Dtype::f32, slice.offset + i);
      if (value - value != 0) {
        return invalid("the state's \"", model_->graph.declarations[slice.name].name, "\" holds a number that is not finite at element ", i,
                       ": the snapshot is damaged.");
      }
    }
  }
  std::memcpy(memory_.data(), state_bytes.data(), bytes());
  head = new_head;
  broken = false;
  return Done{};
}

bool Context::finite() const { return model_->kernels.finite(state(), model_->state_elements); }

}  // namespace continuo
