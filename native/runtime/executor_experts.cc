// Products with the experts of a store. Each expert is multiplied once for all rows that go to it, in whatever order
// the experts arrive: no row knows of another, and what an expert gives a row is kept apart from what the others give.
#include <algorithm>
#include <iterator>

#include "experts/cache.h"
#include "runtime/executor.h"
#include "runtime/routes.h"

namespace continuo {

std::span<const int32_t> Executor::numbers(Space& space, uint32_t id, size_t first, size_t rows) {
  return {reinterpret_cast<const int32_t*>(look_at(space, id, first, rows)), rows * width(space, id)};
}

void Executor::experts(Space& space, const Instruction& instruction, size_t first, size_t rows) {
  const auto& layer = model_->constants[instruction.in[2].id];
  auto& store = *model_->experts;
  auto [routes, lost] = routes_of(numbers(space, instruction.in[1].id, first, rows), layer.members);
  const size_t before = first * width(space, instruction.in[1].id);
  for (auto& place : lost) place += before;
  if (!lost.empty()) no_expert(space, instruction, lost);
  std::vector<uint32_t> pending;
  std::vector<Route*> of_pending;
  for (auto& route : routes) {
    for (auto& place : route.places) place += before;
    pending.push_back(static_cast<uint32_t>(route.matrix));
    of_pending.push_back(&route);
  }
  for (size_t at = 0; at < pending.size();) {
    if (!holds_expert(layer.layer, pending[at])) {
      ++at;
      continue;
    }
    multiply_expert(space, instruction, pending[at], {}, of_pending[at]->places);
    pending.erase(pending.begin() + static_cast<ptrdiff_t>(at));
    of_pending.erase(of_pending.begin() + static_cast<ptrdiff_t>(at));
  }
  store.want(layer.layer, pending, experts::Reason::demand);
  while (!pending.empty()) {
    auto loan = store.take(layer.layer, pending);
    if (!loan) {
      store.unwant(layer.layer, pending);
      throw DeviceError(loan.error().message);
    }
    const auto at = static_cast<ptrdiff_t>(loan->index);
    multiply_expert(space, instruction, pending[loan->index], std::move(*loan), of_pending[loan->index]->places);
    pending.erase(pending.begin() + at);
    of_pending.erase(of_pending.begin() + at);
  }
}

// Tells the store which experts rows go to now (0 layers ahead), or are likely to go to. No number comes of it.
void Executor::experts_ahead(Space& space, const Instruction& instruction, size_t first, size_t rows) {
  const auto& layer = model_->constants[instruction.in[1].id];
  const size_t chosen = width(space, instruction.in[0].id);
  const auto ids = numbers(space, instruction.in[0].id, first, rows);
  const auto ahead = static_cast<unsigned>(instruction.node->number) - 1;
  auto& store = *model_->experts;
  std::vector<uint32_t> named, of_row;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || static_cast<size_t>(ids[i]) >= layer.members) continue;
    named.push_back(static_cast<uint32_t>(ids[i]));
    of_row.push_back(static_cast<uint32_t>(i / chosen));
  }
  auto wanted = named;
  std::sort(wanted.begin(), wanted.end());
  wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
  std::vector<uint32_t> held;
  std::copy_if(wanted.begin(), wanted.end(), std::back_inserter(held),
               [&](uint32_t expert) { return holds_expert(layer.layer, expert); });
  if (ahead == 0) store.routed(layer.layer, named, of_row, held);
  if (ahead > 0) store.predicted(layer.layer, ahead, wanted);
  std::erase_if(wanted, [&](uint32_t expert) { return std::binary_search(held.begin(), held.end(), expert); });
  store.want(layer.layer, wanted,
             ahead == 0   ? experts::Reason::demand
             : ahead == 1 ? experts::Reason::ahead1
                          : experts::Reason::ahead2);
}

}  // namespace continuo
