// y = W·x over all threads, whatever W's format.
#pragma once

#include <span>

#include "backends/cpu/kernels/kernels.h"
#include "base/memory.h"
#include "base/threads.h"

namespace continuo {

struct Product {
  PackedMatrix w;
  const float* x;  // [rows, inputs]
  float* y;        // [rows, outputs]
};

// Products that one call takes at most.
constexpr size_t max_products = 8;

// Bytes that `multiply` needs for `rows` rows and this matrix: its rows, quantised.
size_t scratch_bytes(const PackedMatrix& w, size_t rows);

// Products of the same number of rows, none of which reads what another writes, side by side. `scratch` has the
// scratch_bytes() of all of them at least, and holds nothing between calls.
void multiply(ThreadPool& pool, const Kernels& kernels, std::span<const Product> products, size_t rows,
              Memory& scratch);

}  // namespace continuo
