// The functions of cuda.h in a build without CUDA.
#include "backends/cuda/cuda.h"

namespace continuo {

CudaStatus cuda_status() {
  CudaStatus status;
  status.reason =
      "this build of the engine has no CUDA backend: build it where nvcc and an NVIDIA GPU are, or with "
      "CONTINUO_CUDA=on (docs/gpu.md), or take the CPU, which gives "
      "the same bits.";
  return status;
}

Result<std::shared_ptr<Device>> open_cuda() {
  return Error{Code::unavailable, "CUDA cannot be used: " + cuda_status().reason};
}

}  // namespace continuo
