// The hyperdimensional memory of a perspective model: vectors of bits, and banks of counters (Kanerva 2009;
// docs/perspective.md says where it departs). Bits and small whole numbers only, so it is exact everywhere.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "graph/perspective.h"

namespace continuo {

class HyperSpace {
 public:
  using Bits = std::vector<uint64_t>;  // [bits / 64]

  HyperSpace(const HyperMemory& form, size_t channels, size_t vocabulary)
      : form_(form), channels_(channels), vocabulary_(vocabulary) {}

  // The key of a hidden vector as whole numbers [channels].
  Bits key(std::span<const int8_t> hidden) const;
  size_t bank_of(const Bits& key) const { return static_cast<size_t>(key[0] & (form_.banks - 1)); }
  // Adds a token to a bank [banks, bits], where its counters do not pass ±127. The bank.
  size_t bind(std::span<int8_t> banks, const Bits& key, int32_t token) const;

  struct Recalled {
    bool found = false;  // else all banks that were asked are empty
    int32_t token = 0;
    uint32_t distance = 0;
    size_t bank = 0;
    bool hit = false;
  };
  Recalled recall(std::span<const int8_t> banks, const Bits& key) const;

 private:
  size_t words() const { return form_.bits / 64; }
  // The vectors of all channels, and of all tokens, are made when they are first wanted.
  const std::vector<uint64_t>& basis() const;
  const std::vector<uint64_t>& items() const;

  const HyperMemory form_;
  const size_t channels_, vocabulary_;
  mutable std::once_flag basis_made_, items_made_;
  mutable std::vector<uint64_t> basis_, items_;
};

}  // namespace continuo
