// The CPU kernels behind one table of function pointers, built once per instruction set from the same sources.
//
// One arithmetic: every table gives the same bits. What makes it so:
// - an output element is computed by a fixed sequence of IEEE operations; vector lanes are different outputs, or the
//   sixteen fixed partial sums of reduce.h, never a number of partial sums that depends on the vector width;
// - fma is written out, contraction is off, and no value-changing compiler flag is used;
// - exp, log, tanh and their kin are polynomials of ours (math.h), not the C library's.
//
// Rows are tokens. A row-wise kernel computes rows [first, last) of dense row-major buffers and nothing else, so any
// split of the rows over threads, steps and sessions gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backends/jobs.h"
#include "base/result.h"
#include "graph/elementwise.h"
#include "runtime/model/host_kernels.h"

namespace continuo {

struct Kernels : HostKernels {
  // f32, f16, bf16: rows [row, row+rows) × tiles [tile, tile_end); x [·, inputs], y [·, outputs].
  void (*matmul)(const PackedMatrix& w, const float* x, float* y, size_t row, size_t rows, size_t tile,
                 size_t tile_end);
  // One row x [inputs] into its blocks out[0], out[stride], …, for products with w.
  void (*quantise)(const PackedMatrix& w, const float* x, QuantisedBlock* out, size_t stride);
  // As matmul, for the quantised dtypes; x [blocks][x_rows].
  void (*matmul_quantised)(const PackedMatrix& w, const QuantisedBlock* x, size_t x_rows, float* y, size_t row,
                           size_t rows, size_t tile, size_t tile_end);
  // Lanes [lane, lane_end) of the value channels.
  void (*wkv7)(const Wkv7Run& run, size_t lane, size_t lane_end);
  // Lanes [lane, lane_end) of the head's channels.
  void (*ssm)(const SsmRun& run, size_t lane, size_t lane_end);

  // x / max(‖x‖, floor) within each group.
  void (*l2norm)(const float* x, float* y, size_t rows, size_t width, size_t groups, float floor);
  // y + (Σ_j r_j k_j u_j) v within each group; u [width].
  void (*bonus)(const float* y, const float* r, const float* k, const float* u, const float* v, float* out, size_t rows,
                size_t width, size_t groups);

  // Elementwise over n numbers: the functions of graph/elementwise.h.
#define CONTINUO_UNARY_KERNEL(name, cost) void (*name)(const float* a, float* out, size_t n);
#define CONTINUO_BINARY_KERNEL(name, cost) void (*name)(const float* a, const float* b, float* out, size_t n);
  CONTINUO_UNARY_OPS(CONTINUO_UNARY_KERNEL)
  CONTINUO_BINARY_OPS(CONTINUO_BINARY_KERNEL)
#undef CONTINUO_UNARY_KERNEL
#undef CONTINUO_BINARY_KERNEL
  void (*lerp)(const float* a, const float* b, const float* t, float* out, size_t n);  // fma(b − a, t, a)

  void (*attend)(const AttendRun& run);
  // Its softmax weights of `count` positions from `first` on, as it weighs their values; 0 where it sees none.
  void (*attend_shares)(const AttendRun& run, size_t first, size_t count, float* out);
  // What `attend` gives for each of the rows.
  void (*attend_rows)(const AttendRows& run);
  // The same in three steps, each behind the one before (AttendSplit): blocks [block, block_end), or heads of keys
  // [head, head_end), in any order.
  void (*split_scores)(const AttendSplit& split, size_t block, size_t block_end);
  void (*split_values)(const AttendSplit& split, size_t block, size_t block_end);
  void (*split_join)(const AttendSplit& split, size_t head, size_t head_end);

  // x / sqrt(mean(x²) + eps) ⊙ weight within each group.
  void (*rmsnorm)(const float* x, const float* weight, float* y, size_t rows, size_t width, size_t groups, float eps);
  // low + (high − low) · sigmoid(x), by fma.
  void (*range)(const float* x, float low, float high, float* y, size_t n);
  // x where it lies between low and high, else the nearer of the two; NaN stays NaN.
  void (*clamp)(const float* x, float low, float high, float* y, size_t n);
  // Channels [channel, channel_end) of all rows.
  void (*conv)(const ConvRun& run, size_t channel, size_t channel_end);
  void (*memory)(const MemoryForm& form, const MemoryRun& run);
  // One head's levels added up: out = Σ mix[i] · M[i · stride + …] over n² numbers, by fma from 0.
  void (*mix)(const float* M, size_t stride, const float* mix, size_t levels, float* out, size_t numbers);
  // y[a] = Σ_b M[b][a] c[b] for each of `rows` rows.
  void (*recall)(const float* M, const float* c, float* y, size_t rows, size_t stride, size_t channels);
  // What init [value][key] stands for as the first state of one head of one level.
  void (*memory_first)(const MemoryForm& form, const float* init, float* M, size_t channels);

  void (*scale)(const float* a, float factor, float* out, size_t n);  // a · factor
  // Softmax of each row [n], and each row over its sum. y may be x.
  void (*softmax_rows)(const float* x, float* y, size_t rows, size_t n);
  void (*normalise)(const float* x, float* y, size_t rows, size_t n);
  // y [n] = Σ_k w[k] · x[k], of x [count, n], by fma over k from 0.
  void (*combine)(const float* x, const float* w, float* y, size_t count, size_t n);
  void (*rerotate_kv)(const ListJob& job);
  // Lanes [lane, lane_end) of the channels.
  void (*pdr)(const PdrRun& run, size_t lane, size_t lane_end);
  void (*ngram)(const NgramRun& run);
  // The first numbers of a mixture; learned may be null.
  void (*ngram_first)(float* mixture, const float* learned, ngram::Kind kind);
  // y[a] = Σ_b S[b][a] q[b] of one head of [keys, channels].
  void (*recall_keys)(const float* S, const float* q, float* y, size_t keys, size_t channels);
  // Squared distances d [n] of a point z [2] from positions [n, 2], moved by offsets [n, 2] or null.
  void (*torus)(const float* z, const float* positions, const float* offsets, float* d, size_t n);
  void (*axpy)(float factor, const float* x, float* y, size_t n);  // y ← fma(factor, x, y)
  void (*whole)(const float* x, int8_t* out, size_t n);            // whole numbers under one scale, which is dropped
};

extern const Kernels generic_kernels;
#if defined(__x86_64__)
extern const Kernels avx2_kernels;
extern const Kernels avx512_kernels;
extern const Kernels avx512vnni_kernels;
#endif

// The tables this CPU can run, the fastest first.
std::vector<const Kernels*> runnable_kernels();

// The fastest of them, or the one that the environment variable CONTINUO_ISA names: generic, avx2, avx512 or
// avx512vnni. INVALID for another name, and for a table this CPU cannot run.
Result<const Kernels*> choose_kernels();

}  // namespace continuo
