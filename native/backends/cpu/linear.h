// y = W·x over all threads, whatever W's format.
#pragma once

#include <span>

#include "backends/cpu/kernels/kernels.h"
#include "base/memory.h"
#include "base/threads.h"

namespace continuo {

// Bytes that `multiply` needs for `rows` rows and this matrix: its rows, quantised.
size_t scratch_bytes(const PackedMatrix& w, size_t rows);

// x [rows, inputs], y [rows, outputs]; at least scratch_bytes(w, rows) of scratch, which holds nothing between calls.
void multiply(ThreadPool& pool, const Kernels& kernels, const PackedMatrix& w, const float* x, float* y, size_t rows,
              Memory& scratch);

}  // namespace continuo
