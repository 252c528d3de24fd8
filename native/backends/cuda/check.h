// Turns errors of the CUDA runtime into DeviceErrors.
#pragma once

#include "backends/cuda/kernels/cuda.h"
#include "runtime/model/device.h"

namespace continuo::cuda {

// Throws DeviceError where a call of the runtime failed. `what` completes "CUDA failed to …". An error after which
// every later call fails ("sticky" in CUDA's documents) marks the device as lost.
void check(cudaError_t error, const char* what);

}  // namespace continuo::cuda
