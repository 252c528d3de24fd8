// Shared by the parts of the emulated runtime: the one device of the process, and the frame of each call.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "test/emulate/cuda.h"

namespace continuo::emulate {

class Device {
 public:
  // Never destroyed: threads may still be at work when the process ends.
  static Device& one();

  // The error that every call returns where the device is missing or has failed; else success.
  cudaError_t standing();
  // From now on every call returns this error.
  cudaError_t fail(cudaError_t error);
  bool old();
  // Whether the next kernel may run.
  cudaError_t admit();
  uint64_t launches() const { return launches_; }
  Calls calls() const { return {allocations_, waits_}; }
  void note_wait() { ++waits_; }
  // Frees all memory, streams and graphs, pinned memory too, and reads the environment again.
  void reset();

  cudaError_t allocate(void** to, size_t bytes);
  cudaError_t free(void* memory);
  void room(size_t* free, size_t* total);

  cudaError_t pin(void** to, size_t bytes);
  cudaError_t unpin(void* memory);

  enum class Side : uint8_t { pageable, pinned, device, astride };
  // The memory in which a range lies. `astride`: it begins in an allocation and goes past its end.
  Side side(const void* from, size_t bytes);

  // Streams and graphs.
  template <class T> T* keep(T* resource) {
    const std::lock_guard lock(mutex_);
    resources_[resource] = [](void* owned) { delete static_cast<T*>(owned); };
    return resource;
  }
  // Destroys the resource; false where there is none at this address.
  bool destroy(void* resource);

 private:
  // The beginning of each allocation, and its bytes.
  using Ranges = std::map<std::byte*, size_t>;

  Device() { read_environment(); }
  // Removes an allocation and returns its bytes; none where no allocation begins at this address.
  static std::optional<size_t> give_back(Ranges& ranges, void* memory);
  void read_environment();

  std::mutex mutex_;
  Ranges allocated_, pinned_;
  std::map<void*, void (*)(void*)> resources_;
  size_t used_ = 0, total_ = 0;
  cudaError_t failure_ = cudaSuccess;
  bool old_ = false;
  uint64_t fault_ = 0;
  std::atomic<uint64_t> launches_ = 0, allocations_ = 0, waits_ = 0;
};

// Notes the error for cudaGetLastError.
cudaError_t failed(cudaError_t error);

// The number of streams that the calling thread captures.
extern constinit thread_local int captures;

// Runs a call, unless the device is missing or has failed.
template <class F> cudaError_t call(const F& f) {
  const cudaError_t standing = Device::one().standing();
  return failed(standing != cudaSuccess ? standing : f());
}

// The same for a call that CUDA forbids to a thread that captures a stream, because it could wait for work that is only
// being recorded.
template <class F> cudaError_t uncaptured(const F& f) {
  return call([&] { return captures > 0 ? cudaErrorStreamCaptureUnsupported : f(); });
}

// Runs the work of all streams; drops it.
void finish_all();
void drop_all();

}  // namespace continuo::emulate
