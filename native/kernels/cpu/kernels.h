// The CPU kernels behind one table of function pointers, built once per instruction set from the same sources.
//
// One arithmetic: every table gives the same bits. What makes it so:
// - an output element is computed by a fixed sequence of IEEE operations; vector lanes are different outputs, or the
//   sixteen fixed partial sums of reduce.h, never a number of partial sums that depends on the vector width;
// - fma is written out, contraction is off, and no value-changing compiler flag is used;
// - exp, log, tanh and their kin are polynomials of ours (math.h), not the C library's.
//
// Rows are tokens. A row-wise kernel computes rows [first, last) of dense row-major buffers and nothing else, so any split
// of the rows over threads, steps and sessions gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../../dtype.h"
#include "../../memory_form.h"
#include "../../result.h"

namespace continuo {

constexpr size_t tile_lanes = 64;    // outputs per packed tile
constexpr size_t block_terms = 256;  // terms of an inner product per block sum
constexpr size_t max_taps = 64;      // of a convolution

// y = W·x. The outputs are cut into tiles of 64, zero-padded; the 64 weights that meet one x[k] lie side by side, so lanes are outputs.
//   f32, f16, bf16   [tiles][inputs][64] in the stored dtype
//   q8, ternary      [tiles][⌈inputs/group⌉] groups, each { codes, scales f16 [64] }; a weight is (code − zero)·scale
//     q8       zero 128, codes u8 [group/4][64][4]
//     ternary  zero 1, codes 0, 1, 2 in 2 bits, [group/4][64] bytes: bits 2i and 2i+1 of byte b are the code that q8 would keep at
//              byte 64·i + b of [64][4]
// Codes past the last input or output are `zero`, scales past the last output 0.
struct PackedMatrix {
  Dtype dtype;
  size_t outputs;
  size_t inputs;
  size_t group;  // q8, ternary: 32 or 64 inputs
  const void* data;

  size_t tiles() const { return (outputs + tile_lanes - 1) / tile_lanes; }
  size_t groups() const { return (inputs + group - 1) / group; }
  size_t group_bytes() const { return group * tile_lanes / (dtype == Dtype::ternary ? 4 : 1) + scales_bytes; }
  static constexpr size_t scales_bytes = tile_lanes * 2;
};

constexpr int32_t zero_code(Dtype dtype) { return dtype == Dtype::ternary ? 1 : 128; }

// A block of one row's activations, quantised for one dtype and group of weights. Per group: s = max|x| / 127 and
// q = x / s, rounded to the nearest integer, ties to even, and clamped to ±127; s = 0 gives q = 0. A group that holds a NaN or an
// infinity has s = NaN and q = 0, so that every output it touches is NaN. s depends on nothing but the group's own numbers.
struct QuantisedBlock {
  int8_t terms[block_terms];
  float scales[block_terms / 32];
  int32_t corrections[block_terms / 32];  // −zero·Σ q: turns Σ code·q into Σ (code − zero)·q
};

// The product of quantised weights and rows, block by block of 256 terms: acc = 0; for the block's groups in order
//   dot = Σ (code − zero)·q, an exact int32;  acc = fma(float(dot), w_scale · x_scale, acc), with one f32 product of the scales;
// block sums are added in order from 0. Nothing overflows and float(dot) is exact: with 64 terms |Σ code·q| ≤ 64·255·127 < 2²¹,
// the correction is at most 64·128·127 < 2²⁰, and |dot| ≤ 64·127·127 < 2²⁰.

// The recurrence of one head over consecutive tokens. Pointers address the head's first channel in the first token's row.
struct Wkv7Run {
  float* state;  // [channels (key)][channels (value)]: value channels are the lanes
  const float *r, *w, *k, *v, *kk, *a;
  float* y;
  size_t channels;
  size_t stride;  // floats from one token's row to the next
  size_t tokens;
};

// One row of keys and values that a query looks along: positions [first, last), whose channels lie at (p mod slots) · stride.
struct AttendPart {
  const float* q;  // [channels]
  const float *keys, *values;
  size_t stride;
  size_t first, last, slots;
};
// Attention of one head of one token, over its parts in order.
struct AttendRun {
  AttendPart parts[3];
  size_t count;
  float* y;  // [channels]
  size_t channels;
  float scale;
};

// One level of one head of a matrix memory over consecutive tokens (memory.h). Pointers address the head's first channel, or the
// level's and head's gate, in the first token's row.
struct MemoryRun {
  float *M, *S, *G;  // [channels (key)][channels (value)]; S and G null where the form has none
  const float *q, *k, *v;
  const float *theta, *eta, *alpha;
  float* y;  // what is read, level after level
  size_t channels;
  size_t stride;  // floats from one token's row to the next
  size_t gates;   // the same, of a row of gates
  size_t tokens;
  uint64_t clock;  // of the first token
  uint64_t period;
  float mix;   // the level's share in y
  bool begin;  // the first level: y starts here
};

struct Kernels {
  const char* name;

