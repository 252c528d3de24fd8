// What the device is told to do: plain data, which host and device read alike.
//
// A Command is one instruction of a program: made once, when an executor is made, and kept on the device. What changes
// from step to step, which contexts take part and where their tables lie, comes in the step's arguments, one upload a
// step. So a step is the same list of launches with the same arguments every time, and can be captured as a CUDA graph.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "base/type.h"
#include "graph/elementwise.h"
#include "graph/forms.h"

namespace continuo::cuda {

enum class Task : uint8_t {
  // Of each row by itself; any part of the columns.
  embed,
#define CONTINUO_TASK(name, cost) name,
  CONTINUO_UNARY_OPS(CONTINUO_TASK) CONTINUO_BINARY_OPS(CONTINUO_TASK)
#undef CONTINUO_TASK
      lerp,
  range,
  clamp,
  slice,
  repeat,
  cast,
  less,
  equal,
  remainder,
  shift,
  read,
  write,
  gather,
  scale,
  gather_numbers,
  combine,
  torus,
  // Of each row by itself; whole groups of the columns.
  norm,
  rmsnorm,
  unit,
  l2norm,
  bonus,
  rope,
  softmax,
  normalise,
  topk,
  attend,
  attend_weights,
  recall,
  nearest,
  project,
  whole,
  adapter,
  // Walk the rows of a run; parts as above.
  conv,
  pdr,
  wkv7,
  ssm,
  attend_window,
  memory,
  memory_first,
  mix,
  ngram,
  ngram_first,
  gates,
  // Of each row by itself, whole.
  surprisal,
};

constexpr bool walks(Task task) { return task >= Task::conv && task <= Task::gates; }

// What a launch is compiled for: rows and small walks alone, or these and one family that needs many registers.
enum class Family : uint8_t { rows, attention, recurrence };
constexpr Family family_of(Task task) {
  switch (task) {
    case Task::attend:
    case Task::attend_weights:
    case Task::attend_window: return Family::attention;
    case Task::recall:
    case Task::pdr:
    case Task::wkv7:
    case Task::ssm:
    case Task::memory:
    case Task::memory_first:
    case Task::mix:
    case Task::ngram:
    case Task::ngram_first: return Family::recurrence;
    default: return Family::rows;
  }
}
// The most threads of a block.
constexpr uint32_t most_threads(Family family) { return family == Family::recurrence ? 256 : 512; }

constexpr uint32_t most_inputs = 8;

// Addresses are the device's. in[i] and out: of row 0, or of a constant (bit i of `constant`). A row of out has `width`
// elements; memory_first and mix have no out, their width is heads × channels of a head. in[] is that of the graph's
// node, without what is not there, and besides:
//   range, clamp  in[1], in[2]: low, high [levels]        rope     in[1]: increments u32 [pairs]
//   conv          in[1]: weights [width, taps]; in[2]: bias [width] or null
//   gates         in[0] θ, in[1] η, in[2] α: null where there is none
//   attend_window q, k, v, [context k, v], [learned: queries, keys, values]
//   memory        q, k, v, θ, [η], [α]                    surprisal  in[0]: logits; out: one number a row
//   project       in[1]: normals [count, width]; in[2]: bounds, in[3]: 1 / Σ n² of each normal [count]; in[4]: floats
//                 [rows of a step, count] that the command uses itself
//   adapter       y, x; in[2]: floats [rows of a step, count] that the command uses itself
//   ngram         token, [base]; of subwords in[2], in[3], in[4]: the members of TokenTexts, whose number is the width
//   ngram_first   [learned]; width: numbers
struct Command {
  Task task{};
  Type type = Type::f32;      // slice, cast, less, equal, remainder, read, write: of in[0], or of the table
  Type type_out = Type::f32;  // cast
  Dtype dtype = Dtype::f32;   // embed, attend, attend_weights: of the table
  uint32_t constant = 0;
  uint32_t width = 0;
  uint32_t in_width = 0;  // elements of a row of in[0]; embed: rows of the table; gather, write: bytes of a row
  uint32_t groups = 1;    // heads or groups
  uint32_t shared =
      1;  // attend, attend_weights, attend_window: query heads that share one key head; ssm: heads that share b and c
  uint32_t levels = 1;   // range, clamp, memory, memory_first, mix, gates; ngram: numbers of its mixture
  uint32_t taps = 0;     // conv
  uint32_t count = 0;    // less, equal, remainder, memory_first: inputs; attend_window: places (2 or 4); rope: pairs;
                         // memory, gates: kinds of gates; combine: rows; ssm: keys; wkv7: keys; repeat: times;
                         // attend_weights: positions whose weights are given; torus: tables of offsets (0 or 1);
                         // nearest: inputs; project: half-spaces; adapter: its rank; pdr: keys; ngram: whether there
                         // is a base (1), or one of subwords (2); ngram_first: inputs
  uint32_t slots = 0;    // attend_window: of the rings; ngram: of the memory
  uint32_t blocks = 0;   // attend_window: of each ring; 0 where it is one span
  uint32_t learned = 0;  // attend_window: learned positions
  uint32_t from = 0;     // slice: the first element; adapter: elements of a row of x
  bool silu = true;      // conv
  bool convex = true;    // pdr
  float eps = 0;
  float scale = 0;       // attend, attend_weights, attend_window; scale: the factor
  int64_t number = 0;    // less, equal, remainder; project: sweeps
  uint64_t segment = 0;  // attend_window, mix
  MemoryForm form;       // memory, memory_first
  const void* in[most_inputs] = {};
  void* out = nullptr;
  const uint64_t* periods = nullptr;  // memory [levels]
  const float* shares = nullptr;      // memory, mix [heads, levels]
  uint32_t run_arg = 0;               // the first of the arguments that the step has for each run, and for each row
  uint32_t row_arg = 0;
};

// One run of a step: consecutive rows of one context.
struct RunArgs {
  uint64_t row, rows;
  uint64_t clock;   // of its first row
  uint64_t origin;  // the clock at which the context's state began
};

// What a step is about. args: RunArgs [runs], then per row its run [rows], then the arguments of each run
// [run_args][runs], then the arguments of each row [row_args][rows]. An address that is 0 belongs to a run that cannot
// go on: it is left alone. Arguments of each run: shift, conv, pdr, wkv7, ssm, recall, memory_first: the table's
// member. torus: the offsets, or 0. adapter: A, B. attend_window: keys, values, [context keys, context
//   values]; where they are blocks (BlockAt), as many arguments more say which member of each. memory: S or 0, G or 0,
//   M. mix: M, where it goes. ngram: slots, text, [base,] mixture, whether it learns. ngram_first: the mixture. gates:
//   the bits of `levels × 3` sums so far (θ, η, α; double), which come back in `notes` at the same place.
// Arguments of each row: attend: keys, values, first, last, slots (first, last, slots: positions); where slots is 0,
// keys
//   and values are blocks (BlockAt), and three more arguments say which member of each, and how many blocks each has.
//   attend_weights: keys (BlockAt), the member, how many blocks, last, the first position whose weight is given.
//   read, write: the member; read of a counter (type i64): its value. rope: the low word of the position. gather: where
//   the row comes from. surprisal: the token that was expected.
struct Step {
  const uint64_t* args;
  uint64_t* notes;
  uint32_t rows, runs;
  uint32_t run_args;  // arguments that the step has for each run
};

constexpr uint32_t args_of_run = sizeof(RunArgs) / 8;
constexpr uint32_t attend_args = 8;  // of a row
constexpr uint32_t attend_weights_args = 5;

// Where an argument lies.
constexpr size_t run_arg_at(size_t rows, size_t runs, size_t arg, size_t run) {
  return args_of_run * runs + rows + arg * runs + run;
}
constexpr size_t row_arg_at(size_t rows, size_t runs, size_t run_args, size_t arg, size_t row) {
  return args_of_run * runs + rows + run_args * runs + arg * rows + row;
}
constexpr size_t args_in(size_t rows, size_t runs, size_t run_args, size_t row_args) {
  return args_of_run * runs + rows + run_args * runs + row_args * rows;
}

// One product of rows and a packed matrix, and the function of its outputs that is wanted beside them.
struct Product {
  Dtype dtype{};
  uint32_t outputs = 0, inputs = 0;
  uint32_t group = 0;          // quantised dtypes
  const void* data = nullptr;  // PackedMatrix::data, on the device
  const float* x = nullptr;    // of row 0
  float* y = nullptr;
  bool epilogue = false;
  Task epilogue_task{};           // one of CONTINUO_UNARY_OPS
  float* epilogue_out = nullptr;  // of row 0
};

constexpr uint32_t most_products = 16;  // in one launch

// Products with the matrices of a stack: place k of a row meets matrix ids[k]. An id that names none gives NaN.
struct Routed {
  Product product;         // data: of matrix 0; x: [inputs] of row 0, or [chosen][inputs]; y: [chosen][outputs]
  const int32_t* ids;      // [chosen] of row 0
  uint32_t chosen = 1;     // places of a row
  bool one_input = false;  // all places of a row have the same x
  uint32_t matrices = 1;
  size_t matrix_bytes = 0;
};

// Places of a step of as many rows as a step may have.
constexpr uint32_t most_places = 128 * static_cast<uint32_t>(max_chosen);

}  // namespace continuo::cuda
