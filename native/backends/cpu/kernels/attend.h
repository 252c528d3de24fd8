// Softmax attention of one query over the positions it sees. Positions are walked in blocks of 256 aligned to absolute
// position, whatever slot of a ring they lie in, and a block's part is joined to what came before with the running
// maximum m (Milakov, Gimelshein, "Online normalizer calculation for softmax", 2018):
//   s_p = scale · (q · k_p)                      the sum over channels in the order of reduce.h
//   m'  = max(m, max_p s_p);  c = exp(m − m')    0 for the first block
//   w_p = exp(s_p − m')
//   Z   = Z · c + Σ_p w_p                        sixteen partial sums by p mod 16, joined by halving
//   y_i = y_i · c + Σ_p w_p v_p[i]               by fma over p, ascending from 0; channels are the lanes
// and y / Z at the end. Several parts (learned keys, context, window) follow one another as if they were one row of
// blocks.
#pragma once

#include "backends/cpu/kernels/attend_stored.h"
#include "backends/cpu/kernels/elementwise.h"

namespace continuo::CONTINUO_ISA {

// What the blocks walked so far leave behind.
struct AttendSums {
  float m = 0.0f, total = 0.0f;
  bool begun = false;
  CONTINUO_INLINE void raise(float most_here) {
    m = !begun || most_here > m ? most_here : m;
    begun = true;
  }
};

// A query of a block: the weights of the positions it sees there, and where their values are summed.
struct Weighed {
  const float* weights;
  size_t count;
  float* y;
  float* sums;  // of the tiles so far; not needed where the only tile is joined
  bool begun;   // a block came before: y is carried over
  float carry;
};

// Positions of a block whose values are summed in one go.
struct Tile {
  size_t first, count;
  bool joined;  // behind it, y is joined with the sum of the block
  size_t seen_of(const Weighed& query) const { return query.count > first ? least(query.count - first, count) : 0; }
};

// Channels from `lane` on, of queries in order of their counts. Positions that all of them see are read once for all.
template <class T, size_t Count, size_t Rows, class S>
CONTINUO_INLINE void attend_lanes(const Vectors<S>& of, const Weighed* queries, const Tile& tile, size_t lane,
                                  Fetch& next) {
  constexpr size_t step = sizeof(T) / sizeof(float);
  T sum[Rows][Count] = {};
  if (tile.first > 0) {
#pragma GCC unroll 16
    for (size_t r = 0; r < Rows; ++r) {
#pragma GCC unroll 16
      for (size_t i = 0; i < Count; ++i) sum[r][i] = load<T>(queries[r].sums + lane + i * step);
    }
  }
  Slot slot = of.first;
  const float* weights[Rows];
#pragma GCC unroll 16
  for (size_t r = 0; r < Rows; ++r) weights[r] = queries[r].weights + tile.first;
  const size_t all = tile.seen_of(queries[0]);
  for (size_t p = 0; p < all;) {
    const size_t some = least(fetched_positions, least(all - p, slot.slots - slot.at)), end = p + some;
    next.positions(some);
    for (const S* values = of.data + slot.at * of.stride + lane; p < end; ++p, values += of.stride) {
      T wide[Count];
#pragma GCC unroll 16
      for (size_t i = 0; i < Count; ++i) wide[i] = widened<T>(values + i * step);
#pragma GCC unroll 16
      for (size_t r = 0; r < Rows; ++r) {
        const T weight = splat<T>(weights[r][p]);
#pragma GCC unroll 16
        for (size_t i = 0; i < Count; ++i) sum[r][i] = fma(weight, wide[i], sum[r][i]);
      }
    }
    slot.skip(some);
  }
#pragma GCC unroll 16
  for (size_t r = 0; r < Rows; ++r) {
    const auto& query = queries[r];
    Slot further = slot;
    const size_t seen = tile.seen_of(query);
    for (size_t p = all; p < seen; ++p, further.next()) {
      const S* values = of.data + further.at * of.stride + lane;
      const T weight = splat<T>(weights[r][p]);
#pragma GCC unroll 16
      for (size_t i = 0; i < Count; ++i) sum[r][i] = fma(weight, widened<T>(values + i * step), sum[r][i]);
    }
#pragma GCC unroll 16
    for (size_t i = 0; i < Count; ++i) {
      const size_t at = lane + i * step;
      if (!tile.joined) {
        store(query.sums + at, sum[r][i]);
        continue;
      }
      // The first block has nothing before it: whatever lies in y must not count, not even a NaN.
      const T before = !query.begun ? T{} : load<T>(query.y + at) * splat<T>(query.carry);
      store(query.y + at, before + sum[r][i]);
    }
  }
}

// Σ w_p v_p of a tile. A function of its own, so that its sums
// have all registers.
template <size_t Rows, class S> [[gnu::noinline]] void attend_values(size_t channels, const Vectors<S>& of,
                                                                     const Weighed* queries, const Tile& tile,
                                                                     Fetch& next) {
  size_t lane = 0;
  for (; lane + 4 * width <= channels; lane += 4 * width) attend_lanes<Vec, 4, Rows>(of, queries, tile, lane, next);
  for (; lane + width <= channels; lane += width) attend_lanes<Vec, 1, Rows>(of, queries, tile, lane, next);
  for (; lane < channels; ++lane) attend_lanes<float, 1, Rows>(of, queries, tile, lane, next);
}

// The bits of exp for x ≤ 0 and NaN, with one bound and one rounding less.
template <class T> CONTINUO_INLINE T exp_below(T x) { return raised_exp(x) * 0x1p-64f; }

// The maximum passes NaN over. Of two zeros either gives the same weights.
CONTINUO_INLINE float highest(const float* scores, size_t count) {
  constexpr size_t chains = 4;
  const auto greater = [](auto x, auto y) CONTINUO_LAMBDA { return y > x ? y : x; };
  Vec best[chains];
  for (auto& each : best) each = splat<Vec>(-__builtin_inff());
  size_t p = 0;
  for (; p + chains * width <= count; p += chains * width) {
#pragma GCC unroll 4
    for (size_t v = 0; v < chains; ++v) best[v] = greater(best[v], load<Vec>(scores + p + v * width));
  }
  for (; p + width <= count; p += width) best[0] = greater(best[0], load<Vec>(scores + p));
  alignas(64) float lanes[width];
  store(lanes, greater(greater(best[0], best[1]), greater(best[2], best[3])));
  float most = lanes[0];
  for (size_t lane = 1; lane < width; ++lane) most = greater(most, lanes[lane]);
  for (; p < count; ++p) most = greater(most, scores[p]);
  return most;
}

// Scores of positions from `first` on become their weights; m and Z move on. Returns c.
CONTINUO_INLINE float attend_weights(float* weights, size_t first, size_t count, AttendSums& sums) {
  // A NaN reaches Z and every sum by its own weight.
  const AttendSums before = sums;
  sums.raise(highest(weights, count));
  const float most = sums.m, carry = before.begun ? exp_below(before.m - most) : 0.0f;
  alignas(64) float partial[partials] = {};
  const auto weigh = [&](size_t p) CONTINUO_LAMBDA {
    weights[p] = exp_below(weights[p] - most);
    partial[(first + p) % partials] += weights[p];
  };
  size_t p = 0;
  for (; p < count && (first + p) % partials != 0; ++p) weigh(p);
  constexpr size_t vectors = partials / width;
  Vec lanes[vectors];
  for (size_t v = 0; v < vectors; ++v) lanes[v] = load<Vec>(partial + v * width);
  for (; p + partials <= count; p += partials) {
#pragma GCC unroll 4
    for (size_t v = 0; v < vectors; ++v) {
      float* at = weights + p + v * width;
      const Vec weight = exp_below(load<Vec>(at) - splat<Vec>(most));
      store(at, weight);
      lanes[v] += weight;
    }
  }
  for (size_t v = 0; v < vectors; ++v) store(partial + v * width, lanes[v]);
  for (; p < count; ++p) weigh(p);
  for (size_t half = partials / 2; half > 0; half /= 2) {
    for (size_t lane = 0; lane < half; ++lane) partial[lane] += partial[lane + half];
  }
  sums.total = sums.total * carry + partial[0];
  return carry;
}

// Queries that look along one row of keys and values, in order of how far they see.
struct Looking {
  const float* q;
  float* y;
  size_t last;  // the position behind the last one that it sees
  AttendSums sums;
};

// A register tile of scores: so many queries times so many keys.
#if defined(__AVX512F__)
constexpr size_t dot_rows = 4, dot_keys = 4;
#elif defined(__AVX2__) || defined(__aarch64__)
constexpr size_t dot_rows = 2, dot_keys = 2;
#else
constexpr size_t dot_rows = 2, dot_keys = 1;
#endif

// Partial sums of some queries, each with the same keys.
template <size_t Rows> struct Dots {
  Vec of[Rows];
};

// Those of Count keys, joined (reduce.h) as far as they go.
template <size_t Count, size_t Rows> CONTINUO_INLINE Dots<Rows> joined(const Dots<Rows>* keys) {
  if constexpr (Count == 1) {
    return *keys;
  } else {
    return joined<Count>(joined<Count / 2>(keys), joined<Count / 2>(keys + Count / 2));
  }
}
template <size_t Count, size_t Rows> CONTINUO_INLINE Dots<Rows> joined(const Dots<Rows>& a, const Dots<Rows>& b) {
  Dots<Rows> out;
#pragma GCC unroll 16
  for (size_t r = 0; r < Rows; ++r) out.of[r] = joined<2 * width / Count>(a.of[r], b.of[r]);
  return out;
}

// q · k over channels [from, to) of Rows queries and of Count keys. What can be joined is joined at once, so few sums
// are open.
template <size_t Count, size_t Rows, class S>
CONTINUO_INLINE Dots<Rows> dots(const Looking* queries, const S* const* keys, size_t from, size_t to, Fetch& next) {
  if constexpr (Count > dot_keys) {
    const auto a = dots<Count / 2, Rows>(queries, keys, from, to, next);
    return joined<Count>(a, dots<Count / 2, Rows>(queries, keys + Count / 2, from, to, next));
  } else {
    next.positions(dot_keys);
    constexpr size_t vectors = partials / width;
    Vec sums[dot_keys][Rows][vectors] = {};
#pragma GCC unroll 4
    for (size_t i = from; i < to; i += partials) {
#pragma GCC unroll 16
      for (size_t v = 0; v < vectors; ++v) {
        Vec wide[dot_keys];
#pragma GCC unroll 16
        for (size_t k = 0; k < dot_keys; ++k) wide[k] = load_weights(keys[k] + i + v * width);
#pragma GCC unroll 16
        for (size_t r = 0; r < Rows; ++r) {
          const Vec q = load<Vec>(queries[r].q + i + v * width);
#pragma GCC unroll 16
          for (size_t k = 0; k < dot_keys; ++k) sums[k][r][v] = fma(q, wide[k], sums[k][r][v]);
        }
      }
    }
    Dots<Rows> out[dot_keys];
#pragma GCC unroll 16
    for (size_t k = 0; k < dot_keys; ++k) {
#pragma GCC unroll 16
      for (size_t r = 0; r < Rows; ++r) out[k].of[r] = halved(sums[k][r]);
    }
    return joined<dot_keys>(out);
  }
}

// scale · (q · k_p) of Rows queries and `width` positions, for heads of a multiple of 16 channels. A function of its
// own, so that its sums have all registers.
template <size_t Rows, class S> [[gnu::noinline]] void score_keys(const Looking* queries, const S* const* keys,
                                                                  size_t channels, float scale, float* scores,
                                                                  Fetch& next) {
  Dots<Rows> all = {};
  for (size_t block = 0; block < channels; block += block_terms) {
    const auto part = dots<width, Rows>(queries, keys, block, least(block + block_terms, channels), next);
#pragma GCC unroll 16
    for (size_t r = 0; r < Rows; ++r) all.of[r] += part.of[r];
  }
#pragma GCC unroll 16
  for (size_t r = 0; r < Rows; ++r) store(scores + r * block_terms, splat<Vec>(scale) * all.of[r]);
}

// scale · (q · k_p) of `count` positions for some queries; those of query r begin at scores + r · block_terms.
template <class S> CONTINUO_INLINE void attend_scores(const Looking* queries, size_t rows, size_t channels, float scale,
                                                      const Vectors<S>& of, size_t count, float* scores, Fetch& next) {
  Slot slot = of.first;
  size_t p = 0;
  Fetch none{};
  if (channels % partials == 0) {
    for (; p + width <= count; p += width) {
      const S* keys[width];
      for (size_t which = 0; which < width; ++which, slot.next()) keys[which] = of.data + slot.at * of.stride;
      each_panel<dot_rows>(rows, [&]<size_t Rows>(size_t row) CONTINUO_LAMBDA {
        float* at = scores + row * block_terms + p;
        score_keys<Rows>(queries + row, keys, channels, scale, at, row == 0 ? next : none);
      });
    }
  }
  for (; p < count; ++p, slot.next()) {
    const S* key = of.data + slot.at * of.stride;
    next.positions(1);
    for (size_t r = 0; r < rows; ++r) {
      const float* q = queries[r].q;
      scores[r * block_terms + p] = scale * reduce(channels, [&](auto acc, size_t i) CONTINUO_LAMBDA {
                                      using T = decltype(acc);
                                      return fma(load<T>(q + i), widened<T>(key + i), acc);
                                    });
    }
  }
}

// The blocks of a part from `first` to the last position that any query sees, as work(from, to, seeing); of the queries
// those from `seeing` on see the block.
template <class Work>
CONTINUO_INLINE void each_block(size_t first, const Looking* queries, size_t rows, const Work& work) {
  const size_t end = queries[rows - 1].last;
  for (size_t seeing = 0; first < end;) {
    const size_t last = least((first / block_terms + 1) * block_terms, end);
    while (queries[seeing].last <= first) ++seeing;
    work(first, last, seeing);
    first = last;
  }
}

CONTINUO_INLINE void divide(const Looking& query, size_t channels) {
  const float total = query.sums.total;
  map(channels, query.y, [=](auto y) CONTINUO_LAMBDA { return y / splat<decltype(y)>(total); }, query.y);
}

// What the walk over keys and values leaves open: how scores become weights, and how a sum of values ends. These give
// the bits of the rule; a bench has others (bench/free_order.cc).
struct Exact {
  static CONTINUO_INLINE float weights(float* scores, size_t first, size_t count, AttendSums& sums) {
    return attend_weights(scores, first, count, sums);
  }
  static CONTINUO_INLINE void end(const Looking& query, size_t channels) { divide(query, channels); }
};

// The scores of a query become weights, and how its values are to be summed.
template <class Order>
CONTINUO_INLINE Weighed weighed(Looking& query, float* scores, float* sums, size_t first, size_t last) {
  const size_t count = least(last, query.last) - first;
  const bool begun = query.sums.begun;
  const float carry = Order::weights(scores, first, count, query.sums);
  return {scores, count, query.y, sums, begun, carry};
}

}  // namespace continuo::CONTINUO_ISA
