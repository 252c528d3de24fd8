// What tests may ask of the emulator of CUDA. On a GPU there is nothing to ask.
#pragma once

#include <cstdlib>
#include <string>

#include "backends/cuda/kernels/cuda.h"

namespace continuo::test {

#if defined(CONTINUO_EMULATE)

// Emulates a device of another kind during its own lifetime. No other object may be on the device.
class Emulated {
 public:
  Emulated(const char* name, const std::string& value) : name_(name) {
    ::setenv(name, value.c_str(), 1);
    (void)cudaDeviceReset();
  }
  ~Emulated() {
    ::unsetenv(name_);
    (void)cudaDeviceReset();
    (void)cudaGetLastError();
  }
  Emulated(const Emulated&) = delete;
  Emulated& operator=(const Emulated&) = delete;

 private:
  const char* name_;
};

// During its lifetime streams work when they are waited for, and not before; if not `late`, as usual.
class Late {
 public:
  explicit Late(bool late = true) { emulate::use_pace(late ? emulate::Pace::late : emulate::Pace::varied); }
  ~Late() { emulate::use_pace(emulate::Pace::varied); }
  Late(const Late&) = delete;
  Late& operator=(const Late&) = delete;
};

#else

class Late {
 public:
  explicit Late(bool = true) {}
};

#endif

}  // namespace continuo::test
