// What the parts of the emulated runtime share: the one device of the process, and how a call begins.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <optional>

#include "test/emulate/cuda.h"

namespace continuo::emulate {

class Device {
 public:
  // Never destroyed: threads may still be at work when the process ends.
  static Device& one();

  // What every call gives: the error of a device that is not there, or that has failed.
  cudaError_t standing();
  // From now on every call gives this.
  cudaError_t fail(cudaError_t error);
  bool old();
  // Whether the next kernel may run.
  cudaError_t admit();
  uint64_t launches() const { return launches_; }
  // Takes memory, streams, graphs and pinned memory with it, and reads the environment again.
  void reset();

  cudaError_t allocate(void** to, size_t bytes);
  cudaError_t free(void* memory);
  void room(size_t* free, size_t* total);

  cudaError_t pin(void** to, size_t bytes);
  cudaError_t unpin(void* memory);

  enum class Side : uint8_t { pageable, pinned, device, astride };
  // Where a range lies; `astride`: within something that was allocated, and beyond its end.
  Side side(const void* from, size_t bytes);

  // Streams and graphs.
  template <class T> T* keep(T* resource) {
    const std::lock_guard lock(mutex_);
    resources_[resource] = [](void* held) { delete static_cast<T*>(held); };
    return resource;
  }
  // Whether there is such a one; it is destroyed.
  bool destroy(void* resource);

 private:
  // Where something begins, and its bytes.
  using Ranges = std::map<std::byte*, size_t>;

  Device() { read_environment(); }
  // How many bytes were given back; nothing where no range begins there.
  static std::optional<size_t> give_back(Ranges& ranges, void* memory);
  void read_environment();

  std::mutex mutex_;
  Ranges allocated_, pinned_;
  std::map<void*, void (*)(void*)> resources_;
  size_t used_ = 0, total_ = 0;
  cudaError_t failure_ = cudaSuccess;
  bool old_ = false;
  uint64_t fault_ = 0;
  std::atomic<uint64_t> launches_ = 0;
};

// Notes the error for cudaGetLastError.
cudaError_t failed(cudaError_t error);

// Streams that the calling thread captures.
extern constinit thread_local int captures;

// Runs a call, unless the device is not there or has failed.
template <class F> cudaError_t call(const F& f) {
  const cudaError_t standing = Device::one().standing();
  return failed(standing != cudaSuccess ? standing : f());
}

// The same, of a call that CUDA forbids to a thread that captures a stream: it could wait for work that is only being
// recorded.
template <class F> cudaError_t uncaptured(const F& f) {
  return call([&] { return captures > 0 ? cudaErrorStreamCaptureUnsupported : f(); });
}

// Does what all streams were told; forgets it.
void finish_all();
void drop_all();

}  // namespace continuo::emulate
