// Attention of few queries: attend.h's rule along keys and values as they are stored, bound by memory.
#pragma once

#include "backends/cpu/kernels/attend.h"

namespace continuo::CONTINUO_ISA {

// Queries that go along together, and those of them whose values are summed side by side; and positions that are taken
// of one head after the other, so that memory is read in its own order.
constexpr size_t most_few = 64, few_values = 4, few_positions = 32;

// Positions of one block, and the first query that sees it.
struct FewBlock {
  size_t first, last, seeing;
};

// `heads` times `rows` queries, at most most_few, along a part: those of each head of keys and values, which are
// `channels` apart, lie behind those of the head before.
template <class S> struct Few {
  const AttendPart& part;
  Looking* queries;
  size_t heads, rows, channels;
  float scale;

  size_t tile() const { return channels <= most_narrow_channels ? few_positions : block_terms; }
  // The first tile of `count` keys or values.
  CONTINUO_INLINE Fetch begin(const Vectors<S>& of, size_t count) const {
    return fetch(of, heads, channels, least(tile(), count));
  }

  // Writes the scores of query i at a block's positions to scores + i · block_terms. `after` is prefetched when the
  // block's own keys have been.
  CONTINUO_INLINE void score(const FewBlock& block, float* scores, const Fetch& after) const {
    const Vectors<S> keys = keys_of<S>(part, block.first);
    const size_t all = block.last - block.first;
    for (size_t p = 0; p < all; p += tile()) {
      Fetch next = p + tile() < all ? begin(keys.at(p + tile(), 0), all - p - tile()) : after;
      for (size_t head = 0; head < heads; ++head) {
        const size_t query = head * rows + block.seeing;
        attend_scores(queries + query, rows - block.seeing, channels, scale, keys.at(p, head * channels),
                      least(tile(), all - p), scores + query * block_terms + p, next);
      }
    }
  }

  // Sums the values of a block's positions by their weights, and adds the sums to y where `joined`. `after` is
  // prefetched when the block's own values have been.
  CONTINUO_INLINE void sum(const FewBlock& block, const Weighed* weights, const Fetch& after, bool joined) const {
    const Vectors<S> values = values_of<S>(part, block.first);
    const size_t all = block.last - block.first;
    for (size_t p = 0; p < all; p += tile()) {
      const bool last = p + tile() >= all;
      const Tile of{p, least(tile(), all - p), last && joined};
      Fetch next = last ? after : begin(values.at(p + tile(), 0), all - p - tile());
      for (size_t head = 0; head < heads; ++head) {
        each_panel<few_values>(rows - block.seeing, [&]<size_t Rows>(size_t row) CONTINUO_LAMBDA {
          attend_values<Rows>(channels, values.at(p, head * channels), weights + head * rows + block.seeing + row, of,
                              next);
        });
      }
    }
  }

  // Calls work(query, number) for each query that sees a block.
  CONTINUO_INLINE void each_query(const FewBlock& block, const auto& work) const {
    for (size_t head = 0; head < heads; ++head) {
      for (size_t row = block.seeing; row < rows; ++row) work(queries[head * rows + row], head * rows + row);
    }
  }
};

template <class S, class Order> inline void attend_few(const Few<S>& few) {
  alignas(64) float scores[most_few * block_terms];
  alignas(64) float sums[most_few * most_narrow_channels];
  Weighed weights[most_few] = {};
  const size_t end = few.queries[few.rows - 1].last;
  each_block(few.part.first, few.queries, few.rows, [&](size_t first, size_t last, size_t seeing) CONTINUO_LAMBDA {
    const FewBlock block{first, last, seeing};
    few.score(block, scores, few.begin(values_of<S>(few.part, first), last - first));
    few.each_query(block, [&](Looking& query, size_t i) CONTINUO_LAMBDA {
      weights[i] = weighed<Order>(query, scores + i * block_terms, sums + i * most_narrow_channels, first, last);
    });
    few.sum(block, weights, last < end ? few.begin(keys_of<S>(few.part, last), end - last) : Fetch{}, true);
  });
}

template <class Order = Exact> inline void attend(const AttendRun& run) {
  Looking query{nullptr, run.y, 0, {}};
  for (size_t i = 0; i < run.count; ++i) {
    const AttendPart& part = run.parts[i];
    query.q = part.q, query.last = part.last;
    as_stored(part.dtype, [&]<class S>() { attend_few<S, Order>({part, &query, 1, 1, run.channels, run.scale}); });
  }
  Order::end(query, run.channels);
}

// The weights of positions first … first + count − 1: exp(s_p − m) / Z, m and Z as attend() ends with.
inline void attend_shares(const AttendRun& run, size_t first, size_t count, float* out) {
  const AttendPart& part = run.parts[0];
  Looking query{part.q, nullptr, part.last, {}};
  for (size_t i = 0; i < count; ++i) out[i] = 0.0f;
  const size_t seen = least(first + count, part.last);
  as_stored(part.dtype, [&]<class S>() {
    each_block(part.first, &query, 1, [&](size_t from, size_t to, size_t) CONTINUO_LAMBDA {
      alignas(64) float weights[block_terms];
      Fetch none{};
      attend_scores(&query, 1, run.channels, run.scale, keys_of<S>(part, from), to - from, weights, none);
      for (size_t p = first > from ? first : from; p < to && p < seen; ++p) out[p - first] = weights[p - from];
      attend_weights(weights, from, to - from, query.sums);
    });
  });
  if (seen <= first) return;
  map(
      seen - first, out,
      [&](auto score) CONTINUO_LAMBDA {
        using T = decltype(score);
        return exp(score - splat<T>(query.sums.m)) / splat<T>(query.sums.total);
      },
      out);
}

}  // namespace continuo::CONTINUO_ISA
