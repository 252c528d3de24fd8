// The slots of an ngram memory (graph/ngram.h): of each context that was seen, the tokens that followed it. Whole
// numbers only, so the same on every device. Before including it, define CONTINUO_INLINE.
#pragma once

#include <cstddef>
#include <cstdint>

#include "graph/ngram.h"

namespace continuo::ngram {

// Two words of the table `slots`. All contexts share the table.
struct Slot {
  using Check = uint16_t;
  Check check;  // of the context's hash; 0: free. Its two low bits: which of the tokens came last
  uint8_t token[ranks];
  uint8_t count[ranks];  // the most frequent first; 0: none

  CONTINUO_INLINE uint32_t token_at(size_t rank) const { return token[rank]; }
  CONTINUO_INLINE uint32_t count_at(size_t rank) const { return count[rank]; }
  CONTINUO_INLINE void put(size_t rank, uint32_t of, uint32_t n) {
    token[rank] = static_cast<uint8_t>(of), count[rank] = static_cast<uint8_t>(n);
  }
  static CONTINUO_INLINE Check check_of(uint64_t key) { return static_cast<Check>((key >> 50 | 4) & 0xfffc); }
};
static_assert(sizeof(Slot) == 8);

// The same of subwords, in four words.
struct SubwordSlot {
  using Check = uint32_t;
  Check check;
  uint32_t entry[ranks];  // 24 bits of token, 8 of count

  CONTINUO_INLINE uint32_t token_at(size_t rank) const { return entry[rank] >> 8; }
  CONTINUO_INLINE uint32_t count_at(size_t rank) const { return entry[rank] & 0xff; }
  CONTINUO_INLINE void put(size_t rank, uint32_t of, uint32_t n) { entry[rank] = of << 8 | n; }
  // Bits that do not choose the place.
  static CONTINUO_INLINE Check check_of(uint64_t key) {
    return (static_cast<Check>(key >> 52 | key << 12) & ~Check{3}) | 4;
  }
};
static_assert(sizeof(SubwordSlot) == 16);

constexpr uint32_t most_count = 250;

// The token followed: its count rises, the others' fall; a token that is not there takes the place of the rarest.
template <class Slot> CONTINUO_INLINE void count_token(Slot& slot, uint32_t token) {
  const auto set = [&](size_t rank, uint32_t n) { slot.put(rank, slot.token_at(rank), n); };
  size_t rank = 0;
  while (rank < ranks && !(slot.count_at(rank) > 0 && slot.token_at(rank) == token)) ++rank;
  if (rank < ranks) {
    if (slot.count_at(rank) < most_count) set(rank, slot.count_at(rank) + 1);
    for (size_t i = 0; i < ranks; ++i) {
      const uint32_t n = slot.count_at(i);
      if (i != rank && n > 1) {
        const uint32_t half = (n + 1) / 2;
        set(i, half + (half > 6 ? half / 4 : 0));
      }
    }
  } else {
    rank = slot.count_at(0) == 0 ? 0 : slot.count_at(1) == 0 ? 1 : 2;
    slot.put(rank, token, 1);
    for (size_t i = 0; i < rank; ++i) {
      const uint32_t n = slot.count_at(i);
      if (n > 2) set(i, n - n / 4);
    }
  }
  for (; rank > 0 && slot.count_at(rank) >= slot.count_at(rank - 1); --rank) {
    const uint32_t other = slot.token_at(rank - 1), n = slot.count_at(rank - 1);
    slot.put(rank - 1, slot.token_at(rank), slot.count_at(rank));
    slot.put(rank, other, n);
  }
  slot.check = static_cast<typename Slot::Check>((slot.check & ~typename Slot::Check{3}) | rank);
}

// The first of the two places where a context may be.
CONTINUO_INLINE size_t slot_pair(size_t count, uint64_t key) {
  return static_cast<size_t>((key >> 20 & 0xffffffff) * count >> 32) & ~size_t{1};
}

// The slot of a context that is there; −1 where it is not. Changes nothing.
template <class Slot> CONTINUO_INLINE int32_t known_slot(const Slot* slots, size_t count, uint64_t key) {
  const size_t first = slot_pair(count, key);
  const auto check = Slot::check_of(key);
  for (size_t i = 0; i < 2; ++i) {
    if ((slots[first + i].check & ~typename Slot::Check{3}) == check) return static_cast<int32_t>(first + i);
  }
  return -1;
}

// The slot of a context, made anew where another one may go; −1 where a stronger one stays, which is weakened. Of two
// places the context takes that in which it is, else that of the weaker one.
template <class Slot> CONTINUO_INLINE int32_t find_slot(Slot* slots, size_t count, uint64_t key) {
  const int32_t known = known_slot(slots, count, key);
  if (known >= 0) return known;
  const size_t first = slot_pair(count, key);
  Slot* pair = slots + first;
  const auto strength = [](const Slot& slot) { return slot.check == 0 ? -1 : static_cast<int32_t>(slot.count_at(0)); };
  const size_t weaker = strength(pair[0]) <= strength(pair[1]) ? 0 : 1;
  Slot& slot = pair[weaker];
  if (const uint32_t n = slot.count_at(0); slot.check != 0 && n > 1) {
    slot.put(0, slot.token_at(0), n - (1 + n / 8));
    return -1;
  }
  slot = {};
  slot.check = Slot::check_of(key);
  return static_cast<int32_t>(first + weaker);
}

}  // namespace continuo::ngram
