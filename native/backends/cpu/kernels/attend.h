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

#include "backends/cpu/kernels/elementwise.h"

namespace continuo::CONTINUO_ISA {

// The place of a position, and of the one after it: a ring begins again, and nothing divides by its length on the way.
struct Slot {
  size_t at, slots;
  void next() {
    if (++at == slots) at = 0;
  }
};

// The keys or values of consecutive positions as f32: those of a position lie at slot · stride.
struct Vectors {
  const float* data;
  size_t stride;
  Slot first;
};

// Room for the channels of a block of narrow keys or values.
struct Widened {
  alignas(64) float numbers[block_terms * most_narrow_channels];
};

template <class S>
CONTINUO_INLINE void widen_rows(const S* from, size_t stride, Slot slot, size_t count, size_t channels, float* to) {
  for (size_t p = 0; p < count; ++p, slot.next(), to += channels) {
    const S* row = from + slot.at * stride;
    size_t i = 0;
    for (; i + width <= channels; i += width) store(to + i, load_weights(row + i));
    if (i == channels) continue;
    // The numbers behind the row may be another's memory.
    S rest[width] = {};
    for (size_t lane = 0; i + lane < channels; ++lane) rest[lane] = row[i + lane];
    alignas(64) float wide[width];
    store(wide, load_weights(rest));
    for (size_t lane = 0; i < channels; ++i, ++lane) to[i] = wide[lane];
  }
}

// The keys or values of positions of one block, `count` from `position` on; narrow ones are widened into `room`.
CONTINUO_INLINE Vectors vectors(const AttendPart& part, const void* data, const BlockList& list, size_t position,
                                size_t count, size_t channels, Widened& room) {
  Slot slot{position % (list.blocks ? block_positions : part.slots), list.blocks ? block_positions : part.slots};
  size_t offset = 0;
  if (list.blocks) {
    const BlockAt& block = list.blocks[position / block_positions % list.count];
    data = block.data;
    offset = list.member * block.room * part.stride + list.channel;
  }
  if (part.dtype == Dtype::f32) return {static_cast<const float*>(data) + offset, part.stride, slot};
  if (part.dtype == Dtype::f16)
    widen_rows(static_cast<const F16*>(data) + offset, part.stride, slot, count, channels, room.numbers);
  else
    widen_rows(static_cast<const Bf16*>(data) + offset, part.stride, slot, count, channels, room.numbers);
  return {room.numbers, channels, {0, block_terms}};
}
CONTINUO_INLINE Vectors keys_of(const AttendPart& part, size_t position, size_t count, size_t channels, Widened& room) {
  return vectors(part, part.keys, part.key_blocks, position, count, channels, room);
}
CONTINUO_INLINE Vectors values_of(const AttendPart& part, size_t position, size_t count, size_t channels,
                                  Widened& room) {
  return vectors(part, part.values, part.value_blocks, position, count, channels, room);
}

// What the blocks walked so far leave behind.
struct AttendSums {
  float m = 0.0f, total = 0.0f;
  bool begun = false;
};

// A query in a block: the weights of the positions it sees there, and where their values are summed.
struct Weighed {
  const float* weights;
  size_t count;
  float* y;
  bool begun;  // a block came before: y is carried over
  float carry;
};

// Channels from `lane` on, of queries in order of their counts. Positions that all of them see are read once for all.
template <class T, size_t Count, size_t Rows>
CONTINUO_INLINE void attend_lanes(const Vectors& of, const Weighed* queries, size_t lane) {
  constexpr size_t step = sizeof(T) / sizeof(float);
  T sum[Rows][Count] = {};
  Slot slot = of.first;
  size_t p = 0;
  for (; p < queries[0].count; ++p, slot.next()) {
    const float* values = of.data + slot.at * of.stride + lane;
#pragma GCC unroll 16
    for (size_t r = 0; r < Rows; ++r) {
      const T weight = splat<T>(queries[r].weights[p]);
#pragma GCC unroll 16
      for (size_t i = 0; i < Count; ++i) sum[r][i] = fma(weight, load<T>(values + i * step), sum[r][i]);
    }
  }
#pragma GCC unroll 16
  for (size_t r = 0; r < Rows; ++r) {
    const auto& query = queries[r];
    Slot further = slot;
    for (size_t later = p; later < query.count; ++later, further.next()) {
      const float* values = of.data + further.at * of.stride + lane;
      const T weight = splat<T>(query.weights[later]);
#pragma GCC unroll 16
      for (size_t i = 0; i < Count; ++i) sum[r][i] = fma(weight, load<T>(values + i * step), sum[r][i]);
    }
#pragma GCC unroll 16
    for (size_t i = 0; i < Count; ++i) {
      float* y = query.y + lane + i * step;
      // The first block has nothing before it: whatever lies in y must not count, not even a NaN.
      const T before = !query.begun ? T{} : load<T>(y) * splat<T>(query.carry);
      store(y, before + sum[r][i]);
    }
  }
}

// Σ w_p v_p of a block, joined to what came before.
template <size_t Rows> CONTINUO_INLINE void attend_values(size_t channels, const Vectors& of, const Weighed* queries) {
  size_t lane = 0;
  for (; lane + 4 * width <= channels; lane += 4 * width) attend_lanes<Vec, 4, Rows>(of, queries, lane);
  for (; lane + width <= channels; lane += width) attend_lanes<Vec, 1, Rows>(of, queries, lane);
  for (; lane < channels; ++lane) attend_lanes<float, 1, Rows>(of, queries, lane);
}

// Scores of positions from `first` on become their weights; m and Z move on. Returns c.
CONTINUO_INLINE float attend_weights(float* weights, size_t first, size_t count, AttendSums& sums) {
  // The maximum passes NaN over: a NaN reaches Z and every sum by its own weight. Of two zeros either gives the same
  // weights.
  const float highest = max(weights, count);
  const float most = !sums.begun || highest > sums.m ? highest : sums.m;
  const float carry = sums.begun ? exp(sums.m - most) : 0.0f;
  map(count, weights, [=](auto score) CONTINUO_LAMBDA { return exp(score - splat<decltype(score)>(most)); }, weights);
  alignas(64) float partial[partials] = {};
  size_t p = 0;
  for (; p < count && (first + p) % partials != 0; ++p) partial[(first + p) % partials] += weights[p];
  for (; p + partials <= count; p += partials) {
    for (size_t lane = 0; lane < partials; lane += width)
      store(partial + lane, load<Vec>(partial + lane) + load<Vec>(weights + p + lane));
  }
  for (size_t lane = 0; p < count; ++p, ++lane) partial[lane] += weights[p];
  for (size_t half = partials / 2; half > 0; half /= 2) {
    for (size_t lane = 0; lane < half; ++lane) partial[lane] += partial[lane + half];
  }
  sums.total = sums.total * carry + partial[0];
  sums.m = most;
  sums.begun = true;
  return carry;
}

// scale · (q · k_p) of `count` positions.
CONTINUO_INLINE void attend_scores(const AttendRun& run, const float* q, const Vectors& of, size_t count,
                                   float* scores) {
  Slot slot = of.first;
  size_t p = 0;
  if (run.channels % partials == 0) {
    for (; p + width <= count; p += width) {
      const float* keys[width];
      for (size_t which = 0; which < width; ++which, slot.next()) keys[which] = of.data + slot.at * of.stride;
      const Vec sums = reduce_lanes(run.channels, [&](Vec acc, size_t i, size_t which) CONTINUO_LAMBDA {
        return fma(load<Vec>(q + i), load<Vec>(keys[which] + i), acc);
      });
      store(scores + p, splat<Vec>(run.scale) * sums);
    }
  }
  for (; p < count; ++p, slot.next()) {
    const float* key = of.data + slot.at * of.stride;
    scores[p] = run.scale * reduce(run.channels, [&](auto acc, size_t i) CONTINUO_LAMBDA {
                  using T = decltype(acc);
                  return fma(load<T>(q + i), load<T>(key + i), acc);
                });
  }
}

CONTINUO_INLINE void attend_block(const AttendRun& run, const AttendPart& part, size_t first, size_t last,
                                  AttendSums& sums) {
  float weights[block_terms];
  Widened wide;
  attend_scores(run, part.q, keys_of(part, first, last - first, run.channels, wide), last - first, weights);
  const bool begun = sums.begun;
  const float carry = attend_weights(weights, first, last - first, sums);
  const Weighed query{weights, last - first, run.y, begun, carry};
  attend_values<1>(run.channels, values_of(part, first, last - first, run.channels, wide), &query);
}

inline void attend(const AttendRun& run) {
  AttendSums sums;
  for (size_t i = 0; i < run.count; ++i) {
    const AttendPart& part = run.parts[i];
    for (size_t first = part.first; first < part.last;) {
      size_t last = (first / block_terms + 1) * block_terms;
      if (last > part.last) last = part.last;
      attend_block(run, part, first, last, sums);
      first = last;
    }
  }
  map(run.channels, run.y, [&](auto y) CONTINUO_LAMBDA { return y / splat<decltype(y)>(sums.total); }, run.y);
}

// The weights of positions first … first + count − 1: exp(s_p − m) / Z, m and Z as attend() ends with.
inline void attend_shares(const AttendRun& run, size_t first, size_t count, float* out) {
  AttendSums sums;
  const AttendPart& part = run.parts[0];
  Widened wide;
  for (size_t i = 0; i < count; ++i) out[i] = 0.0f;
  const size_t seen = first + count < part.last ? first + count : part.last;
  for (size_t from = part.first; from < part.last;) {
    size_t to = (from / block_terms + 1) * block_terms;
    if (to > part.last) to = part.last;
    float weights[block_terms];
    attend_scores(run, part.q, keys_of(part, from, to - from, run.channels, wide), to - from, weights);
    for (size_t p = first > from ? first : from; p < to && p < seen; ++p) out[p - first] = weights[p - from];
    attend_weights(weights, from, to - from, sums);
    from = to;
  }
  if (seen <= first) return;
  map(
      seen - first, out,
      [&](auto score) CONTINUO_LAMBDA {
        using T = decltype(score);
        return exp(score - splat<T>(sums.m)) / splat<T>(sums.total);
      },
      out);
}

}  // namespace continuo::CONTINUO_ISA
