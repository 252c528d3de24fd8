// Copies host ranges to the device for one call of a CUDA kernel, and copies the results back after the call.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "backends/cuda/kernels/launch.h"

namespace continuo::test {

inline void must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s (%s)\n", what, cudaGetErrorString(error), cudaGetErrorName(error));
  std::abort();
}

class Staged {
 public:
  Staged() = default;
  Staged(const Staged&) = delete;
  Staged& operator=(const Staged&) = delete;
  // Waits for the call, then copies back.
  ~Staged() {
    must(cudaGetLastError(), "a CUDA kernel was not launched");
    must(cudaDeviceSynchronize(), "a CUDA kernel failed");
    for (const auto& range : back_) {
      must(cudaMemcpy(range.host, range.device, range.bytes, cudaMemcpyDeviceToHost), "cannot copy from the device");
    }
    for (void* memory : own_) must(cudaFree(memory), "cannot free device memory");
    used() = 0;
  }

  // `n` elements that the call reads. A null pointer stays null.
  template <class T> const T* in(const T* host, size_t n) { return static_cast<const T*>(copy(host, n * sizeof(T))); }
  // The same, for ranges that kernels read in wide loads: the copy begins on a whole line, as with executors, whatever
  // the alignment on the host.
  template <class T> const T* in_line(const T* host, size_t n) {
    T* device = scratch<T>(n);
    must(cudaMemcpy(device, host, n * sizeof(T), cudaMemcpyHostToDevice), "cannot copy to the device");
    return device;
  }
  // Elements that the call reads and writes, or writes in part.
  template <class T> T* both(T* host, size_t n) {
    void* device = copy(host, n * sizeof(T));
    if (device) back_.push_back({host, device, n * sizeof(T)});
    return static_cast<T*>(device);
  }
  // Elements that the call writes without exception. They begin as NaN.
  template <class T> T* out(T* host, size_t n) {
    void* device = allocate(host, n * sizeof(T));
    back_.push_back({host, device, n * sizeof(T)});
    return static_cast<T*>(device);
  }
  // Scratch memory: no copies.
  template <class T> T* scratch(size_t n) { return static_cast<T*>(allocate(nullptr, n * sizeof(T))); }

 private:
  struct Range {
    void* host;
    void* device;
    size_t bytes;
  };

  void* copy(const void* host, size_t bytes) {
    if (!host) return nullptr;
    void* device = allocate(host, bytes);
    must(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice), "cannot copy to the device");
    return device;
  }

  // The copy has the alignment of the host's range, so that kernels meet the alignments that the tests choose.
  void* allocate(const void* host, size_t bytes) {
    const size_t skew = reinterpret_cast<uintptr_t>(host) % line;
#if defined(CONTINUO_EMULATE)
    // An allocation for each range: AddressSanitizer reports an access past its end.
    void* memory = nullptr;
    must(cudaMalloc(&memory, skew + bytes + (skew + bytes == 0)), "cannot allocate device memory");
    own_.push_back(memory);
    return static_cast<std::byte*>(memory) + skew;
#else
    // All ranges in one block that is kept, because cudaMalloc is slow.
    static std::byte* const pool = [] {
      void* memory = nullptr;
      must(cudaMalloc(&memory, pool_bytes), "cannot allocate device memory");
      return static_cast<std::byte*>(memory);
    }();
    const size_t whole = (skew + bytes + line - 1) / line * line;
    if (used() + whole > pool_bytes)
      must(cudaErrorMemoryAllocation, "a call needs more device memory than the tests have");
    std::byte* const device = pool + used() + skew;
    used() += whole;
    must(cudaMemset(device, 0xFF, bytes), "cannot fill device memory");
    return device;
#endif
  }

  static size_t& used() {
    static size_t bytes = 0;
    return bytes;
  }

  static constexpr size_t line = 256, pool_bytes = size_t{1} << 29;
  std::vector<Range> back_;
  std::vector<void*> own_;
};

}  // namespace continuo::test
