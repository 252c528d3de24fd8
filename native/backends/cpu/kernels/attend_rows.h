// Attention of consecutive queries of the heads that share keys and values: attend.h's rule and bits for each of them,
// with keys and values read once for many. Keys are turned, so that lanes are positions: a score's sixteen partial sums
// lie in sixteen vectors, which are joined by halving without a shuffle.
#pragma once

#include <cstdint>

#include "backends/cpu/kernels/attend_few.h"

namespace continuo::CONTINUO_ISA {

// Queries for which keys are turned and values widened once.
constexpr size_t most_queries = 128;
// Queries × vectors of positions whose scores, and queries whose values, are summed in registers side by side.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr size_t score_rows = 6, score_vectors = 1, value_rows = 6;
#elif defined(__AVX2__)
constexpr size_t score_rows = 2, score_vectors = 2, value_rows = 2;
#else
constexpr size_t score_rows = 1, score_vectors = 1, value_rows = 2;
#endif
// Positions whose keys are turned at a time: few enough that they stay in the first cache for all queries.
constexpr size_t turned_keys = score_vectors * width;

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
template <class S>
CONTINUO_INLINE Slot turn_keys(const Vectors<S>& of, Slot slot, size_t count, size_t channels, float* turned) {
  for (size_t p = 0; p < turned_keys; p += width) {
    const S* keys[width];
    for (size_t which = 0; which < width; ++which) {
      keys[which] = p + which < count ? of.data + slot.at * of.stride : nullptr;
      if (keys[which]) slot.next();
    }
    size_t i = 0;
    for (; i + width <= channels; i += width) {
      Vec square[width];
#pragma GCC unroll 16
      for (size_t which = 0; which < width; ++which)
        square[which] = keys[which] ? load_weights(keys[which] + i) : Vec{};
      turn(square);
#pragma GCC unroll 16
      for (size_t which = 0; which < width; ++which) store(turned + (i + which) * turned_keys + p, square[which]);
    }
    for (; i < channels; ++i) {
      for (size_t which = 0; which < width; ++which)
        turned[i * turned_keys + p + which] = keys[which] ? widened<float>(keys[which] + i) : 0.0f;
    }
  }
  return slot;
}

// The channels of `count` positions side by side.
template <class S> CONTINUO_INLINE void widen(const Vectors<S>& of, size_t count, size_t channels, float* to) {
  Slot slot = of.first;
  for (size_t p = 0; p < count; ++p, slot.next(), to += channels) {
    const S* row = of.data + slot.at * of.stride;
    size_t i = 0;
    for (; i + width <= channels; i += width) store(to + i, load_weights(row + i));
    for (; i < channels; ++i) to[i] = widened<float>(row + i);
  }
}

template <size_t Rows, size_t Count> struct Scores {
  Vec at[Rows][Count];
};

// q · k of some queries and turned keys: of the partial sums over the channels (reduce.h), what has been joined into
// `lane` once `half` of them are left.
template <size_t half, size_t lane, size_t Rows, size_t Count>
CONTINUO_INLINE Scores<Rows, Count> halved(const Looking* queries, const float* turned, size_t channels) {
  Scores<Rows, Count> out{};
  if constexpr (half == partials) {
    for (size_t i = lane; i < channels; i += partials) {
      Vec keys[Count];
#pragma GCC unroll 16
      for (size_t v = 0; v < Count; ++v) keys[v] = load<Vec>(turned + i * turned_keys + v * width);
#pragma GCC unroll 16
      for (size_t r = 0; r < Rows; ++r) {
        const Vec value = splat<Vec>(queries[r].q[i]);
#pragma GCC unroll 16
        for (size_t v = 0; v < Count; ++v) out.at[r][v] = fma(value, keys[v], out.at[r][v]);
      }
    }
  } else {
    out = halved<half * 2, lane, Rows, Count>(queries, turned, channels);
    const auto other = halved<half * 2, lane + half, Rows, Count>(queries, turned, channels);
#pragma GCC unroll 16
    for (size_t r = 0; r < Rows; ++r) {
#pragma GCC unroll 16
      for (size_t v = 0; v < Count; ++v) out.at[r][v] += other.at[r][v];
    }
  }
  return out;
}

// Σ w_p v_p of queries, from values [position][channels].
inline void sum_values(const float* wide, size_t channels, const Weighed* queries, size_t rows, Fetch& next) {
  const Vectors<float> values{wide, channels, {0, block_terms}};
  each_panel<value_rows>(rows, [&]<size_t Rows>(size_t row) CONTINUO_LAMBDA {
    attend_values<Rows>(channels, values, queries + row, {0, block_terms, true}, next);
  });
}

// Scores of queries at as many positions as keys are turned.
inline void turned_scores(const Looking* queries, size_t rows, const float* turned, size_t channels, float scale,
                          float* scores) {
  each_panel<score_rows>(rows, [&]<size_t Rows>(size_t row) CONTINUO_LAMBDA {
    const auto dots = halved<1, 0, Rows, score_vectors>(queries + row, turned, channels);
#pragma GCC unroll 16
    for (size_t r = 0; r < Rows; ++r) {
#pragma GCC unroll 16
      for (size_t v = 0; v < score_vectors; ++v)
        store(scores + (row + r) * block_terms + v * width, splat<Vec>(scale) * (Vec{} + dots.at[r][v]));
    }
  });
}

// The scores of queries at the positions of a block, [most_queries][block_terms]; of the queries those from `seeing` on
// see the block.
struct ExactMany : Exact {
  template <class S> static void scores(const Vectors<S>& keys, const Looking* queries, size_t rows, size_t first,
                                        size_t last, size_t seeing, size_t channels, float scale,
                                        float (*out)[block_terms], Fetch& next) {
    alignas(64) float turned[block_terms * turned_keys];
    Slot slot = keys.first;
    for (size_t p = 0, from = seeing; first + p < last; p += turned_keys) {
      const size_t count = least(turned_keys, last - first - p);
      slot = turn_keys(keys, slot, count, channels, turned);
      next.positions(count);
      while (queries[from].last <= first + p) ++from;
      turned_scores(queries + from, rows - from, turned, channels, scale, out[from] + p);
    }
  }
};

// At most `most_queries` queries of at most `block_terms` channels.
template <class S, class Order>
inline void attend_many(const AttendPart& part, Looking* queries, size_t rows, size_t channels, float scale) {
  alignas(64) float scores[most_queries][block_terms];
  alignas(64) float wide[block_terms * block_terms];
  const size_t end = queries[rows - 1].last;
  each_block(part.first, queries, rows, [&](size_t first, size_t last, size_t seeing) {
    const Vectors<S> keys = keys_of<S>(part, first), values = values_of<S>(part, first);
    Fetch of_values = fetch(values, 1, channels, last - first);
    Order::scores(keys, queries, rows, first, last, seeing, channels, scale, scores, of_values);
    Weighed weights[most_queries];
    for (size_t row = seeing; row < rows; ++row)
      weights[row] = weighed<Order>(queries[row], scores[row], nullptr, first, last);
    widen(values, last - first, channels, wide);
    Fetch of_keys{};
    if (last < end) of_keys = fetch(keys_of<S>(part, last), 1, channels, least(block_terms, end - last));
    sum_values(wide, channels, weights + seeing, rows - seeing, of_keys);
  });
}

// The queries from number `from` to before `to` of a head of keys.
CONTINUO_INLINE void look(const AttendRows& run, size_t key_head, size_t from, size_t to, Looking* queries) {
  for (size_t i = from; i < to; ++i) {
    const size_t row = i / run.heads;
    const size_t at = row * run.stride + (key_head * run.heads + i % run.heads) * run.channels;
    *queries++ = {run.part.q + at, run.y + at, run.part.last + row, {}};
  }
}

template <class Order = ExactMany> inline void attend_rows(const AttendRows& run) {
  const size_t all = run.rows * run.heads;
  const bool few = all <= few_queries || run.channels > block_terms;
  // Queries and heads of keys that go together; in pieces of equal size.
  const size_t most = few ? few_queries : most_queries, together = few ? most_few / least(all, few_queries) : 1;
  const size_t pieces = (all + most - 1) / most;
  static_assert(most_few <= most_queries);
  Looking queries[most_queries];
  for (size_t head = 0; head < run.key_heads; head += together) {
    const size_t heads = least(together, run.key_heads - head);
    for (size_t piece = 0; piece < pieces; ++piece) {
      const size_t from = all * piece / pieces, to = all * (piece + 1) / pieces, count = to - from;
      for (size_t h = 0; h < heads; ++h) look(run, head + h, from, to, queries + h * count);
      as_stored(run.part.dtype, [&]<class S>() {
        const AttendPart part = of_head<S>(run.part, head * run.channels);
        if (few)
          attend_few<S, Order>({part, queries, heads, count, run.channels, run.scale});
        else
          attend_many<S, Order>(part, queries, count, run.channels, run.scale);
      });
      for (size_t i = 0; i < heads * count; ++i) Order::end(queries[i], run.channels);
    }
  }
}

}  // namespace continuo::CONTINUO_ISA
