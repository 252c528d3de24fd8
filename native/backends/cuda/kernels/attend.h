// Softmax attention of one query over the positions it sees: cpu/attend.h has the equations. A block of threads walks
// up to four blocks of 256 positions at a time, whose scores and sums of values it makes side by side and joins in
// order.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/panels.h"
#include "backends/cuda/kernels/reduce.h"
#include "backends/cuda/kernels/scalar.h"
#include "backends/jobs.h"

namespace continuo::cuda {

constexpr uint32_t attend_blocks = 4;

// The place of a position of a part, `after` a first one: a ring begins again, and nothing divides by its length on the
// way.
CONTINUO_INLINE size_t slot_after(size_t slot, size_t after, size_t slots) {
  slot += after;
  while (slot >= slots) slot -= slots;
  return slot;
}

// Where a block of positions begins.
CONTINUO_INLINE const std::byte* block_data(const BlockList& list, size_t block, const AttendPart& part) {
  return list.at(block * block_positions, part.stride, size_of(part.dtype));
}

// Where the blocks of positions begin that are walked at a time, of a part that lies in blocks.
struct StageBlocks {
  const std::byte *keys[attend_blocks], *values[attend_blocks];
};

// Calls f with a number of the type in which keys and values are stored.
template <class F> CONTINUO_INLINE auto as_stored(Dtype dtype, const F& f) {
  switch (dtype) {
    case Dtype::f16: return f(F16{});
    case Dtype::bf16: return f(Bf16{});
    default: return f(0.0f);
  }
}

// scores[p] = scale · (q · k_p) of `count` positions: sixteen lanes, one for each partial sum, take `side` positions at
// a time. The first of them lies in a slot; in blocks, `slot` counts from the beginning of blocks.keys[0].
template <class S> CONTINUO_INLINE void attend_scores(const AttendRun& run, const AttendPart& part,
                                                      const StageBlocks& blocks, size_t slot, uint32_t count,
                                                      float* scores) {
  constexpr uint32_t side = 4;
  const uint32_t lane = threadIdx.x % partials, team = threadIdx.x / partials, teams = blockDim.x / partials;
  // All lanes of a warp go round as often as its first.
  for (uint32_t from = threadIdx.x / 32 * (32 / partials); from < count; from += side * teams) {
    const uint32_t own = from + team % (32 / partials);
    const S* keys[side];
    float total[side] = {};
#pragma unroll
    for (uint32_t i = 0; i < side; ++i) {
      const uint32_t p = own + i * teams < count ? own + i * teams : 0;
      if (part.slots > 0) {
        keys[i] = static_cast<const S*>(part.keys) + slot_after(slot, p, part.slots) * part.stride;
      } else {
        const size_t at = slot + p;
        keys[i] = reinterpret_cast<const S*>(blocks.keys[at / block_positions]) + at % block_positions * part.stride;
      }
    }
    for (size_t block = 0; block < run.channels; block += block_terms) {
      const size_t end = block + block_terms < run.channels ? block + block_terms : run.channels;
      float partial[side] = {};
#pragma unroll 4
      for (size_t i = block + lane; i < end; i += partials) {
        const float q = part.q[i];
#pragma unroll
        for (uint32_t j = 0; j < side; ++j) partial[j] = fma(q, widen(keys[j][i]), partial[j]);
      }
#pragma unroll
      for (uint32_t j = 0; j < side; ++j) total[j] += join(partial[j]);
    }
#pragma unroll
    for (uint32_t i = 0; i < side; ++i) {
      const uint32_t p = own + i * teams;
      if (lane == 0 && p < count) scores[p] = run.scale * total[i];
    }
  }
}

// The largest of `most` and scores[begin … end), as the one that walks them would find it: a NaN is passed over, unless
// it came first.
CONTINUO_INLINE float attend_most(const float* scores, uint32_t begin, uint32_t end, float most) {
  float best = most;
  for (uint32_t p = begin + threadIdx.x % 32; p < end; p += 32) best = scores[p] > best ? scores[p] : best;
#pragma unroll
  for (int by = 16; by > 0; by /= 2) {
    const float other = __shfl_xor_sync(0xFFFFFFFFu, best, by);
    best = other > best ? other : best;
  }
  return best;
}

// Σ weights of a block's positions by their place modulo 16; `place` is that of weights[begin].
CONTINUO_INLINE float attend_sum(const float* weights, uint32_t begin, uint32_t end, uint32_t place) {
  float partial = 0.0f;
  for (uint32_t p = begin + ((threadIdx.x - place) & (partials - 1)); p < end; p += partials) partial += weights[p];
  return join(partial);
}

// Σ w_p v_p of one channel over positions begin … end of the stage that starts at `slot`, by fma from 0. In blocks, all
// of them lie in one.
template <class S> CONTINUO_INLINE float attend_values(const AttendPart& part, const StageBlocks& blocks, size_t slot,
                                                       uint32_t begin, uint32_t end, const float* weights,
                                                       size_t channel) {
  constexpr uint32_t side = 8;
  const bool in_blocks = part.slots == 0;
  const size_t slots = in_blocks ? block_positions : part.slots;
  const void* const data = in_blocks ? blocks.values[(slot + begin) / block_positions] : part.values;
  const S* const values = static_cast<const S*>(data) + channel;
  size_t at = in_blocks ? (slot + begin) % block_positions : slot_after(slot, begin, slots);
  float sum = 0.0f;
  uint32_t p = begin;
  for (; p + side <= end; p += side) {
    float v[side];
#pragma unroll
    for (uint32_t i = 0; i < side; ++i) {
      v[i] = widen(values[at * part.stride]);
      if (++at == slots) at = 0;
    }
#pragma unroll
    for (uint32_t i = 0; i < side; ++i) sum = fma(weights[p + i], v[i], sum);
  }
  for (; p < end; ++p) {
    sum = fma(weights[p], widen(values[at * part.stride]), sum);
    if (++at == slots) at = 0;
  }
  return sum;
}

// Every thread of the block; each has the running maximum and sum. A thread owns the channels threadIdx.x, threadIdx.x
// + blockDim.x, …
__device__ inline void attend(const AttendRun& run) {
  __shared__ float scores[attend_blocks * block_terms];
  __shared__ float weights[attend_blocks * block_terms];
  __shared__ StageBlocks blocks;
  float* const sums = scores;  // [blocks][lanes], once the scores have become weights
  const uint32_t t = threadIdx.x, threads = blockDim.x;
  const size_t lanes = (run.channels + 31) / 32 * 32;
  const uint32_t together = lanes * attend_blocks <= threads ? attend_blocks
                            : lanes < threads                ? static_cast<uint32_t>(threads / lanes)
                                                             : 1;
  float m = 0.0f, total = 0.0f;
  bool begun = false;
  for (size_t i = 0; i < run.count; ++i) {
    const AttendPart& part = run.parts[i];
    const bool in_blocks = part.slots == 0;
    size_t slot = part.first % (in_blocks ? block_positions : part.slots);
    for (size_t first = part.first; first < part.last;) {
      const size_t base = first / block_terms * block_terms;
      const size_t last = base + together * block_terms < part.last ? base + together * block_terms : part.last;
      const uint32_t count = static_cast<uint32_t>(last - first);
      const uint32_t skipped = static_cast<uint32_t>(first - base);  // positions of the first block that are not seen
      if (in_blocks) {
        if (t < attend_blocks && base + t * block_positions < last) {
          blocks.keys[t] = block_data(part.key_blocks, base / block_positions + t, part);
          blocks.values[t] = block_data(part.value_blocks, base / block_positions + t, part);
        }
        __syncthreads();
      }
      as_stored(part.dtype,
                [&](auto number) { attend_scores<decltype(number)>(run, part, blocks, slot, count, scores); });
      __syncthreads();

      const bool before = begun;
      float carry[attend_blocks] = {};
      const auto begin_of = [=](uint32_t block) {
        return block == 0 ? 0 : block * static_cast<uint32_t>(block_terms) - skipped;
      };
      const auto end_of = [=](uint32_t block) {
        const uint32_t end = (block + 1) * static_cast<uint32_t>(block_terms) - skipped;
        return end < count ? end : count;
      };
#pragma unroll
      for (uint32_t block = 0; block < attend_blocks; ++block) {
        const uint32_t begin = begin_of(block), end = end_of(block);
        if (begin >= count) break;
        const float most = attend_most(scores, begin, end, begun ? m : scores[begin]);
        carry[block] = begun ? exp(m - most) : 0.0f;
        for (uint32_t p = begin + t; p < end; p += threads) weights[p] = exp(scores[p] - most);
        m = most;
        begun = true;
      }
      __syncthreads();

#pragma unroll
      for (uint32_t block = 0; block < attend_blocks; ++block) {
        const uint32_t begin = begin_of(block), end = end_of(block);
        if (begin >= count) break;
        total = total * carry[block] + attend_sum(weights, begin, end, block == 0 ? static_cast<uint32_t>(first) : 0);
      }
      const auto values_sum = [&](uint32_t begin, uint32_t end, size_t channel) {
        return as_stored(part.dtype, [&](auto number) {
          return attend_values<decltype(number)>(part, blocks, slot, begin, end, weights, channel);
        });
      };
      if (together == 1) {
        for (size_t channel = t; channel < run.channels; channel += threads) {
          const float sum = values_sum(0, count, channel);
          run.y[channel] = (before ? run.y[channel] * carry[0] : 0.0f) + sum;
        }
      } else {
        const uint32_t block = t / static_cast<uint32_t>(lanes), channel = t % static_cast<uint32_t>(lanes);
        const bool takes = block < together && begin_of(block) < count && channel < run.channels;
        if (takes) sums[t] = values_sum(begin_of(block), end_of(block), channel);
        __syncthreads();
        if (t < run.channels) {
          float y = before ? run.y[t] * carry[0] : 0.0f;
          y += sums[t];
#pragma unroll
          for (uint32_t next = 1; next < attend_blocks; ++next) {
            if (begin_of(next) < count) y = y * carry[next] + sums[next * lanes + t];
          }
          run.y[t] = y;
        }
      }
      __syncthreads();
      first = last;
      slot = in_blocks ? 0 : slot_after(slot, count, part.slots);
    }
  }
  for (size_t channel = t; channel < run.channels; channel += threads) run.y[channel] = run.y[channel] / total;
}

// The softmax weights of positions first … first + count − 1, as attend() weighs their values; 0 where the query sees
// none. Its part begins at position 0 and lies in blocks.
__device__ inline void attend_weights(const AttendRun& run, size_t first, uint32_t count, float* out) {
  __shared__ float scores[block_terms];
  __shared__ float weights[block_terms];
  __shared__ StageBlocks blocks;
  const AttendPart& part = run.parts[0];
  const uint32_t t = threadIdx.x, threads = blockDim.x;
  const size_t end = first + count < part.last ? first + count : part.last;
  float m = 0.0f, total = 0.0f;
  for (uint32_t i = t; i < count; i += threads) out[i] = 0.0f;
  for (size_t from = 0; from < part.last; from += block_terms) {
    const uint32_t seen = static_cast<uint32_t>(part.last - from < block_terms ? part.last - from : block_terms);
    // What the block before wrote, and read, is done.
    __syncthreads();
    if (t == 0) blocks.keys[0] = block_data(part.key_blocks, from / block_positions, part);
    __syncthreads();
    as_stored(part.dtype, [&](auto number) { attend_scores<decltype(number)>(run, part, blocks, 0, seen, scores); });
    __syncthreads();
    const float most = attend_most(scores, 0, seen, from > 0 ? m : scores[0]);
    const float carry = from > 0 ? exp(m - most) : 0.0f;
    for (uint32_t p = t; p < seen; p += threads) {
      weights[p] = exp(scores[p] - most);
      if (from + p >= first && from + p < end) out[from + p - first] = scores[p];
    }
    m = most;
    __syncthreads();
    total = total * carry + attend_sum(weights, 0, seen, 0);
  }
  __syncthreads();
  for (size_t p = first + t; p < end; p += threads) out[p - first] = exp(out[p - first] - m) / total;
}

}  // namespace continuo::cuda
