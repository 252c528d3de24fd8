// Commands that walk the rows of a run, and those of rows that touch recurrent state (command.h), by the threads of a
// block.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/attend.h"
#include "backends/cuda/kernels/conv.h"
#include "backends/cuda/kernels/memory.h"
#include "backends/cuda/kernels/ngram.h"
#include "backends/cuda/kernels/pdr.h"
#include "backends/cuda/kernels/rows.h"
#include "backends/cuda/kernels/ssm.h"
#include "backends/cuda/kernels/wkv7.h"

namespace continuo::cuda {

CONTINUO_INLINE float* table_of(const Step& step, const Command& c, size_t arg, size_t run) {
  return reinterpret_cast<float*>(run_arg(step, c.run_arg + arg, run));
}
CONTINUO_INLINE const float* head_of(const Command& c, int i, size_t at) {
  return static_cast<const float*>(c.in[i]) + at;
}

CONTINUO_INLINE void run_conv(const Command& c, const Step& step, size_t number, Part part) {
  const RunArgs& run = run_at(step, number);
  float* const tail = table_of(step, c, 0, number);
  if (!tail) return;
  const Span columns = part.of(c.width);
  const ConvRun job{head_of(c, 0, run.row * c.width),
                    tail,
                    static_cast<const float*>(c.in[1]),
                    static_cast<const float*>(c.in[2]),
                    out_row(c, run.row),
                    run.rows,
                    c.width,
                    c.taps,
                    c.silu};
  conv(job, columns.begin, columns.end);
  conv_tail(job, tail, columns.begin, columns.end);
}

// The running sums of gates: in[0] θ, in[1] η, in[2] α, null where there is none. One thread adds a level's gates of
// one kind, row after row, head after head.
CONTINUO_INLINE void run_gates(const Command& c, const Step& step, size_t number, Part part) {
  const RunArgs& run = run_at(step, number);
  const Span sums = part.of(size_t{c.levels} * 3);
  for (size_t i = sums.begin + threadIdx.x; i < sums.end; i += blockDim.x) {
    const size_t level = i / 3, arg = run_arg_at(step.rows, step.runs, c.run_arg + i, number);
    const float* gates = static_cast<const float*>(c.in[i % 3]);
    double sum = cast<double>(step.args[arg]);
    for (size_t row = run.row; gates && row < run.row + run.rows; ++row) {
      for (size_t head = 0; head < c.groups; ++head)
        sum += static_cast<double>(gates[(row * c.levels + level) * c.groups + head]);
    }
    step.notes[arg] = cast<uint64_t>(sum);
  }
}

// One head of one row after another, in `part` of the heads.
CONTINUO_INLINE void run_attend(const Command& c, const Step& step, size_t row, Part part) {
  const auto arg = [&](size_t i) { return row_arg(step, c.row_arg + i, row); };
  if (arg(0) == 0) return;
  const size_t slots = arg(4);
  const Span heads = part.of(c.groups);
  const size_t channels = c.width / c.groups, stride = c.width / c.shared, at = row * c.width;
  for (size_t head = heads.begin; head < heads.end; ++head) {
    const size_t shared = head / c.shared * channels;
    AttendRun job{{}, 1, static_cast<float*>(c.out) + at + head * channels, channels, c.scale};
    auto& part = job.parts[0];
    part = {head_of(c, 0, at + head * channels), nullptr, nullptr, stride, arg(2), arg(3), slots};
    part.dtype = c.dtype;
    if (slots > 0) {
      part.keys = reinterpret_cast<const std::byte*>(arg(0)) + shared * size_of(c.dtype);
      part.values = reinterpret_cast<const std::byte*>(arg(1)) + shared * size_of(c.dtype);
    } else {
      part.key_blocks = {reinterpret_cast<const BlockAt*>(arg(0)), arg(7), arg(5), shared};
      part.value_blocks = {reinterpret_cast<const BlockAt*>(arg(1)), arg(7), arg(6), shared};
    }
    if (head > heads.begin) __syncthreads();
    attend(job);
  }
}

// in[0]: queries [groups · channels]; out: the weights of `count` positions for each head.
CONTINUO_INLINE void run_attend_weights(const Command& c, const Step& step, size_t row, Part part) {
  const auto arg = [&](size_t i) { return row_arg(step, c.row_arg + i, row); };
  if (arg(0) == 0) return;
  const Span heads = part.of(c.groups);
  const size_t channels = c.in_width / c.groups;
  for (size_t head = heads.begin; head < heads.end; ++head) {
    AttendRun job{{}, 1, nullptr, channels, c.scale};
    auto& part = job.parts[0];
    part = {head_of(c, 0, row * c.in_width + head * channels), nullptr, nullptr, c.in_width / c.shared, 0, arg(3), 0};
    part.dtype = c.dtype;
    part.key_blocks = {reinterpret_cast<const BlockAt*>(arg(0)), arg(2), arg(1), head / c.shared * channels};
    if (head > heads.begin) __syncthreads();
    attend_weights(job, arg(4), c.count, static_cast<float*>(c.out) + row * c.width + head * c.count);
  }
}

CONTINUO_INLINE float* ring_place(const BlockList& ring, size_t position, size_t stride) {
  return reinterpret_cast<float*>(const_cast<std::byte*>(ring.at(position, stride, sizeof(float))));
}

// A head of keys writes its rows and answers its queries by itself, row after row: what a ring overwrites was read
// before.
CONTINUO_INLINE void run_attend_window(const Command& c, const Step& step, size_t number, Part part) {
  const RunArgs& run = run_at(step, number);
  const bool context = c.count == 4;
  if (!table_of(step, c, 0, number)) return;
  const int base = context ? 5 : 3;  // the first input that belongs to learned positions
  const size_t channels = c.width / c.groups, stride = c.width / c.shared;
  const Span heads = part.of(c.groups / c.shared);
  bool waits = false;
  for (size_t head = heads.begin; head < heads.end; ++head) {
    const size_t in_row = head * channels;
    for (size_t i = 0; i < run.rows; ++i) {
      const uint64_t clock = run.clock + i;
      const uint64_t reach =
          c.segment > 0 ? clock - clock % c.segment : clock - (clock < c.slots - 1 ? clock : c.slots - 1);
      const size_t first = reach > run.origin ? reach : run.origin, row = run.row + i;
      AttendRun job{{}, 0, nullptr, channels, c.scale};
      if (waits) __syncthreads();
      // The ring of keys, whose values lie in the next one.
      const auto own = [&](uint32_t ring, int k) {
        auto& part = job.parts[job.count++];
        part = {nullptr, nullptr, nullptr, stride, first, clock + 1, c.blocks > 0 ? 0 : size_t{c.slots}};
        float *K = table_of(step, c, ring, number), *V = table_of(step, c, ring + 1, number);
        if (c.blocks > 0) {
          const auto list = [&](uint32_t which, const float* blocks) {
            return BlockList{reinterpret_cast<const BlockAt*>(blocks), c.blocks,
                             run_arg(step, c.run_arg + c.count + which, number), in_row};
          };
          part.key_blocks = list(ring, K), part.value_blocks = list(ring + 1, V);
          K = ring_place(part.key_blocks, clock, stride), V = ring_place(part.value_blocks, clock, stride);
        } else {
          part.keys = K + in_row, part.values = V + in_row;
          K += clock % c.slots * stride + in_row, V += clock % c.slots * stride + in_row;
        }
        const float *key = head_of(c, k, row * stride + in_row), *value = head_of(c, k + 1, row * stride + in_row);
        for (size_t channel = threadIdx.x; channel < channels; channel += blockDim.x) {
          K[channel] = key[channel];
          V[channel] = value[channel];
        }
      };
      if (c.learned > 0) {
        const size_t at = head * c.learned * channels;
        job.parts[job.count++] = {nullptr,  head_of(c, base + 1, at), head_of(c, base + 2, at), channels, 0, c.learned,
                                  c.learned};
      }
      if (context) own(2, 3);
      own(0, 1);
      for (size_t query = head * c.shared; query < (head + 1) * c.shared; ++query) {
        const size_t at = row * c.width + query * channels;
        for (size_t p = 0; p < job.count; ++p) job.parts[p].q = head_of(c, c.learned > 0 && p == 0 ? base : 0, at);
        job.y = static_cast<float*>(c.out) + at;
        __syncthreads();
        attend(job);
      }
      waits = true;
    }
  }
}

CONTINUO_INLINE void run_wkv7(const Command& c, const Step& step, size_t number, Part part) {
  const RunArgs& run = run_at(step, number);
  float* const state = table_of(step, c, 0, number);
  if (!state) return;
  const Span heads = part.of(c.groups);
  const size_t n = c.width / c.groups, keys = c.count, key_width = c.groups * keys;
  for (size_t head = heads.begin; head < heads.end; ++head) {
    const size_t at = run.row * c.width + head * n, key = run.row * key_width + head * keys;
    const Wkv7Run job{state + head * keys * n,
                      head_of(c, 0, key),
                      head_of(c, 1, key),
                      head_of(c, 2, key),
                      head_of(c, 3, at),
                      head_of(c, 4, key),
                      head_of(c, 5, key),
                      static_cast<float*>(c.out) + at,
                      n,
                      keys,
                      c.width,
                      key_width,
                      run.rows};
    if (head > heads.begin) __syncthreads();
    wkv7(job, 0, n);
  }
}

CONTINUO_INLINE void run_ssm(const Command& c, const Step& step, size_t number, Part part) {
  const RunArgs& run = run_at(step, number);
  float* const state = table_of(step, c, 0, number);
  if (!state) return;
  const Span heads = part.of(c.groups);
  const size_t n = c.width / c.groups, keys = c.count, key_stride = c.groups / c.shared * keys;
  for (size_t head = heads.begin; head < heads.end; ++head) {
    const size_t at = run.row * c.width + head * n, one = run.row * c.groups + head,
                 key = run.row * key_stride + head / c.shared * keys;
    const SsmRun job{state + head * keys * n,
                     head_of(c, 0, at),
                     head_of(c, 1, one),
                     head_of(c, 2, one),
                     head_of(c, 3, key),
                     head_of(c, 4, key),
                     static_cast<const float*>(c.in[5])[head],
                     static_cast<float*>(c.out) + at,
                     n,
                     keys,
                     c.width,
                     c.groups,
                     key_stride,
                     run.rows};
    ssm(job, 0, n);
  }
}

// in: γ [width], k [count], q [count], v [width]. Any part of the columns.
CONTINUO_INLINE void run_pdr(const Command& c, const Step& step, size_t number, Part part) {
  const RunArgs& run = run_at(step, number);
  float* const state = table_of(step, c, 0, number);
  if (!state) return;
  const Span columns = part.of(c.width);
  const size_t at = run.row * c.width, key = run.row * c.count;
  const PdrRun job{state,
                   head_of(c, 0, at),
                   head_of(c, 3, at),
                   head_of(c, 1, key),
                   head_of(c, 2, key),
                   static_cast<float*>(c.out) + at,
                   c.width,
                   c.count,
                   run.rows,
                   c.convex};
  pdr(job, columns.begin, columns.end);
}

CONTINUO_INLINE void run_memory(const Command& c, const Step& step, size_t number, Part part) {
  const RunArgs& run = run_at(step, number);
  float *const S = table_of(step, c, 0, number), *const G = table_of(step, c, 1, number),
               *const M = table_of(step, c, 2, number);
  if (!M) return;
  const bool titans = c.form.rule == Rule::titans;
  const size_t heads = c.groups, n = c.width / heads, gates = c.levels * heads, each = n * n;
  const Span own = part.of(heads);
  bool waits = false;
  for (size_t head = own.begin; head < own.end; ++head) {
    const size_t at = run.row * c.width + head * n;
    size_t buffered = 0;
    for (size_t level = 0; level < c.levels; ++level) {
      const size_t gate = run.row * gates + level * heads + head, matrix = (level * heads + head) * each;
      MemoryRun job{};
      job.M = M + matrix;
      if (titans) job.S = S + matrix;
      if (c.periods[level] > 1) job.G = G + (buffered++ * heads + head) * each;
      job.q = head_of(c, 0, at);
      job.k = head_of(c, 1, at);
      job.v = head_of(c, 2, at);
      job.theta = head_of(c, 3, gate);
      if (titans) job.eta = head_of(c, 4, gate);
      if (c.form.retains()) job.alpha = head_of(c, titans ? 5 : 4, gate);
      job.y = static_cast<float*>(c.out) + at;
      job.channels = n;
      job.stride = c.width;
      job.gates = gates;
      job.tokens = run.rows;
      job.clock = run.clock;
      job.period = c.periods[level];
      job.mix = c.shares[head * c.levels + level];
      job.begin = level == 0;
      if (waits) __syncthreads();
      memory(c.form, job);
      waits = true;
    }
  }
}

// in[0]: init [levels][heads][n][n], where `count` says that it is there; width: heads · n.
CONTINUO_INLINE void run_memory_first(const Command& c, const Step& step, size_t number, Part part) {
  float* const M = table_of(step, c, 0, number);
  if (!M) return;
  const size_t heads = c.groups, n = c.width / heads;
  const float* init = c.count > 0 ? static_cast<const float*>(c.in[0]) : nullptr;
  const Span own = part.of(heads);
  for (size_t level = 0; level < c.levels; ++level) {
    for (size_t head = own.begin; head < own.end; ++head) {
      const size_t at = (level * heads + head) * n * n;
      if (level > 0 || head > own.begin) __syncthreads();
      memory_first(c.form, init ? init + at : nullptr, M + at, n);
    }
  }
}

// Only where the run's first row begins a segment, if there are any; width: heads · n.
CONTINUO_INLINE void run_mix(const Command& c, const Step& step, size_t number, Part part) {
  const RunArgs& run = run_at(step, number);
  const float* const M = table_of(step, c, 0, number);
  float* const mixed = table_of(step, c, 1, number);
  if (!M || (c.segment > 0 && run.clock % c.segment != 0)) return;
  const size_t heads = c.groups, n = c.width / heads, each = n * n;
  const Span own = part.of(heads);
  for (size_t head = own.begin; head < own.end; ++head) {
    if (head > own.begin) __syncthreads();
    mix(M + head * each, heads * each, c.shares + head * c.levels, c.levels, mixed + head * each, each);
  }
}

CONTINUO_INLINE void run_recall(const Command& c, const Step& step, size_t row, Part part) {
  const float* const M = table_of(step, c, 0, run_of_row(step, row));
  if (!M) return;
  const Span own = part.of(c.groups);
  const size_t n = c.width / c.groups, at = row * c.width, keys = c.in_width / c.groups;
  for (size_t head = own.begin; head < own.end; ++head) {
    if (head > own.begin) __syncthreads();
    if (keys != n) {
      recall_keys(M + head * keys * n, head_of(c, 0, row * c.in_width + head * keys),
                  static_cast<float*>(c.out) + at + head * n, keys, n);
      continue;
    }
    recall(M + head * n * n, head_of(c, 0, at + head * n), static_cast<float*>(c.out) + at + head * n, 1, c.width, n);
  }
}

// A block takes a run of a memory whole.
CONTINUO_INLINE void run_ngram(const Command& c, const Step& step, size_t number, Part part) {
  const RunArgs& run = run_at(step, number);
  float* const table = table_of(step, c, 0, number);
  if (!table || part.part > 0) return;
  const bool subwords = c.count == 2;
  const ngram::TokenTexts texts{static_cast<const uint8_t*>(c.in[2]), static_cast<const uint32_t*>(c.in[3]),
                                static_cast<const uint8_t*>(c.in[4]), c.width};
  ngram_read({.table = reinterpret_cast<int32_t*>(table),
              .text = reinterpret_cast<int32_t*>(table_of(step, c, 1, number)),
              .mixture = table_of(step, c, subwords ? 3 : 2, number),
              .tokens = static_cast<const int32_t*>(c.in[0]) + run.row,
              .base = c.count > 0 ? head_of(c, 1, run.row * c.width) : nullptr,
              .y = static_cast<float*>(c.out) + run.row * c.width,
              .slots = c.slots,
              .rows = run.rows,
              .learns = run_arg(step, c.run_arg + (subwords ? 4 : 3), number) != 0,
              .texts = subwords ? &texts : nullptr,
              .kept = subwords ? table_of(step, c, 2, number) : nullptr,
              .kind = ngram::kind_of(c.levels)});
}

CONTINUO_INLINE void run_ngram_first(const Command& c, const Step& step, size_t number, Part part) {
  float* const mixture = table_of(step, c, 0, number);
  if (!mixture || part.part > 0) return;
  ngram_first(mixture, c.count > 0 ? head_of(c, 0, 0) : nullptr, ngram::kind_of(c.width));
}

// False where the command is not of this family.
template <Family family> CONTINUO_INLINE bool run_family(const Command& c, const Step& step, size_t index, Part part) {
  if constexpr (family == Family::attention) {
    if (c.task == Task::attend)
      run_attend(c, step, index, part);
    else if (c.task == Task::attend_weights)
      run_attend_weights(c, step, index, part);
    else if (c.task == Task::attend_window)
      run_attend_window(c, step, index, part);
    else
      return false;
    return true;
  } else {
    switch (c.task) {
      case Task::recall: run_recall(c, step, index, part); return true;
      case Task::pdr: run_pdr(c, step, index, part); return true;
      case Task::wkv7: run_wkv7(c, step, index, part); return true;
      case Task::ssm: run_ssm(c, step, index, part); return true;
      case Task::memory: run_memory(c, step, index, part); return true;
      case Task::memory_first: run_memory_first(c, step, index, part); return true;
      case Task::mix: run_mix(c, step, index, part); return true;
      case Task::ngram: run_ngram(c, step, index, part); return true;
      case Task::ngram_first: run_ngram_first(c, step, index, part); return true;
      default: return false;
    }
  }
}

}  // namespace continuo::cuda
