// Products with the experts of a store. Each expert is multiplied once for all rows that go to it, in whatever order
// the experts arrive: no row knows of another, and what an expert gives a row is kept apart from what the others give.
#include <algorithm>
#include <iterator>

#include "experts/cache.h"
#include "runtime/executor/executor.h"
#include "runtime/executor/routes.h"
#include "runtime/executor/wanted_experts.h"

namespace continuo {

std::span<const int32_t> Executor::numbers(Space& space, uint32_t id, size_t first, size_t rows) {
  return {reinterpret_cast<const int32_t*>(look_at(space, id, first, rows)), rows * width(space, id)};
}

Executor::WantedExperts::WantedExperts(Executor& executor, Space& space, const Instruction& instruction,
                                       std::function<void(uint32_t, std::span<const size_t>)> multiplied)
    : store(*executor.model_->experts),
      layer(executor.model_->constants[instruction.in[2].id].layer),
      chosen(executor.width(space, instruction.in[1].id)),
      executor_(executor),
      space_(space),
      instruction_(instruction),
      multiplied_(std::move(multiplied)) {}

void Executor::WantedExperts::add_rows(size_t first, size_t rows) {
  if (rows == 0) return;
  auto [routes, lost] = routes_of(executor_.numbers(space_, instruction_.in[1].id, first, rows),
                                  executor_.model_->constants[instruction_.in[2].id].members);
  const auto absolute = [&](std::vector<size_t>& places) {
    for (auto& place : places) place += first * chosen;
  };
  absolute(lost);
  if (!lost.empty()) executor_.no_expert(space_, instruction_, lost);
  for (auto& route : routes) {
    absolute(route.places);
    add(static_cast<uint32_t>(route.matrix), std::move(route.places));
  }
}

void Executor::WantedExperts::add(uint32_t expert, std::vector<size_t> places) {
  auto& known = places_[expert];
  if (known.empty()) experts_.push_back(expert);
  known.insert(known.end(), places.begin(), places.end());
}

void Executor::WantedExperts::demand() {
  for (const uint32_t expert : std::vector(experts_)) {
    if (executor_.holds_expert(layer, expert)) multiply(expert, {});
  }
  store.want(layer, experts_, experts::Reason::demand);
}

bool Executor::WantedExperts::take(std::span<const uint32_t> of, bool wait) {
  if (of.empty()) return false;
  auto loan = wait ? store.take(layer, of) : store.take_ready(layer, of);
  if (!loan) {
    store.unwant(layer, experts_);
    throw DeviceError(loan.error().message);
  }
  if (loan->empty()) return false;
  multiply(of[loan->index], std::move(*loan));
  return true;
}

void Executor::WantedExperts::multiply(uint32_t expert, experts::Loan loan) {
  const auto found = places_.find(expert);
  if (multiplied_) multiplied_(expert, found->second);
  executor_.multiply_expert(space_, instruction_, expert, std::move(loan), found->second);
  places_.erase(found);
  std::erase(experts_, expert);
}

void Executor::experts(Space& space, const Instruction& instruction, size_t first, size_t rows) {
  WantedExperts wanted(*this, space, instruction);
  wanted.add_rows(first, rows);
  wanted.demand();
  while (wanted.take(true)) {}
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
