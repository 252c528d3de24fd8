// Keys and values as a table stores them: the address of a position's keys or values, widening of stored numbers to
// f32, and software prefetch.
#pragma once

#include "backends/cpu/kernels/panels.h"

namespace continuo::CONTINUO_ISA {

// The place of a position, and of the one after it: a ring begins again, and nothing divides by its length on the way.
struct Slot {
  size_t at, slots;
  void next() {
    if (++at == slots) at = 0;
  }
  // By no more than are left before it begins again.
  void skip(size_t positions) {
    at += positions;
    if (at == slots) at = 0;
  }
};

// The keys or values of consecutive positions: those of a position lie at slot · stride.
template <class S> struct Vectors {
  const S* data;
  size_t stride;
  Slot first;
  // Of another head, from `positions` later on; of these there are fewer than slots.
  CONTINUO_INLINE Vectors at(size_t positions, size_t channel) const {
    const size_t slot = first.at + positions;
    return {data + channel, stride, {slot < first.slots ? slot : slot - first.slots, first.slots}};
  }
};

// Those of positions of one block, from `position` on.
template <class S>
CONTINUO_INLINE Vectors<S> vectors(const AttendPart& part, const void* data, const BlockList& list, size_t position) {
  if (!list.blocks) return {static_cast<const S*>(data), part.stride, {position % part.slots, part.slots}};
  const auto* first =
      reinterpret_cast<const S*>(list.at(position / block_positions * block_positions, part.stride, sizeof(S)));
  return {first, part.stride, {position % block_positions, block_positions}};
}
template <class S> CONTINUO_INLINE Vectors<S> keys_of(const AttendPart& part, size_t position) {
  return vectors<S>(part, part.keys, part.key_blocks, position);
}
template <class S> CONTINUO_INLINE Vectors<S> values_of(const AttendPart& part, size_t position) {
  return vectors<S>(part, part.values, part.value_blocks, position);
}

// The part from a later channel on.
template <class S> CONTINUO_INLINE AttendPart of_head(AttendPart part, size_t channel) {
  if (part.keys) part.keys = static_cast<const S*>(part.keys) + channel;
  if (part.values) part.values = static_cast<const S*>(part.values) + channel;
  part.key_blocks.channel += channel;
  part.value_blocks.channel += channel;
  return part;
}

// Calls run.operator()<S>() for the numbers of a part.
template <class Run> CONTINUO_INLINE void as_stored(Dtype dtype, const Run& run) {
  if (dtype == Dtype::f32)
    run.template operator()<float>();
  else if (dtype == Dtype::f16)
    run.template operator()<F16>();
  else
    run.template operator()<Bf16>();
}

// A stored number, widened exactly, or as many as T has.
template <class T> CONTINUO_INLINE T widened(const float* p) { return load<T>(p); }
template <class T, class S> CONTINUO_INLINE T widened(const S* p) {
  if constexpr (sizeof(T) > sizeof(float)) {
    return load_weights(p);
  } else {
    // The numbers behind it may be another's memory.
    const S alone[width] = {*p};
    return load_weights(alone)[0];
  }
}

// Positions whose pieces are prefetched in one call of Fetch::positions().
constexpr size_t fetched_positions = 4;
// Software prefetch of the rows of keys or values that are read next: with every position of a head that is read, one
// head's piece of a coming row is prefetched, in the order of memory. The hardware prefetchers do not see that order
// where heads are read one by one. positions() runs in the innermost loops, so it takes a few instructions a piece.
// Prefetches go to the second-level cache, a few positions at a time: a core has some two dozen fill buffers for its
// first-level cache, and a burst that needs more of them stalls it.
struct Fetch {
  const char *data = nullptr, *at = nullptr;  // the first slot, and the next piece
  size_t stride = 0;                          // from one row to the next, bytes
  Slot slot = {};
  size_t rows = 0;              // that are left, with this one
  size_t pieces = 0, left = 0;  // of a row, and of this one
  size_t bytes = 0;             // of a piece
  CONTINUO_INLINE void positions(size_t count) {
    constexpr int to_second_cache = 2;
    for (; count > 0 && rows > 0; --count) {
      for (size_t line = 0; line < bytes; line += 64) __builtin_prefetch(at + line, 0, to_second_cache);
      at += bytes;
      if (--left > 0) continue;
      left = pieces;
      slot.next();
      at = data + slot.at * stride;
      --rows;
    }
  }
};
template <class S> CONTINUO_INLINE Fetch fetch(const Vectors<S>& of, size_t heads, size_t channels, size_t count) {
  const auto* data = reinterpret_cast<const char*>(of.data);
  const size_t stride = of.stride * sizeof(S);
  return {data, data + of.first.at * stride, stride, of.first, count, heads, heads, channels * sizeof(S)};
}

}  // namespace continuo::CONTINUO_ISA
