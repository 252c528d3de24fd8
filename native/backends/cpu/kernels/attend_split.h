// Attention whose blocks of positions are computed apart (AttendSplit), so that threads share a history by its blocks
// and each reads whole rows of it. Only the order of three things is fixed by attend.h, and each step waits for the one
// before:
//   scores   of each block by itself, and their maximum
//   values   the running maximum m before a block comes from the maxima of the blocks before it; then its weights,
//   their
//            sum, and the sum of its values, which begins at zero
//   join     Z = Z · c + Σ w and y = y · c + Σ w v, block by block
#pragma once

#include "backends/cpu/kernels/attend_rows.h"

namespace continuo::CONTINUO_ISA {

static_assert(split_queries <= most_few);

// Calls run(few, queries) with the queries of a split.
template <class Run> CONTINUO_INLINE void with_few(const AttendSplit& split, const Run& run) {
  const AttendRows& rows = split.run;
  const size_t each = rows.rows * rows.heads;
  Looking queries[most_few];
  for (size_t head = 0; head < rows.key_heads; ++head) look(rows, head, 0, each, queries + head * each);
  as_stored(rows.part.dtype,
            [&]<class S>() { run(Few<S>{rows.part, queries, rows.key_heads, each, rows.channels, rows.scale}); });
}

// Block `number` of a split; `last` may lie before `first`, where no query sees the block.
template <class S> CONTINUO_INLINE FewBlock block_of(const AttendSplit& split, const Few<S>& few, size_t number) {
  const size_t begin = (split.first / block_terms + number) * block_terms;
  const size_t first = begin > split.first ? begin : split.first;
  size_t seeing = 0;
  while (few.queries[seeing].last <= first) ++seeing;
  return {first, least(begin + block_terms, split.end()), seeing};
}

inline void split_scores(const AttendSplit& split, size_t block, size_t block_end) {
  with_few(split, [&]<class S>(const Few<S>& few) {
    const size_t count = split.queries();
    for (; block < block_end; ++block) {
      const FewBlock of = block_of(split, few, block);
      Fetch after{};
      if (block + 1 < block_end) after = few.begin(keys_of<S>(few.part, of.last), split.end() - of.last);
      float* scores = split.scores + block * count * block_terms;
      few.score(of, scores, after);
      few.each_query(of, [&](const Looking& query, size_t i) CONTINUO_LAMBDA {
        split.highest[block * count + i] = highest(scores + i * block_terms, least(of.last, query.last) - of.first);
      });
    }
  });
}

// m of query i before a block of the split.
CONTINUO_INLINE AttendSums before(const AttendSplit& split, size_t i, size_t block) {
  AttendSums sums{split.m[i], 0.0f, split.first > split.run.part.first};
  for (size_t b = 0; b < block; ++b) sums.raise(split.highest[b * split.queries() + i]);
  return sums;
}

inline void split_values(const AttendSplit& split, size_t block, size_t block_end) {
  with_few(split, [&]<class S>(const Few<S>& few) {
    Weighed weights[most_few] = {};
    const size_t count = split.queries();
    for (size_t i = 0; i < count; ++i) few.queries[i].sums = before(split, i, block);
    for (; block < block_end; ++block) {
      const FewBlock of = block_of(split, few, block);
      few.each_query(of, [&](Looking& query, size_t i) CONTINUO_LAMBDA {
        const size_t at = block * count + i;
        // The sums of this block alone.
        query.sums.total = 0.0f;
        weights[i] =
            weighed<Exact>(query, split.scores + at * block_terms, split.values + at * few.channels, of.first, of.last);
        split.carries[at] = weights[i].carry, split.totals[at] = query.sums.total;
      });
      Fetch after{};
      if (block + 1 < block_end) after = few.begin(values_of<S>(few.part, of.last), split.end() - of.last);
      few.sum(of, weights, after, false);
    }
  });
}

inline void split_join(const AttendSplit& split, size_t head, size_t head_end) {
  const size_t channels = split.run.channels, each = split.run.rows * split.run.heads, count = split.queries();
  Looking queries[most_few];
  for (; head < head_end; ++head) {
    look(split.run, head, 0, each, queries);
    for (size_t row = 0; row < each; ++row) {
      Looking& query = queries[row];
      const size_t i = head * each + row;
      size_t seen = 0, from = split.first;
      float total = split.total[i];
      for (; seen < split.blocks && from < query.last; ++seen) {
        const size_t at = seen * count + i;
        const float carry = split.carries[at];
        const float* values = split.values + at * channels;
        const bool begun = from > split.run.part.first;
        total = total * carry + split.totals[at];
        if (begun)
          map(
              channels, query.y, [=](auto y, auto v) CONTINUO_LAMBDA { return y * splat<decltype(y)>(carry) + v; },
              query.y, values);
        else
          map(channels, query.y, [](auto v) CONTINUO_LAMBDA { return decltype(v){} + v; }, values);
        from = (from / block_terms + 1) * block_terms;
      }
      split.m[i] = before(split, i, seen).m;
      split.total[i] = total;
      if (seen > 0 && from >= query.last) {
        query.sums.total = total;
        divide(query, channels);
      }
    }
  }
}

}  // namespace continuo::CONTINUO_ISA
