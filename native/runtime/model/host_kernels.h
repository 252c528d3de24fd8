// The functions that the runtime computes on the host with every device: for draws and surprisals from logits, for
// the shares of a memory's levels, and for the external memory of a decoder. A backend provides the table
// (Device::host_kernels).
#pragma once

#include <cstddef>
#include <cstdint>

namespace continuo {

// Of `unit` over rows of an external memory: their topics, their questions.
constexpr float unit_eps = 1e-12f;

struct HostKernels {
  const char* name;  // of the instruction set

  void (*exp)(const float* a, float* out, size_t n);
  void (*log)(const float* a, float* out, size_t n);
  float (*max)(const float* a, size_t n);
  float (*sum_exp)(const float* a, float shift, size_t n);  // Σ exp(a − shift)
  bool (*finite)(const float* a, size_t n);
  // Softmax of x[0], x[stride], … into out[0 … n−1].
  void (*softmax)(const float* x, size_t stride, float* out, size_t n);
  float (*dot)(const float* a, const float* b, size_t n);  // a row sum
  void (*map_silu)(const float* a, float* out, size_t n);
  void (*map_gelu)(const float* a, float* out, size_t n);
  // [rows, width] each; weight and bias [width]. Normalises every group of width/groups channels.
  void (*norm)(const float* x, const float* weight, const float* bias, float* y, size_t rows, size_t width,
               size_t groups, float eps);
  // x / sqrt(Σ x² + eps) within each group.
  void (*unit)(const float* x, float* y, size_t rows, size_t width, size_t groups, float eps);
  // Rotary positions of one row at the position's low word: pairs (i, i + pairs) of each head turn by increments[i] ·
  // position / 2³² turns; its channels from 2 · pairs on stay.
  void (*rope)(const float* x, float* y, size_t heads, size_t channels, size_t pairs, const uint32_t* increments,
               uint32_t position);
};

}  // namespace continuo
