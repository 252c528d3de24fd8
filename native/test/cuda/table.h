// The CUDA kernels in a table like the CPU's: each entry copies its arguments to the device, runs the kernel there, and
// copies the results back. So every test suite of kernels compares them with the CPU's, bit for bit.
#pragma once

#include "backends/cpu/kernels/kernels.h"

namespace continuo::test {

extern const Kernels cuda_kernels;

// The number of threads of a block in the next call. It varies, so that the suites see many sizes.
unsigned int next_threads();

namespace staged {

// table_state.cu
void matmul(const PackedMatrix& w, const float* x, float* y, size_t row, size_t rows, size_t tile, size_t tile_end);
void quantise(const PackedMatrix& w, const float* x, QuantisedBlock* out, size_t stride);
void matmul_quantised(const PackedMatrix& w, const QuantisedBlock* x, size_t x_rows, float* y, size_t row, size_t rows,
                      size_t tile, size_t tile_end);
void wkv7(const Wkv7Run& run, size_t lane, size_t lane_end);
void ssm(const SsmRun& run, size_t lane, size_t lane_end);
void pdr(const PdrRun& run, size_t lane, size_t lane_end);
void ngram(const NgramRun& run);
void ngram_first(float* mixture, const float* learned, ngram::Kind kind);
void recall_keys(const float* S, const float* q, float* y, size_t keys, size_t channels);
void attend(const AttendRun& run);
void attend_rows(const AttendRows& run);
void memory(const MemoryForm& form, const MemoryRun& run);
void mix(const float* M, size_t stride, const float* mix, size_t levels, float* out, size_t numbers);
void recall(const float* M, const float* c, float* y, size_t rows, size_t stride, size_t channels);
void memory_first(const MemoryForm& form, const float* init, float* M, size_t channels);
void softmax(const float* x, size_t stride, float* out, size_t n);

}  // namespace staged

}  // namespace continuo::test
