// Commands that work on a row by itself (command.h), by the threads of a block.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/cast.h"
#include "backends/cuda/kernels/command.h"
#include "backends/cuda/kernels/norm.h"
#include "backends/cuda/kernels/rope.h"
#include "backends/cuda/kernels/routing.h"
#include "backends/cuda/kernels/sample.h"
#include "backends/cuda/kernels/torus.h"
#include "base/dtype.h"

namespace continuo::cuda {

struct Span {
  size_t begin, end;
  CONTINUO_INLINE size_t size() const { return end - begin; }
};

// Which of a launch's parts the block does.
struct Part {
  uint32_t part, parts;
  CONTINUO_INLINE Span of(size_t n) const { return {n * part / parts, n * (part + 1) / parts}; }
};

CONTINUO_INLINE const RunArgs& run_at(const Step& step, size_t run) {
  return reinterpret_cast<const RunArgs*>(step.args)[run];
}
CONTINUO_INLINE size_t run_of_row(const Step& step, size_t row) {
  return step.args[size_t{args_of_run} * step.runs + row];
}
CONTINUO_INLINE uint64_t run_arg(const Step& step, size_t arg, size_t run) {
  return step.args[run_arg_at(step.rows, step.runs, arg, run)];
}
CONTINUO_INLINE uint64_t row_arg(const Step& step, size_t arg, size_t row) {
  return step.args[row_arg_at(step.rows, step.runs, step.run_args, arg, row)];
}

CONTINUO_INLINE size_t bytes_of(Type type) {
  switch (type) {
    case Type::f32:
    case Type::i32: return 4;
    case Type::f16:
    case Type::bf16: return 2;
    case Type::i64: return 8;
    default: return 1;
  }
}

// A row of an operand as wide as the output, or a constant.
template <class T = float> CONTINUO_INLINE const T* operand(const Command& c, int i, size_t row) {
  return static_cast<const T*>(c.in[i]) + ((c.constant >> i & 1) != 0 ? 0 : row * c.width);
}
CONTINUO_INLINE float* out_row(const Command& c, size_t row) { return static_cast<float*>(c.out) + row * c.width; }

// Bytes [begin, end) of a row.
CONTINUO_INLINE void copy_bytes(void* to, const void* from, size_t begin, size_t end) {
  if (((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | begin | end) & 3) == 0) {
    for (size_t i = begin / 4 + threadIdx.x; i < end / 4; i += blockDim.x)
      static_cast<uint32_t*>(to)[i] = static_cast<const uint32_t*>(from)[i];
  } else {
    for (size_t i = begin + threadIdx.x; i < end; i += blockDim.x)
      static_cast<uint8_t*>(to)[i] = static_cast<const uint8_t*>(from)[i];
  }
}

// The part's bytes of a row of `bytes`, which has `elements` elements where that is known: whole elements, so that they
// are the ones that a command before had in the same part.
CONTINUO_INLINE void copy_part(Part part, void* to, const void* from, size_t bytes, size_t elements) {
  const size_t each = elements > 0 ? bytes / elements : 1;
  const Span span = part.of(elements > 0 ? elements : bytes);
  copy_bytes(to, from, span.begin * each, span.end * each);
}

CONTINUO_INLINE void embed(const Command& c, size_t row, Span columns) {
  const int64_t id = static_cast<const int32_t*>(c.in[0])[row];
  float* out = out_row(c, row);
  const bool there = id >= 0 && id < int64_t{c.in_width};
  const size_t from = there ? static_cast<size_t>(id) * c.width : 0;
  for (size_t i = columns.begin + threadIdx.x; i < columns.end; i += blockDim.x) {
    if (!there)
      out[i] = __builtin_nanf("");  // which nobody can miss
    else if (c.dtype == Dtype::f32)
      out[i] = static_cast<const float*>(c.in[1])[from + i];
    else
      out[i] = c.dtype == Dtype::f16 ? widen_f16(static_cast<const uint16_t*>(c.in[1])[from + i])
                                     : widen_bf16(static_cast<const uint16_t*>(c.in[1])[from + i]);
  }
}

template <class T> CONTINUO_INLINE void compare(const Command& c, size_t row, Span columns) {
  const T *a = operand<T>(c, 0, row), *b = c.count > 1 ? operand<T>(c, 1, row) : nullptr;
  for (size_t i = columns.begin + threadIdx.x; i < columns.end; i += blockDim.x) {
    const T right = b ? b[i] : static_cast<T>(c.number);
    static_cast<uint8_t*>(c.out)[row * c.width + i] = c.task == Task::less ? a[i] < right : a[i] == right;
  }
}

CONTINUO_INLINE void remainder(const Command& c, size_t row, Span columns) {
  const int32_t *a = operand<int32_t>(c, 0, row), *b = c.count > 1 ? operand<int32_t>(c, 1, row) : nullptr;
  for (size_t i = columns.begin + threadIdx.x; i < columns.end; i += blockDim.x) {
    // Of a flooring division, so that it is never negative; nothing is divided by less than one.
    const int64_t divisor = b ? b[i] : static_cast<int32_t>(c.number);
    const int64_t rest = divisor > 0 ? a[i] % divisor : 0;
    static_cast<int32_t*>(c.out)[row * c.width + i] = static_cast<int32_t>(rest < 0 ? rest + divisor : rest);
  }
}

// low + (high − low) · sigmoid(x), each level of a row with its own; in[1], in[2]: low and high [levels].
CONTINUO_INLINE void range(const Command& c, size_t row, Span columns) {
  const float *x = operand(c, 0, row), *low = static_cast<const float*>(c.in[1]),
              *high = static_cast<const float*>(c.in[2]);
  float* y = out_row(c, row);
  const size_t each = c.width / c.levels;
  for (size_t i = columns.begin + threadIdx.x; i < columns.end; i += blockDim.x) {
    const size_t level = i / each;
    const float span = high[level] - low[level];
    y[i] = fma(span, sigmoid(x[i]), low[level]);
  }
}

// x between low and high, each level of a row with its own; in[1], in[2]: low and high [levels].
CONTINUO_INLINE void clamp(const Command& c, size_t row, Span columns) {
  const float *x = operand(c, 0, row), *low = static_cast<const float*>(c.in[1]),
              *high = static_cast<const float*>(c.in[2]);
  float* y = out_row(c, row);
  const size_t each = c.width / c.levels;
  for (size_t i = columns.begin + threadIdx.x; i < columns.end; i += blockDim.x)
    y[i] = clamp(x[i], low[i / each], high[i / each]);
}

// Elements `from` on of each of the row's groups.
CONTINUO_INLINE void slice_groups(const Command& c, size_t row, Span columns) {
  const size_t each = bytes_of(c.type), n = c.width / c.groups, stride = c.in_width / c.groups;
  const auto* in = static_cast<const uint8_t*>(c.in[0]) + (row * c.in_width + c.from) * each;
  auto* out = static_cast<uint8_t*>(c.out) + row * c.width * each;
  for (size_t i = columns.begin * each + threadIdx.x; i < columns.end * each; i += blockDim.x)
    out[i] = in[i / each / n * stride * each + i % (n * each)];
}

// Each of the row's groups `count` times.
CONTINUO_INLINE void repeat(const Command& c, size_t row, Span columns) {
  const size_t n = c.in_width / c.groups;
  const float* in = static_cast<const float*>(c.in[0]) + row * c.in_width;
  float* out = out_row(c, row);
  for (size_t i = columns.begin + threadIdx.x; i < columns.end; i += blockDim.x)
    out[i] = in[i / n / c.count * n + i % n];
}

// A row that is its run's first gets what the context kept, and alone keeps the run's last.
CONTINUO_INLINE void shift(const Command& c, const Step& step, size_t row, Span columns) {
  const size_t number = run_of_row(step, row);
  const RunArgs& run = run_at(step, number);
  auto* kept = reinterpret_cast<float*>(run_arg(step, c.run_arg, number));
  if (!kept) return;
  const float* in = static_cast<const float*>(c.in[0]);
  float* out = out_row(c, row);
  const bool first = row == run.row;
  for (size_t i = columns.begin + threadIdx.x; i < columns.end; i += blockDim.x) {
    out[i] = first ? kept[i] : in[(row - 1) * c.width + i];
    if (first) kept[i] = in[(run.row + run.rows - 1) * c.width + i];
  }
}

// Without offsets where there is no table of them, and after a fault of the run.
CONTINUO_INLINE void torus(const Command& c, const Step& step, size_t row, Span experts) {
  const uint64_t offsets = c.count > 0 ? run_arg(step, c.run_arg, run_of_row(step, row)) : 0;
  torus(static_cast<const float*>(c.in[0]) + row * 2, static_cast<const float*>(c.in[1]),
        reinterpret_cast<const float*>(offsets), out_row(c, row), experts.begin, experts.end);
}

CONTINUO_INLINE void adapter(const Command& c, const Step& step, size_t row) {
  const size_t run = run_of_row(step, row);
  const auto *A = reinterpret_cast<const float*>(run_arg(step, c.run_arg, run)),
             *B = reinterpret_cast<const float*>(run_arg(step, c.run_arg + 1, run));
  if (!A) return;
  auto* low = static_cast<float*>(const_cast<void*>(c.in[2])) + row * c.count;
  adapter(operand(c, 0, row), static_cast<const float*>(c.in[1]) + row * c.from, A, B, low, out_row(c, row), c.from,
          c.width, c.count);
}

CONTINUO_INLINE void project(const Command& c, size_t row) {
  auto* corrections = static_cast<float*>(const_cast<void*>(c.in[4])) + row * c.count;
  project(operand(c, 0, row), static_cast<const float*>(c.in[1]), static_cast<const float*>(c.in[3]),
          static_cast<const float*>(c.in[2]), corrections, out_row(c, row), c.width, c.count, c.number);
}

template <class F> CONTINUO_INLINE void map_columns(const Command& c, size_t row, Span columns, const F& f) {
  map(columns.size(), out_row(c, row) + columns.begin, f, operand(c, 0, row) + columns.begin);
}
template <class F> CONTINUO_INLINE void map_columns2(const Command& c, size_t row, Span columns, const F& f) {
  map(columns.size(), out_row(c, row) + columns.begin, f, operand(c, 0, row) + columns.begin,
      operand(c, 1, row) + columns.begin);
}

CONTINUO_INLINE void run_row(const Command& c, const Step& step, size_t row, Part part) {
  const Span columns = part.of(c.width), groups = part.of(c.groups);
  const size_t n = c.width / c.groups;
  switch (c.task) {
    case Task::embed: return embed(c, row, columns);
#define CONTINUO_UNARY_TASK(name, cost) \
  case Task::name: return map_columns(c, row, columns, [](float x) { return name(x); });
#define CONTINUO_BINARY_TASK(name, cost) \
  case Task::name: return map_columns2(c, row, columns, [](float a, float b) { return name(a, b); });
      CONTINUO_UNARY_OPS(CONTINUO_UNARY_TASK)
      CONTINUO_BINARY_OPS(CONTINUO_BINARY_TASK)
#undef CONTINUO_UNARY_TASK
#undef CONTINUO_BINARY_TASK
    case Task::lerp: {
      const size_t at = columns.begin;
      const float *a = operand(c, 0, row) + at, *b = operand(c, 1, row) + at, *t = operand(c, 2, row) + at;
      return map(
          columns.size(), out_row(c, row) + at, [](float x, float y, float z) { return lerp(x, y, z); }, a, b, t);
    }
    case Task::range: return range(c, row, columns);
    case Task::clamp: return clamp(c, row, columns);
    case Task::repeat: return repeat(c, row, columns);
    case Task::slice: {
      if (c.groups > 1) return slice_groups(c, row, columns);
      const size_t each = bytes_of(c.type);
      return copy_bytes(static_cast<uint8_t*>(c.out) + row * c.width * each,
                        static_cast<const uint8_t*>(c.in[0]) + (row * c.in_width + c.from) * each, columns.begin * each,
                        columns.end * each);
    }
    case Task::cast: {
      const size_t at = row * c.width;
      for (size_t i = at + columns.begin + threadIdx.x; i < at + columns.end; i += blockDim.x) {
        write_number(c.out, c.type_out, i, read_number(c.in[0], c.type, i));
      }
      return;
    }
    case Task::less:
    case Task::equal: return c.type == Type::f32 ? compare<float>(c, row, columns) : compare<int32_t>(c, row, columns);
    case Task::remainder: return remainder(c, row, columns);
    case Task::shift: return shift(c, step, row, columns);
    case Task::read: {
      const uint64_t member = row_arg(step, c.row_arg, row);
      if (c.type == Type::i64) {
        if (columns.begin < columns.end && threadIdx.x == 0)
          static_cast<int32_t*>(c.out)[row] = static_cast<int32_t>(member);
        return;
      }
      const size_t bytes = c.width * bytes_of(c.type);
      if (member != 0)
        copy_part(part, static_cast<uint8_t*>(c.out) + row * bytes, reinterpret_cast<const void*>(member), bytes,
                  c.width);
      return;
    }
    case Task::write: {
      const uint64_t member = row_arg(step, c.row_arg, row);
      if (member != 0)
        copy_part(part, reinterpret_cast<void*>(member), static_cast<const uint8_t*>(c.in[0]) + row * c.in_width,
                  c.in_width, c.width);
      return;
    }
    case Task::gather: {
      const uint64_t from = row_arg(step, c.row_arg, row);
      if (from != 0)
        copy_part(part, static_cast<uint8_t*>(c.out) + row * c.in_width, reinterpret_cast<const void*>(from),
                  c.in_width, c.width);
      return;
    }
    case Task::scale: {
      const float factor = c.scale;
      return map_columns(c, row, columns, [=](float x) { return x * factor; });
    }
    case Task::gather_numbers:
      return gather_numbers(static_cast<const float*>(c.in[0]) + row * c.in_width, c.in_width,
                            operand<int32_t>(c, 1, row), out_row(c, row), columns.begin, columns.end);
    case Task::combine:
      return combine(static_cast<const float*>(c.in[0]) + row * c.in_width,
                     static_cast<const float*>(c.in[1]) + row * c.count, out_row(c, row), c.count, c.width,
                     columns.begin, columns.end);
    case Task::softmax: return softmax_row(operand(c, 0, row), out_row(c, row), c.width);
    case Task::normalise: return normalise(operand(c, 0, row), out_row(c, row), c.width);
    case Task::topk:
      return topk(static_cast<const float*>(c.in[0]) + row * c.in_width, c.in_width,
                  static_cast<int32_t*>(c.out) + row * c.width, c.width);
    case Task::torus: return torus(c, step, row, columns);
    case Task::nearest:
      return nearest(static_cast<const float*>(c.in[0]) + row * c.in_width, c.in_width,
                     c.count > 1 ? static_cast<const int32_t*>(c.in[1])[row] : 0,
                     static_cast<int32_t*>(c.out) + row * c.width, c.width);
    case Task::project: return project(c, row);
    case Task::whole: return whole(operand(c, 0, row), static_cast<int8_t*>(c.out) + row * c.width, c.width);
    case Task::adapter: return adapter(c, step, row);
    case Task::norm:
      return norm(operand(c, 0, row), operand(c, 1, row), operand(c, 2, row), out_row(c, row), n, groups.begin,
                  groups.end, c.eps);
    case Task::rmsnorm:
      return rmsnorm(operand(c, 0, row), operand(c, 1, row), out_row(c, row), n, groups.begin, groups.end, c.eps);
    case Task::unit: return unit(operand(c, 0, row), out_row(c, row), n, groups.begin, groups.end, c.eps);
    case Task::l2norm: return l2norm(operand(c, 0, row), out_row(c, row), n, groups.begin, groups.end, c.eps);
    case Task::bonus:
      return bonus(operand(c, 0, row), operand(c, 1, row), operand(c, 2, row), operand(c, 3, row), operand(c, 4, row),
                   out_row(c, row), n, groups.begin, groups.end);
    case Task::rope:
      return rope(operand(c, 0, row), out_row(c, row), groups.begin, groups.end, n, c.count,
                  static_cast<const uint32_t*>(c.in[1]), static_cast<uint32_t>(row_arg(step, c.row_arg, row)));
    case Task::surprisal: {
      if (part.part != 0) return;
      const float nats =
          surprisal(static_cast<const float*>(c.in[0]) + row * c.width, c.width, row_arg(step, c.row_arg, row));
      if (threadIdx.x == 0) static_cast<float*>(c.out)[row] = nats;
      return;
    }
    default: return;
  }
}

}  // namespace continuo::cuda
