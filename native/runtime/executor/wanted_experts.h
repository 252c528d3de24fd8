// The experts of a store that rows of a step go to, until each was multiplied.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "experts/cache.h"
#include "runtime/executor/executor.h"

namespace continuo {

// A place is the number of a row times the experts that a row goes to, plus the place among those.
class Executor::WantedExperts {
 public:
  using Places = std::map<uint32_t, std::vector<size_t>>;  // of each expert those that wait for it

  // `multiplied` is called with the places of each expert before its product.
  WantedExperts(Executor& executor, Space& space, const Instruction& instruction,
                std::function<void(uint32_t expert, std::span<const size_t> places)> multiplied = {});

  // Adds the experts that rows first … first + rows − 1 were routed to. Places without an expert get NaN.
  void add_rows(size_t first, size_t rows);
  void add(uint32_t expert, std::vector<size_t> places);
  const Places& places() const { return places_; }
  const std::vector<uint32_t>& experts() const { return experts_; }
  bool empty() const { return experts_.empty(); }

  // Multiplies those that the device holds, and asks the store for the others.
  void demand();
  // Multiplies one that is in memory; with `wait` waits for it. False: there is none. Throws DeviceError where it
  // cannot be read.
  bool take(bool wait) { return take(experts_, wait); }
  bool take(std::span<const uint32_t> of, bool wait);

  experts::ExpertCache& store;
  const uint32_t layer;  // of the store
  const size_t chosen;   // experts that a row goes to

 private:
  void multiply(uint32_t expert, experts::Loan loan);

  Executor& executor_;
  Space& space_;
  const Instruction& instruction_;
  const std::function<void(uint32_t, std::span<const size_t>)> multiplied_;
  Places places_;
  std::vector<uint32_t> experts_;  // the keys of places_
};

}  // namespace continuo
