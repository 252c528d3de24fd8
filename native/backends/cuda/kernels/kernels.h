// The launches of the CUDA kernels. Each puts its work into a stream and returns; what goes wrong on the way shows in
// the runtime's error, which the caller asks for.
//
// One arithmetic: whatever grid, block or batch, an output element is computed by the CPU's sequence of IEEE operations
// (backends/cpu/kernels/kernels.h). A thread owns whole outputs, or one of the partial sums that reduce.h has; nothing
// is added by atomics.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/command.h"
#include "backends/cuda/kernels/cuda.h"
#include "runtime/model/list_rows.h"

namespace continuo::cuda {

// Brings every kernel to the device, which would otherwise happen at its first launch, with all that can fail then.
// Gives the first error.
cudaError_t load();

// Runs `count` commands, one after the other, over rows or runs [first, first + indices), each in `parts` parts of its
// columns. A block takes one index and one part through all of them, so a later command may read what an earlier one
// wrote at the same index and part. More than one command: every run has one row, so that a row and its run have the
// same index. `commands` is on the device. `family`: that of the commands, of which at most one besides rows is among
// them. `threads`: a multiple of 32; most_threads(family) where that is less.
void run(const Command* commands, uint32_t count, const Step& step, uint32_t first, uint32_t indices, uint32_t parts,
         uint32_t threads, cudaStream_t stream, Family family);

// y = W·x of rows [first, first + rows) for `count` products that do not depend on each other, at most most_products.
// `products` is on the host, and goes along with the launch. Quantised rows lie in `scratch`: scratch_bytes() of it, on
// the device.
void multiply(const Product* products, uint32_t count, uint32_t first, uint32_t rows, void* scratch,
              cudaStream_t stream);
size_t scratch_bytes(const Product* products, uint32_t count, uint32_t rows);

// Groups places of rows [first, first + rows) by their matrices, into `memory`: route_bytes() of it, on the device. No
// host waits for the ids: the grid of what follows has blocks for all passes that there may be.
void route(const Routed& routed, uint32_t first, uint32_t rows, void* memory, cudaStream_t stream);
size_t route_bytes(const Routed& routed, uint32_t rows);
// y = W·x of these rows, after route() of these ids, matrices and rows.
void multiply_routed(const Routed& routed, uint32_t first, uint32_t rows, void* memory, void* scratch,
                     cudaStream_t stream);
size_t scratch_bytes(const Routed& routed, uint32_t rows);

// An expert of a store: its three matrices, without rows, and where the rows of a step lie.
struct ExpertProducts {
  Product gate, up, down;
  const float* x = nullptr;  // [rows, channels]
  float* y = nullptr;        // [rows, chosen, channels]
  uint32_t chosen = 1;       // experts that a row goes to
};
// y of `count` places (experts.h) = down(silu(gate x) · up x). `places` is on the device; `rows`: row_floats() floats,
// `scratch`: scratch_bytes(), both on the device.
void multiply_expert(const ExpertProducts& expert, const uint32_t* places, uint32_t count, float* rows, void* scratch,
                     cudaStream_t stream);
// The same of one place, which lies where it is read and written.
void multiply_expert(const ExpertProducts& expert, size_t place, float* rows, void* scratch, cudaStream_t stream);
size_t scratch_bytes(const ExpertProducts& expert, uint32_t count);
size_t row_floats(const ExpertProducts& expert, uint32_t count);
// y of these places becomes NaN.
void lose_places(const uint32_t* places, uint32_t count, size_t width, float* y, cudaStream_t stream);
cudaError_t load_experts();

// Rows of a list (runtime/model/list_rows.h), of slots first, first + 1, …; every address is the device's.
struct ListLaying {
  const ListRow* rows;  // [slots]
  uint32_t slots, layers, heads, channels, pairs;
  const uint32_t* increments;  // [pairs]
  uint32_t first = 0;
};
void lay(const ListLaying& list, cudaStream_t stream);
cudaError_t load_list();

// Writes 1 to *flag where one of n numbers is not finite.
void finite(const float* numbers, size_t n, uint32_t* flag, cudaStream_t stream);
// Writes n elements of 1, 2, 4 or 8 bytes.
void fill(void* to, size_t n, uint64_t pattern, uint32_t bytes, cudaStream_t stream);

}  // namespace continuo::cuda
