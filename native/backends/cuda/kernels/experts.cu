// The products of rows with one expert of a store.
#include "backends/cuda/kernels/experts.h"
#include "backends/cuda/kernels/kernels.h"
#include "backends/cuda/kernels/launch.h"

namespace continuo::cuda {

cudaError_t load_experts() { return load_kernels(gather_places, scatter_places, gate_rows); }

namespace {

// out [count, channels] of in [count, channels]; gate: memory for gate and up, [count, inner] each.
void multiply_rows(const ExpertProducts& expert, const float* in, float* gate, float* out, uint32_t count,
                   void* scratch, cudaStream_t stream) {
  constexpr uint32_t threads = 256;
  const size_t n = size_t{count} * expert.down.inputs;
  float* const up = gate + n;
  Product inward[] = {expert.gate, expert.up};
  inward[0].x = inward[1].x = in;
  inward[0].y = gate, inward[1].y = up;
  multiply(inward, 2, 0, count, scratch, stream);
  const size_t blocks = (n + threads - 1) / threads;
  launch(gate_rows, static_cast<uint32_t>(blocks < 4096 ? blocks : 4096), threads, stream, gate,
         static_cast<const float*>(up), n);
  Product outward = expert.down;
  outward.x = gate, outward.y = out;
  multiply(&outward, 1, 0, count, scratch, stream);
}

}  // namespace

void multiply_expert(const ExpertProducts& expert, const uint32_t* places, uint32_t count, float* rows, void* scratch,
                     cudaStream_t stream) {
  if (count == 0) return;
  constexpr uint32_t threads = 256;
  const size_t channels = expert.down.outputs;
  float *const in = rows, *const out = in + count * channels, *const gate = out + count * channels;
  launch(gather_places, count, threads, stream, expert.x, places, expert.chosen, channels, in);
  multiply_rows(expert, in, gate, out, count, scratch, stream);
  launch(scatter_places, count, threads, stream, static_cast<const float*>(out), places, channels, expert.y);
}

void multiply_expert(const ExpertProducts& expert, size_t place, float* rows, void* scratch, cudaStream_t stream) {
  const size_t channels = expert.down.outputs;
  multiply_rows(expert, expert.x + place / expert.chosen * channels, rows, expert.y + place * channels, 1, scratch,
                stream);
}

size_t scratch_bytes(const ExpertProducts& expert, uint32_t count) {
  const Product inward[] = {expert.gate, expert.up};
  const size_t into = scratch_bytes(inward, 2, count), out = scratch_bytes(&expert.down, 1, count);
  return into > out ? into : out;
}

size_t row_floats(const ExpertProducts& expert, uint32_t count) {
  return size_t{count} * 2 * (expert.down.outputs + expert.down.inputs);
}

void lose_places(const uint32_t* places, uint32_t count, size_t width, float* y, cudaStream_t stream) {
  if (count > 0) launch(scatter_places, count, 256u, stream, static_cast<const float*>(nullptr), places, width, y);
}

}  // namespace continuo::cuda
