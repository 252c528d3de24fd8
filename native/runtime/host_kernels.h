// The functions that the runtime computes on the host with every device: for draws and surprisals from logits, and for
// the shares of a memory's levels. A backend provides the table (Device::host_kernels).
#pragma once

#include <cstddef>

namespace continuo {

struct HostKernels {
  const char* name;  // of the instruction set

  void (*exp)(const float* a, float* out, size_t n);
  void (*log)(const float* a, float* out, size_t n);
  float (*max)(const float* a, size_t n);
  float (*sum_exp)(const float* a, float shift, size_t n);  // Σ exp(a − shift)
  bool (*finite)(const float* a, size_t n);
  // Softmax of x[0], x[stride], … into out[0 … n−1].
  void (*softmax)(const float* x, size_t stride, float* out, size_t n);
};

}  // namespace continuo
