// Opens a CUDA device. In a build without CUDA both functions report that (absent.cc). In a build with CUDA they report
// what is missing on this machine. This header needs no header of CUDA.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "runtime/model/device.h"

namespace continuo {

// Versions are those of the CUDA runtime: 13000 for 13.0; 0 where unknown.
struct CudaStatus {
  bool built = false;          // this build has the backend
  bool emulated = false;       // the backend runs on the host, for tests
  std::string reason;          // why no device can be used, and what to do; empty where a device can be used
  std::string name;            // of the device
  int major = 0, minor = 0;    // its compute capability
  size_t total = 0, free = 0;  // bytes of its memory
  int driver = 0, runtime = 0;
};

CudaStatus cuda_status();

// The first device that CUDA lists (CUDA_VISIBLE_DEVICES chooses), shared by all models of the process. After the loss
// of a device this function resets it and returns a new Device; the contents of the lost one are gone.
Result<std::shared_ptr<Device>> open_cuda();

}  // namespace continuo
