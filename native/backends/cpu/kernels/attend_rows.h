// Attention of consecutive queries of one head: attend.h's rule and bits for each of them, with keys and values read
// once for several. Keys are turned, so that lanes are positions: a score's sixteen partial sums lie in sixteen
// vectors, which are joined by halving without a shuffle.
#pragma once

#include "backends/cpu/kernels/attend.h"
#include "backends/cpu/kernels/panels.h"

namespace continuo::CONTINUO_ISA {

// Queries for which keys are turned once, and positions that are turned at a time.
constexpr size_t query_rows = 32, turned_keys = 64;
// Queries × vectors of positions whose scores, and queries whose values, are summed in registers side by side.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr size_t score_rows = 2, score_vectors = 2, value_rows = 6;
#elif defined(__AVX2__)
constexpr size_t score_rows = 2, score_vectors = 1, value_rows = 3;
#else
constexpr size_t score_rows = 1, score_vectors = 1, value_rows = 2;
#endif

// Lanes of two rows of a square, `run` apart, after they have exchanged their off-diagonal runs of lanes.
template <size_t run, bool second, size_t... lane> CONTINUO_INLINE Vec exchanged(Vec a, Vec b, Lanes<lane...>) {
  return (Vec)__builtin_shuffle(
      a, b,
      Ints{static_cast<int32_t>((lane & run) == 0 ? lane + (second ? run : 0) : width + lane - (second ? 0 : run))...});
}

// Lane j of row i becomes lane i of row j.
template <size_t run = width / 2> CONTINUO_INLINE void turn(Vec* rows) {
#pragma GCC unroll 16
  for (size_t i = 0; i < width; ++i) {
    if ((i & run) != 0) continue;
    const Vec a = rows[i], b = rows[i + run];
    rows[i] = exchanged<run, false>(a, b, AllLanes{});
    rows[i + run] = exchanged<run, true>(a, b, AllLanes{});
  }
  if constexpr (run > 1) turn<run / 2>(rows);
}

// The channels of `count` keys as [channels][turned_keys]; what lies past the last key is zero. Returns the slot behind
// them.
inline Slot turn_keys(const Vectors& of, Slot slot, size_t count, size_t channels, float* turned) {
  for (size_t p = 0; p < turned_keys; p += width) {
    const float* keys[width];
    for (size_t which = 0; which < width; ++which) {
      keys[which] = p + which < count ? of.data + slot.at * of.stride : nullptr;
      if (keys[which]) slot.next();
    }
    size_t i = 0;
    for (; i + width <= channels; i += width) {
      Vec square[width];
#pragma GCC unroll 16
      for (size_t which = 0; which < width; ++which) square[which] = keys[which] ? load<Vec>(keys[which] + i) : Vec{};
      turn(square);
#pragma GCC unroll 16
      for (size_t which = 0; which < width; ++which) store(turned + (i + which) * turned_keys + p, square[which]);
    }
    for (; i < channels; ++i) {
      for (size_t which = 0; which < width; ++which)
        turned[i * turned_keys + p + which] = keys[which] ? keys[which][i] : 0.0f;
    }
  }
  return slot;
}

template <size_t Rows, size_t Vectors> struct Scores {
  Vec at[Rows][Vectors];
};

// q · k of some queries and turned keys: of the partial sums over the channels (reduce.h), what has been joined into
// `lane` once `half` of them are left.
template <size_t half, size_t lane, size_t Rows, size_t Vectors>
CONTINUO_INLINE Scores<Rows, Vectors> halved(const float* q, size_t stride, const float* turned, size_t channels) {
  Scores<Rows, Vectors> out{};
  if constexpr (half == partials) {
    for (size_t i = lane; i < channels; i += partials) {
      Vec keys[Vectors];
#pragma GCC unroll 16
      for (size_t v = 0; v < Vectors; ++v) keys[v] = load<Vec>(turned + i * turned_keys + v * width);
#pragma GCC unroll 16
      for (size_t r = 0; r < Rows; ++r) {
        const Vec value = splat<Vec>(q[r * stride + i]);
#pragma GCC unroll 16
        for (size_t v = 0; v < Vectors; ++v) out.at[r][v] = fma(value, keys[v], out.at[r][v]);
      }
    }
  } else {
    out = halved<half * 2, lane, Rows, Vectors>(q, stride, turned, channels);
    const auto other = halved<half * 2, lane + half, Rows, Vectors>(q, stride, turned, channels);
#pragma GCC unroll 16
    for (size_t r = 0; r < Rows; ++r) {
#pragma GCC unroll 16
      for (size_t v = 0; v < Vectors; ++v) out.at[r][v] += other.at[r][v];
    }
  }
  return out;
}

// At most `query_rows` queries of at most `block_terms` channels.
inline void attend_few(const AttendRows& run) {
  alignas(64) float turned[block_terms * turned_keys];
  alignas(64) float scores[query_rows][block_terms];
  Widened wide;
  AttendSums sums[query_rows];
  const size_t end = run.part.last + run.rows - 1;
  for (size_t first = run.part.first; first < end;) {
    size_t last = (first / block_terms + 1) * block_terms;
    if (last > end) last = end;
    const AttendPart& part = run.part;
    const Vectors keys = keys_of(part, first, last - first, run.channels, wide);
    // Positions of the block that a query sees, and the first query that sees one from `p` on.
    const auto seen = [&](size_t row) { return least(last, part.last + row) - first; };
    const auto seeing = [&](size_t p) { return p < part.last ? 0 : p - part.last + 1; };
    Slot slot = keys.first;
    for (size_t p = 0; first + p < last; p += turned_keys) {
      const size_t count = least(turned_keys, last - first - p);
      slot = turn_keys(keys, slot, count, run.channels, turned);
      const size_t from = seeing(first + p);
      each_panel<score_rows>(run.rows - from, [&]<size_t Rows>(size_t row) CONTINUO_LAMBDA {
        for (size_t lane = 0; lane < count; lane += score_vectors * width) {
          const auto dots = halved<1, 0, Rows, score_vectors>(part.q + (from + row) * run.stride, run.stride,
                                                              turned + lane, run.channels);
#pragma GCC unroll 16
          for (size_t r = 0; r < Rows; ++r) {
#pragma GCC unroll 16
            for (size_t v = 0; v < score_vectors; ++v)
              store(scores[from + row + r] + p + lane + v * width, splat<Vec>(run.scale) * (Vec{} + dots.at[r][v]));
          }
        }
      });
    }
    const size_t from = seeing(first);
    Weighed queries[query_rows];
    for (size_t row = from; row < run.rows; ++row) {
      const bool begun = sums[row].begun;
      const float carry = attend_weights(scores[row], first, seen(row), sums[row]);
      queries[row] = {scores[row], seen(row), run.y + row * run.stride, begun, carry};
    }
    const Vectors values = values_of(part, first, last - first, run.channels, wide);
    each_panel<value_rows>(run.rows - from, [&]<size_t Rows>(size_t row) CONTINUO_LAMBDA {
      attend_values<Rows>(run.channels, values, queries + from + row);
    });
    first = last;
  }
  for (size_t row = 0; row < run.rows; ++row) {
    float* y = run.y + row * run.stride;
    map(run.channels, y, [&](auto each) CONTINUO_LAMBDA { return each / splat<decltype(each)>(sums[row].total); }, y);
  }
}

inline void attend_rows(const AttendRows& run) {
  const auto from = [&](size_t row, size_t rows) {
    AttendRows some = run;
    some.part.q += row * run.stride;
    some.part.last += row;
    some.y += row * run.stride;
    some.rows = rows;
    return some;
  };
  if (run.channels > block_terms) {
    for (size_t row = 0; row < run.rows; ++row) {
      const AttendRows one = from(row, 1);
      attend({{one.part}, 1, one.y, run.channels, run.scale});
    }
    return;
  }
  for (size_t row = 0; row < run.rows; row += query_rows) attend_few(from(row, least(query_rows, run.rows - row)));
}

}  // namespace continuo::CONTINUO_ISA
