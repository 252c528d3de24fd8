#include "runtime/state/adapters.h"

#include <algorithm>

namespace continuo {

Adapters::Adapters(const Model& model) : model_(model) {
  const auto& adaptation = *model.graph.perspective->adaptation;
  rank_ = adaptation.rank;
  for (const auto& target : adaptation.targets) {
    const auto &A = model.graph.declarations[target.A].shape, &B = model.graph.declarations[target.B].shape;
    auto& own = places_.emplace_back();
    for (size_t layer = 0; layer < A[0]; ++layer) {
      const size_t inputs = A[2], outputs = B[1];
      own.push_back({size_, size_ + rank_ * inputs, inputs, outputs});
      size_ += rank_ * (inputs + outputs);
    }
  }
}

// Calls visit(table, layers' first parameters, parameters of a layer) for each table.
void Adapters::each_table(const auto& visit) const {
  const auto& targets = model_.graph.perspective->adaptation->targets;
  for (size_t target = 0; target < targets.size(); ++target) {
    std::vector<size_t> first_A, first_B;
    for (const auto& place : places_[target]) {
      first_A.push_back(place.A);
      first_B.push_back(place.B);
    }
    const auto& any = places_[target][0];
    visit(targets[target].A, first_A, rank_ * any.inputs);
    visit(targets[target].B, first_B, rank_ * any.outputs);
  }
}

std::vector<float> Adapters::read(Context& context) const {
  std::vector<float> out(size_);
  each_table([&](Name table, const std::vector<size_t>& firsts, size_t each) {
    const auto numbers = table_of<float>(context, table, firsts.size() * each);
    for (size_t layer = 0; layer < firsts.size(); ++layer)
      std::copy_n(numbers.begin() + static_cast<ptrdiff_t>(layer * each), each,
                  out.begin() + static_cast<ptrdiff_t>(firsts[layer]));
  });
  return out;
}

void Adapters::write(Context& context, const std::vector<float>& parameters) const {
  each_table([&](Name table, const std::vector<size_t>& firsts, size_t each) {
    std::vector<float> numbers(firsts.size() * each);
    for (size_t layer = 0; layer < firsts.size(); ++layer)
      std::copy_n(parameters.begin() + static_cast<ptrdiff_t>(firsts[layer]), each,
                  numbers.begin() + static_cast<ptrdiff_t>(layer * each));
    write_table(context, table, numbers);
  });
}

}  // namespace continuo
