// CUDA's runtime over host memory. Streams and events carry no work of their own: what is asked for is done at once.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "cuda.h"

using Work = std::function<cudaError_t()>;

struct CUgraph_st {
  std::vector<Work> work;
};
struct CUgraphExec_st {
  std::vector<Work> work;
};
struct CUstream_st {
  CUgraph_st* capture = nullptr;
};
struct CUevent_st {
  bool timed = true, recorded = false;
  std::chrono::steady_clock::time_point at{};
};

namespace continuo::emulate {

namespace {

constexpr size_t page = 256;  // cudaMalloc aligns to this

// Of the calling thread.
thread_local cudaError_t last_error = cudaSuccess;
thread_local int captures = 0;

cudaError_t failed(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

class Device {
 public:
  // Never destroyed: threads may still be at work when the process ends.
  static Device& one() {
    static Device& device = *new Device;
    return device;
  }

  // What every call gives: the error of a device that is not there, or that has failed.
  cudaError_t standing() {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

  bool old() {
    const std::lock_guard lock(mutex_);
    return old_;
  }

  uint64_t launches() const { return launches_; }

  // Whether the next kernel may run.
  cudaError_t admit() {
    const uint64_t number = ++launches_;
    const std::lock_guard lock(mutex_);
    if (failure_ != cudaSuccess) return failure_;
    if (old_) return cudaErrorNoKernelImageForDevice;
    if (fault_ != 0 && number == fault_) return failure_ = cudaErrorIllegalAddress;
    return cudaSuccess;
  }

  void reset() {
    const std::lock_guard lock(mutex_);
    for (const auto& [memory, bytes] : allocated_) release(memory);
    allocated_.clear();
    used_ = 0;
    for (const auto& [resource, by] : resources_) by(resource);
    resources_.clear();
    read_environment();
  }

  // Streams, graphs and pinned memory, which go with a reset too.
  using Destroy = void (*)(void*);
  void keep(void* resource, Destroy by) {
    const std::lock_guard lock(mutex_);
    resources_[resource] = by;
  }
  template <class T>
  T* keep(T* resource) {
    keep(resource, [](void* held) { delete static_cast<T*>(held); });
    return resource;
  }
  // Whether there is such a one; it is destroyed.
  bool destroy(void* resource) {
    const std::lock_guard lock(mutex_);
    const auto found = resources_.find(resource);
    if (found == resources_.end()) return false;
    found->second(resource);
    resources_.erase(found);
    return true;
  }

  cudaError_t allocate(void** to, size_t bytes) {
    const std::lock_guard lock(mutex_);
    *to = nullptr;
    if (bytes == 0) return cudaSuccess;
    const size_t whole = (bytes + page - 1) / page * page;
    if (bytes > total_ || whole > total_ - used_) return cudaErrorMemoryAllocation;
    void* memory = ::operator new(bytes, std::align_val_t{page}, std::nothrow);
    if (!memory) return cudaErrorMemoryAllocation;
    std::memset(memory, 0xFF, bytes);
    allocated_[static_cast<std::byte*>(memory)] = bytes;
    used_ += whole;
    *to = memory;
    return cudaSuccess;
  }

  cudaError_t free(void* memory) {
    const std::lock_guard lock(mutex_);
    if (!memory) return cudaSuccess;
    const auto found = allocated_.find(static_cast<std::byte*>(memory));
    if (found == allocated_.end()) return cudaErrorInvalidValue;
    used_ -= (found->second + page - 1) / page * page;
    release(found->first);
    allocated_.erase(found);
    return cudaSuccess;
  }

  void room(size_t* free, size_t* total) {
    const std::lock_guard lock(mutex_);
    *free = total_ - used_;
    *total = total_;
  }

  enum class Side { host, device, neither };
  // Where a range lies; `neither`: it begins in device memory and ends outside of what was allocated there.
  Side side(const void* from, size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto* begin = static_cast<const std::byte*>(from);
    auto after = allocated_.upper_bound(const_cast<std::byte*>(begin));
    if (after != allocated_.end() && begin + bytes > after->first) return Side::neither;
    if (after == allocated_.begin()) return Side::host;
    const auto& [memory, size] = *--after;
    if (begin >= memory + size) return Side::host;
    return begin + bytes <= memory + size ? Side::device : Side::neither;
  }

 private:
  Device() { read_environment(); }

  static void release(std::byte* memory) { ::operator delete(memory, std::align_val_t{page}); }

  static uint64_t number_of(const char* name, uint64_t otherwise) {
    const char* text = std::getenv(name);
    return text && *text ? std::strtoull(text, nullptr, 10) : otherwise;
  }

  void read_environment() {
    const char* text = std::getenv("CONTINUO_EMULATED_DEVICE");
    const std::string device = text ? text : "";
    failure_ = device == "none" ? cudaErrorNoDevice : device == "driver" ? cudaErrorInsufficientDriver : cudaSuccess;
    old_ = device == "old";
    total_ = number_of("CONTINUO_EMULATED_MEMORY", uint64_t{8} << 30);
    fault_ = number_of("CONTINUO_EMULATED_FAULT", 0);
  }

  std::mutex mutex_;
  std::map<std::byte*, size_t> allocated_;
  std::map<void*, Destroy> resources_;
  size_t used_ = 0, total_ = 0;
  cudaError_t failure_ = cudaSuccess;
  bool old_ = false;
  uint64_t fault_ = 0;
  std::atomic<uint64_t> launches_ = 0;
};

Device& device() { return Device::one(); }

// Runs a call, unless the device is not there or has failed.
template <class F>
cudaError_t call(const F& f) {
  const cudaError_t standing = device().standing();
  return failed(standing != cudaSuccess ? standing : f());
}

// The same, of a call that CUDA forbids to a thread that captures a stream: it could wait for work that is only being recorded.
template <class F>
cudaError_t uncaptured(const F& f) {
  return call([&] { return captures > 0 ? cudaErrorStreamCaptureUnsupported : f(); });
}

// Does the work, or keeps it.
cudaError_t put(cudaStream_t stream, Work work) {
  if (!stream || !stream->capture) return work();
  stream->capture->work.push_back(std::move(work));
  return cudaSuccess;
}

cudaError_t copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (bytes == 0) return cudaSuccess;
  using Side = Device::Side;
  const Side source = device().side(from, bytes), target = device().side(to, bytes);
  if (source == Side::neither || target == Side::neither) return cudaErrorInvalidValue;
  const bool from_device = source == Side::device, to_device = target == Side::device;
  switch (kind) {
    case cudaMemcpyHostToHost: if (from_device || to_device) return cudaErrorInvalidValue; break;
    case cudaMemcpyHostToDevice: if (from_device || !to_device) return cudaErrorInvalidValue; break;
    case cudaMemcpyDeviceToHost: if (!from_device || to_device) return cudaErrorInvalidValue; break;
    case cudaMemcpyDeviceToDevice: if (!from_device || !to_device) return cudaErrorInvalidValue; break;
    default: break;
  }
  std::memmove(to, from, bytes);
  return cudaSuccess;
}

cudaError_t set(void* to, int value, size_t bytes) {
  if (bytes == 0) return cudaSuccess;
  if (device().side(to, bytes) != Device::Side::device) return cudaErrorInvalidValue;
  std::memset(to, value, bytes);
  return cudaSuccess;
}

struct Named {
  cudaError_t error;
  const char *name, *text;
};
constexpr Named errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver", "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorDevicesUnavailable, "cudaErrorDevicesUnavailable", "CUDA-capable device(s) is/are busy or unavailable"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice", "no kernel image is available for execution on the device"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

}  // namespace

uint64_t launches() { return device().launches(); }

void enqueue(cudaStream_t stream, dim3 grid, dim3 block, std::function<void()> thread) {
  call([&]() -> cudaError_t {
    const bool none = grid.x == 0 || grid.y == 0 || grid.z == 0 || block.x == 0 || block.y == 0 || block.z == 0;
    if (none || grid.x > 0x7FFFFFFF || grid.y > 65535 || grid.z > 65535) return cudaErrorInvalidConfiguration;
    return put(stream, [grid, block, thread = std::move(thread)] {
      const cudaError_t error = device().admit();
      if (error == cudaSuccess) run_grid(grid, block, thread);
      return error;
    });
  });
}

}  // namespace continuo::emulate

using namespace continuo::emulate;

const char* cudaGetErrorName(cudaError_t error) {
  for (const auto& known : errors) {
    if (known.error == error) return known.name;
  }
  return "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
  for (const auto& known : errors) {
    if (known.error == error) return known.text;
  }
  return "unrecognized error code";
}

cudaError_t cudaPeekAtLastError() {
  const cudaError_t standing = device().standing();
  return standing != cudaSuccess ? standing : last_error;
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = cudaPeekAtLastError();
  last_error = cudaSuccess;
  return error;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  return call([&] { return *count = 1, cudaSuccess; });
}

cudaError_t cudaGetDevice(int* number) {
  return call([&] { return *number = 0, cudaSuccess; });
}

cudaError_t cudaSetDevice(int number) {
  return call([&] { return number == 0 ? cudaSuccess : cudaErrorInvalidDevice; });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int number) {
  return call([&] {
    if (number != 0) return cudaErrorInvalidDevice;
    size_t free = 0;
    *properties = {};
    std::strcpy(properties->name, "emulated");
    device().room(&free, &properties->totalGlobalMem);
    properties->major = device().old() ? 7 : 9;
    properties->minor = device().old() ? 5 : 0;
    properties->multiProcessorCount = 2;
    return cudaSuccess;
  });
}

cudaError_t cudaDriverGetVersion(int* version) {
  const cudaError_t standing = device().standing();
  *version = standing == cudaErrorInsufficientDriver ? 11000 : 13000;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  return uncaptured([] { return cudaSuccess; });
}

cudaError_t cudaDeviceReset() {
  device().reset();
  last_error = cudaSuccess;
  return failed(device().standing());
}

cudaError_t cudaMalloc(void** to, size_t bytes) {
  return uncaptured([&] { return device().allocate(to, bytes); });
}

cudaError_t cudaFree(void* memory) {
  return uncaptured([&] { return device().free(memory); });
}

cudaError_t cudaMallocHost(void** to, size_t bytes) {
  return uncaptured([&] {
    *to = bytes == 0 ? nullptr : ::operator new(bytes, std::align_val_t{page}, std::nothrow);
    if (*to) device().keep(*to, [](void* held) { ::operator delete(held, std::align_val_t{page}); });
    return *to || bytes == 0 ? cudaSuccess : cudaErrorMemoryAllocation;
  });
}

cudaError_t cudaFreeHost(void* memory) {
  if (memory && !device().destroy(memory)) return failed(cudaErrorInvalidValue);
  return call([] { return cudaSuccess; });
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return call([&] { return device().room(free, total), cudaSuccess; });
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return uncaptured([&] { return copy(to, from, bytes, kind); });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return call([&] { return put(stream, [=] { return copy(to, from, bytes, kind); }); });
}

cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  return uncaptured([&] { return set(to, value, bytes); });
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return call([&] { return put(stream, [=] { return set(to, value, bytes); }); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  return call([&] {
    if (flags > cudaStreamNonBlocking) return cudaErrorInvalidValue;
    *stream = device().keep(new CUstream_st);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (!stream) return failed(cudaErrorInvalidResourceHandle);
  if (stream->capture) --captures;
  delete stream->capture;
  device().destroy(stream);
  return call([] { return cudaSuccess; });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return call([&] { return stream && stream->capture ? cudaErrorStreamCaptureUnsupported : cudaSuccess; });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) { return cudaStreamSynchronize(stream); }

// A captured stream that forks or waits for others is more than a list of work: this runtime does not have it.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
  return call([&] {
    if (!event) return cudaErrorInvalidResourceHandle;
    return stream && stream->capture ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  return call([&] {
    *event = device().keep(new CUevent_st{(flags & cudaEventDisableTiming) == 0});
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return call([&] {
    if (!event) return cudaErrorInvalidResourceHandle;
    if (stream && stream->capture) return cudaErrorStreamCaptureUnsupported;
    event->recorded = true;
    if (event->timed) event->at = std::chrono::steady_clock::now();
    return cudaSuccess;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return call([&] { return event ? cudaSuccess : cudaErrorInvalidResourceHandle; });
}

cudaError_t cudaEventQuery(cudaEvent_t event) { return cudaEventSynchronize(event); }

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  return call([&] {
    if (!begin || !end || !begin->timed || !end->timed || !begin->recorded || !end->recorded) return cudaErrorInvalidResourceHandle;
    *milliseconds = std::chrono::duration<float, std::milli>(end->at - begin->at).count();
    return cudaSuccess;
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  if (!event) return failed(cudaErrorInvalidResourceHandle);
  device().destroy(event);
  return call([] { return cudaSuccess; });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  return call([&] {
    if (!stream || stream->capture) return cudaErrorStreamCaptureUnsupported;
    stream->capture = new CUgraph_st;
    ++captures;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  if (!stream || !stream->capture) return failed(cudaErrorInvalidValue);
  // The capture ends even where the device has failed meanwhile.
  *graph = stream->capture;
  stream->capture = nullptr;
  --captures;
  const cudaError_t error = call([] { return cudaSuccess; });
  if (error != cudaSuccess) delete *graph, *graph = nullptr;
  else device().keep(*graph);
  return error;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  return call([&] {
    if (!graph) return cudaErrorInvalidValue;
    *exec = device().keep(new CUgraphExec_st{graph->work});
    return cudaSuccess;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  return call([&] {
    if (!exec) return cudaErrorInvalidValue;
    for (const auto& work : exec->work) {
      const cudaError_t error = put(stream, work);
      if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  if (!exec) return failed(cudaErrorInvalidValue);
  device().destroy(exec);
  return call([] { return cudaSuccess; });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  if (!graph) return failed(cudaErrorInvalidValue);
  device().destroy(graph);
  return call([] { return cudaSuccess; });
}
