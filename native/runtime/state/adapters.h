// The adapters of a session: low-rank maps beside linear maps, of each layer and target an A [rank, inputs] and a B
// [outputs, rank]. As parameters they are numbered through targets, layers, A before B, row-major.
#pragma once

#include <vector>

#include "runtime/state/context.h"

namespace continuo {

class Adapters {
 public:
  struct Place {
    size_t A, B;  // number of its first parameter
    size_t inputs, outputs;
  };
  explicit Adapters(const Model& model);

  size_t size() const { return size_; }
  size_t rank() const { return rank_; }
  // Of a layer among those of the target's kind.
  const Place& place(size_t target, size_t layer) const { return places_[target][layer]; }
  // Of a pinned context.
  std::vector<float> read(Context& context) const;
  void write(Context& context, const std::vector<float>& parameters) const;

 private:
  void each_table(const auto& visit) const;
  const Model& model_;
  size_t size_ = 0, rank_ = 0;
  std::vector<std::vector<Place>> places_;  // [targets][layers]
};

// A table of a pinned context that has one span, on the host.
template <class T> std::vector<T> table_of(Context& context, Name name, size_t elements) {
  std::vector<T> out(elements);
  const auto& model = context.model();
  const Piece piece{context.data(name), elements * sizeof(T)};
  model.device_of(model.layout[model.slice_of[name]]).download(reinterpret_cast<std::byte*>(out.data()), {&piece, 1});
  return out;
}
template <class T> void write_table(Context& context, Name name, const std::vector<T>& numbers) {
  const auto& model = context.model();
  model.device_of(model.layout[model.slice_of[name]])
      .upload(context.data(name), reinterpret_cast<const std::byte*>(numbers.data()), numbers.size() * sizeof(T));
}

}  // namespace continuo
