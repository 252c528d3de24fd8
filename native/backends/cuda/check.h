// Errors of CUDA's runtime as sentences.
#pragma once

#include "backends/cuda/kernels/cuda.h"
#include "runtime/device.h"

namespace continuo::cuda {

// Throws DeviceError where a call of the runtime failed; `what` completes "failed to". What no later call survives
// ("sticky" in CUDA's documents) marks the device as lost.
void check(cudaError_t error, const char* what);

}  // namespace continuo::cuda