  // f32, f16, bf16: rows [row, row+rows) × tiles [tile, tile_end); x [·, inputs], y [·, outputs].
  void (*matmul)(const PackedMatrix& w, const float* x, float* y, size_t row, size_t rows, size_t tile, size_t tile_end);
  // One row x [inputs] into its blocks out[0], out[stride], …, for products with w.
  void (*quantise)(const PackedMatrix& w, const float* x, QuantisedBlock* out, size_t stride);
  // As matmul, for q8 and ternary; x [blocks][x_rows].
  void (*matmul_quantised)(const PackedMatrix& w, const QuantisedBlock* x, size_t x_rows, float* y, size_t row, size_t rows, size_t tile, size_t tile_end);
  // Lanes [lane, lane_end) of the value channels.
  void (*wkv7)(const Wkv7Run& run, size_t lane, size_t lane_end);

  // [rows, width] each; weight and bias [width]. Normalises every group of width/groups channels.
  void (*norm)(const float* x, const float* weight, const float* bias, float* y, size_t rows, size_t width, size_t groups, float eps);
  // x / max(‖x‖, floor) within each group.
  void (*l2norm)(const float* x, float* y, size_t rows, size_t width, size_t groups, float floor);
  // y + (Σ_j r_j k_j u_j) v within each group; u [width].
  void (*bonus)(const float* y, const float* r, const float* k, const float* u, const float* v, float* out, size_t rows, size_t width, size_t groups);

  // Elementwise over n numbers.
  void (*add)(const float* a, const float* b, float* out, size_t n);
  void (*mul)(const float* a, const float* b, float* out, size_t n);
  void (*lerp)(const float* a, const float* b, const float* t, float* out, size_t n);  // fma(b − a, t, a)
  void (*tanh)(const float* a, float* out, size_t n);
  void (*sigmoid)(const float* a, float* out, size_t n);
  void (*relu2)(const float* a, float* out, size_t n);  // max(a, 0)²
  void (*decay)(const float* a, float* out, size_t n);  // exp(−e^(−1/2) · sigmoid(a))
  void (*exp)(const float* a, float* out, size_t n);
  void (*log)(const float* a, float* out, size_t n);

  float (*max)(const float* a, size_t n);
  float (*sum_exp)(const float* a, float shift, size_t n);  // Σ exp(a − shift)
  bool (*finite)(const float* a, size_t n);

  // More of the elementwise kind.
  void (*silu)(const float* a, float* out, size_t n);      // a · sigmoid(a)
  void (*gelu)(const float* a, float* out, size_t n);      // 0.5a (1 + tanh(√(2/π)(a + 0.044715a³)))
  void (*softplus)(const float* a, float* out, size_t n);  // log(1 + e^a)

  void (*attend)(const AttendRun& run);

  // x / sqrt(mean(x²) + eps) ⊙ weight, and x / sqrt(Σ x² + eps), within each group.
  void (*rmsnorm)(const float* x, const float* weight, float* y, size_t rows, size_t width, size_t groups, float eps);
  void (*unit)(const float* x, float* y, size_t rows, size_t width, size_t groups, float eps);
  // low + (high − low) · sigmoid(x), by fma.
  void (*range)(const float* x, float low, float high, float* y, size_t n);
  // Rotary positions of one row at the clock's low word: pairs (i, i + pairs) of each head turn by increments[i] · clock / 2³² turns.
  void (*rope)(const float* x, float* y, size_t heads, size_t pairs, const uint32_t* increments, uint32_t clock);
  // silu of a causal convolution over channels [channel, channel_end) of rows [0, rows): tail [taps−1, width] holds the rows before,
  // weights [width, taps], whose last meets the row itself.
  void (*conv)(const float* x, const float* tail, const float* weights, float* y, size_t rows, size_t width, size_t taps, size_t channel, size_t channel_end);
  void (*memory)(const MemoryForm& form, const MemoryRun& run);
  // One head's levels added up: out = Σ mix[i] · M[i · stride + …] over n² numbers, by fma from 0.
  void (*mix)(const float* M, size_t stride, const float* mix, size_t levels, float* out, size_t numbers);
  // y[a] = Σ_b M[b][a] c[b] for each of `rows` rows.
  void (*recall)(const float* M, const float* c, float* y, size_t rows, size_t stride, size_t channels);
  // What init [value][key] stands for as the first state of one head of one level.
  void (*memory_first)(const MemoryForm& form, const float* init, float* M, size_t channels);
  // Softmax of x[0], x[stride], … into out[0 … n−1].
  void (*softmax)(const float* x, size_t stride, float* out, size_t n);
};

extern const Kernels generic_kernels;
#if defined(__x86_64__)
extern const Kernels avx2_kernels;
extern const Kernels avx512_kernels;
extern const Kernels avx512vnni_kernels;
#endif

// The tables this CPU can run, the fastest first.
std::vector<const Kernels*> runnable_kernels();

// The fastest of them, or the one that the environment variable CONTINUO_ISA names: generic, avx2, avx512 or avx512vnni.
// INVALID for another name, and for a table this CPU cannot run.
Result<const Kernels*> choose_kernels();

}  // namespace continuo
