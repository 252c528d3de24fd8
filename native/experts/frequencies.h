// How often the experts of a store are used: what tells the policy of the cache which to keep, and the warm-up which to
// read first. A hint: a table that is lost costs time.
//
// A layer counts the tokens it routed, c. An expert has a frequency f, and the c of its last use. A use at c makes
// f · 0.999^(c − last) + 0.001 of f: the share of the last thousand tokens, about, that used it.
//
// In the file frequencies.bin, little-endian:
//
//   0    "CNTNFRQ1"
//   8    u32 version 1, u32 layers
//   16   u64 numbers
//   24   32 bytes: the digest of the store
//   56   f32 each: f · 0.999^age of all experts, by layer, then expert
//   end  u64 checksum of all before
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace continuo::experts {

class Frequencies {
 public:
  // `experts` of each layer.
  explicit Frequencies(std::span<const size_t> experts);

  // Of layers by their place in the store.
  uint64_t tokens(size_t layer) const { return layers_[layer].tokens; }
  void route(size_t layer, uint64_t tokens) { layers_[layer].tokens += tokens; }
  // The use of an expert by token c of the layer (from 1); of one expert ascending.
  void use(size_t layer, size_t expert, uint64_t c);
  // f now.
  double frequency(size_t layer, size_t expert) const;
  // f · 1/(1 + age) now.
  double worth(size_t layer, size_t expert) const;
  // The same, as if the expert were used by the next token.
  double worth_if_used(size_t layer, size_t expert) const;

  std::vector<std::byte> encode(const std::string& digest) const;
  // A sentence says what is wrong; then nothing was changed.
  Status decode(std::span<const std::byte> bytes, const std::string& digest);

 private:
  struct Expert {
    float f = 0;
    uint64_t last = 0;
  };
  struct Layer {
    size_t first;  // in experts_
    size_t count;
    uint64_t tokens = 0;
  };
  std::vector<Layer> layers_;
  std::vector<Expert> experts_;
};

}  // namespace continuo::experts
