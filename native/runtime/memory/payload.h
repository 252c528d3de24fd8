// The payload of an archived block: keys and values of B tokens in all layers, un-rotated. Little-endian:
//
//   0   "CNTB"        4   u16 version 1      6   u16 dtype (0 f8, 1 f16, 2 f32)
//   8   u32 B, L, G, d, number of the block
//   28  of f8: i8 exponents [L, 2, G], keys before values; then zeros to a multiple of 64
//   …   codes [L, 2, G, B, d]
//
// f8: a head's numbers x of the block are stored as the E4M3 cast (base/cast.h) of x · 2^−e, where e is the smallest
// whole number with max |x| ≤ 448 · 2^e, at least −120 and at most 120; 0 where all are 0. A power of two, so that
// nothing but the cast rounds: code · 2^e is exact in f32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "base/threads.h"
#include "graph/external_memory.h"
#include "runtime/model/list_rows.h"

namespace continuo {

class Payload {
 public:
  explicit Payload(const ExternalMemory& memory);

  size_t bytes() const { return bytes_; }
  // row(layer, which, token, room) gives [C] f32, perhaps in `room` of that size; it is called by the pool's threads.
  // Returns the sums of squares of the keys and of the values as they are decoded.
  struct Squares {
    double keys = 0, values = 0;
  };
  using RowOf = std::function<const float*(size_t, size_t, size_t, float*)>;
  Squares encode(uint32_t block, const RowOf& row, ThreadPool& pool, std::span<std::byte> out) const;
  // The row of a token, but for where it goes. Nothing is read: the payload may be elsewhere.
  ListRow row(const std::byte* payload, size_t token) const;

 private:
  // A head's row [d]; `exponent` counts where the codes are f8. Adds to the sum of squares.
  void encode_row(const float* row, std::byte* codes, int exponent, double& squares) const;
  size_t group(size_t layer, size_t which, size_t head) const {
    return (layer * keys_and_values + which) * memory_.key_heads + head;
  }
  size_t codes_at(size_t layer, size_t which, size_t head) const {
    return codes_ + group(layer, which, head) * memory_.block * memory_.channels * size_of(memory_.cold);
  }

  const ExternalMemory& memory_;
  size_t codes_, bytes_;
};

// The smallest whole number e with `most` ≤ 448 · 2^e, −120 … 120; 0 for 0.
int f8_exponent(float most);

}  // namespace continuo
