// The slots of an ngram memory (graph/ngram.h): of each context that was seen, the tokens that followed it. Whole
// numbers only, so the same on every device. Before including it, define CONTINUO_INLINE.
#pragma once

#include <cstddef>
#include <cstdint>

#include "graph/ngram.h"

namespace continuo::ngram {

// Two words of the table `slots`. All contexts share the table.
struct Slot {
  uint16_t check;  // of the context's hash; 0: free. Its two low bits: which of the tokens came last
  uint8_t token[ranks];
  uint8_t count[ranks];  // the most frequent first; 0: none

  CONTINUO_INLINE bool is(uint16_t wanted) const { return (check & ~3) == wanted; }
};
static_assert(sizeof(Slot) == 8);

constexpr uint32_t most_count = 250;

CONTINUO_INLINE void exchange(Slot& slot, size_t a, size_t b) {
  const uint8_t token = slot.token[a], count = slot.count[a];
  slot.token[a] = slot.token[b], slot.count[a] = slot.count[b];
  slot.token[b] = token, slot.count[b] = count;
}

// The token followed: its count rises, the others' fall; a token that is not there takes the place of the rarest.
CONTINUO_INLINE void count_token(Slot& slot, uint8_t token) {
  size_t rank = 0;
  while (rank < ranks && !(slot.count[rank] > 0 && slot.token[rank] == token)) ++rank;
  if (rank < ranks) {
    if (slot.count[rank] < most_count) ++slot.count[rank];
    for (size_t i = 0; i < ranks; ++i) {
      const uint32_t n = slot.count[i];
      if (i != rank && n > 1) {
        const uint32_t half = (n + 1) / 2;
        slot.count[i] = static_cast<uint8_t>(half + (half > 6 ? half / 4 : 0));
      }
    }
  } else {
    rank = slot.count[0] == 0 ? 0 : slot.count[1] == 0 ? 1 : 2;
    slot.token[rank] = token, slot.count[rank] = 1;
    for (size_t i = 0; i < rank; ++i) {
      if (slot.count[i] > 2) slot.count[i] = static_cast<uint8_t>(slot.count[i] - slot.count[i] / 4);
    }
  }
  for (; rank > 0 && slot.count[rank] >= slot.count[rank - 1]; --rank) exchange(slot, rank, rank - 1);
  slot.check = static_cast<uint16_t>((slot.check & ~3) | rank);
}

// The places where a context may be, and what its slot has as `check`.
struct SlotPlace {
  size_t first;
  uint16_t check;

  CONTINUO_INLINE SlotPlace(size_t count, uint64_t key)
      : first(static_cast<size_t>((key >> 20 & 0xffffffff) * count >> 32) & ~size_t{1}),
        check(static_cast<uint16_t>((key >> 50 | 4) & 0xfffc)) {}
};

// The slot of a context that is there; −1 where it is not. Changes nothing.
CONTINUO_INLINE int32_t known_slot(const Slot* slots, size_t count, uint64_t key) {
  const SlotPlace place(count, key);
  for (size_t i = 0; i < 2; ++i) {
    if (slots[place.first + i].is(place.check)) return static_cast<int32_t>(place.first + i);
  }
  return -1;
}

// The slot of a context, made anew where another one may go; −1 where a stronger one stays, which is weakened. Of two
// places the context takes that in which it is, else that of the weaker one.
CONTINUO_INLINE int32_t find_slot(Slot* slots, size_t count, uint64_t key) {
  const int32_t known = known_slot(slots, count, key);
  if (known >= 0) return known;
  const SlotPlace place(count, key);
  Slot* pair = slots + place.first;
  const auto strength = [](const Slot& slot) { return slot.check == 0 ? -1 : static_cast<int32_t>(slot.count[0]); };
  const size_t weaker = strength(pair[0]) <= strength(pair[1]) ? 0 : 1;
  Slot& slot = pair[weaker];
  if (slot.check != 0 && slot.count[0] > 1) {
    slot.count[0] = static_cast<uint8_t>(slot.count[0] - (1 + slot.count[0] / 8));
    return -1;
  }
  slot = {};
  slot.check = place.check;
  return static_cast<int32_t>(place.first + weaker);
}

}  // namespace continuo::ngram
