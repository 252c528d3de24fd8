// The way to a CUDA device. In a build without CUDA both functions say so (absent.cc); in one with it they also say
// what is missing on this machine. Nothing here needs CUDA's headers.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "runtime/device.h"

namespace continuo {

// What there is of CUDA. Versions as the runtime gives them, 13000 for 13.0; 0 where unknown.
struct CudaStatus {
  bool built = false;          // this build has the backend
  bool emulated = false;       // it runs on the host, for tests
  std::string reason;          // why no device can be used, a sentence with what to do; empty where one can
  std::string name;            // of the device
  int major = 0, minor = 0;    // its compute capability
  size_t total = 0, free = 0;  // bytes of its memory
  int driver = 0, runtime = 0;
};

CudaStatus cuda_status();

// The first device that CUDA shows (CUDA_VISIBLE_DEVICES chooses); shared by every model of the process. After an error
// that no call on the device survives, a new one takes its place here, and what lived on the old one is gone.
Result<std::shared_ptr<Device>> open_cuda();

}  // namespace continuo
