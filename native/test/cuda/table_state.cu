// The entries of products, recurrences, attention and memories.
#include "staged.h"
#include "table.h"

namespace continuo::test::staged {

// Until the CUDA kernels of these families are merged, their entries are the CPU's.
void matmul(const PackedMatrix& w, const float* x, float* y, size_t row, size_t rows, size_t tile, size_t tile_end) { generic_kernels.matmul(w, x, y, row, rows, tile, tile_end); }
void quantise(const PackedMatrix& w, const float* x, QuantisedBlock* out, size_t stride) { generic_kernels.quantise(w, x, out, stride); }
void matmul_quantised(const PackedMatrix& w, const QuantisedBlock* x, size_t x_rows, float* y, size_t row, size_t rows, size_t tile, size_t tile_end) {
  generic_kernels.matmul_quantised(w, x, x_rows, y, row, rows, tile, tile_end);
}
void wkv7(const Wkv7Run& run, size_t lane, size_t lane_end) { generic_kernels.wkv7(run, lane, lane_end); }
void attend(const AttendRun& run) { generic_kernels.attend(run); }
void memory(const MemoryForm& form, const MemoryRun& run) { generic_kernels.memory(form, run); }
void mix(const float* M, size_t stride, const float* mix, size_t levels, float* out, size_t numbers) { generic_kernels.mix(M, stride, mix, levels, out, numbers); }
void recall(const float* M, const float* c, float* y, size_t rows, size_t stride, size_t channels) { generic_kernels.recall(M, c, y, rows, stride, channels); }
void memory_first(const MemoryForm& form, const float* init, float* M, size_t channels) { generic_kernels.memory_first(form, init, M, channels); }
void softmax(const float* x, size_t stride, float* out, size_t n) { generic_kernels.softmax(x, stride, out, n); }

}  // namespace continuo::test::staged
