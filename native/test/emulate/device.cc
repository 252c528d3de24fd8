// The emulated CUDA runtime over host memory: errors, the device, memory. streams.cc has the streams.
#include "test/emulate/device.h"

#include <cstdlib>
#include <new>
#include <string>

namespace continuo::emulate {

constinit thread_local int captures = 0;

namespace {

constexpr size_t page = 256;  // cudaMalloc aligns to this
constexpr size_t pages(size_t bytes) { return (bytes + page - 1) / page * page; }

thread_local cudaError_t last_error = cudaSuccess;

struct Named {
  cudaError_t error;
  const char *name, *text;
};
constexpr Named errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice",
     "no kernel image is available for execution on the device"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
};

std::byte* take(size_t bytes) {
  return static_cast<std::byte*>(::operator new(bytes, std::align_val_t{page}, std::nothrow));
}
void release(std::byte* memory) { ::operator delete(memory, std::align_val_t{page}); }

uint64_t number_of(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text && *text ? std::strtoull(text, nullptr, 10) : otherwise;
}

}  // namespace

cudaError_t failed(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

Device& Device::one() {
  static Device& device = *new Device;
  return device;
}

cudaError_t Device::standing() {
  const std::lock_guard lock(mutex_);
  return failure_;
}

cudaError_t Device::fail(cudaError_t error) {
  const std::lock_guard lock(mutex_);
  return failure_ = error;
}

bool Device::old() {
  const std::lock_guard lock(mutex_);
  return old_;
}

cudaError_t Device::admit() {
  const uint64_t number = ++launches_;
  const std::lock_guard lock(mutex_);
  if (failure_ == cudaSuccess && fault_ != 0 && number == fault_) failure_ = cudaErrorIllegalAddress;
  return failure_;
}

void Device::reset() {
  drop_all();
  const std::lock_guard lock(mutex_);
  for (auto* ranges : {&allocated_, &pinned_}) {
    for (const auto& [memory, bytes] : *ranges) release(memory);
    ranges->clear();
  }
  used_ = 0;
  for (const auto& [resource, by] : resources_) by(resource);
  resources_.clear();
  const cudaError_t failure = failure_;
  read_environment();
  if (failure == cudaErrorIllegalAddress && number_of("CONTINUO_EMULATED_LASTING", 0) != 0) failure_ = failure;
}

bool Device::destroy(void* resource) {
  const std::lock_guard lock(mutex_);
  const auto found = resources_.find(resource);
  if (found == resources_.end()) return false;
  found->second(resource);
  resources_.erase(found);
  return true;
}

cudaError_t Device::allocate(void** to, size_t bytes) {
  const std::lock_guard lock(mutex_);
  ++allocations_;
  *to = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (bytes > total_ || pages(bytes) > total_ - used_) return cudaErrorMemoryAllocation;
  std::byte* memory = take(bytes);
  if (!memory) return cudaErrorMemoryAllocation;
  std::memset(memory, 0xFF, bytes);
  allocated_[memory] = bytes;
  used_ += pages(bytes);
  *to = memory;
  return cudaSuccess;
}

cudaError_t Device::free(void* memory) {
  const std::lock_guard lock(mutex_);
  if (!memory) return cudaSuccess;
  const auto bytes = give_back(allocated_, memory);
  if (!bytes) return cudaErrorInvalidValue;
  used_ -= pages(*bytes);
  return cudaSuccess;
}

std::optional<size_t> Device::give_back(Ranges& ranges, void* memory) {
  const auto found = ranges.find(static_cast<std::byte*>(memory));
  if (found == ranges.end()) return std::nullopt;
  const size_t bytes = found->second;
  release(found->first);
  ranges.erase(found);
  return bytes;
}

void Device::room(size_t* free, size_t* total) {
  const std::lock_guard lock(mutex_);
  *free = total_ - used_;
  *total = total_;
}

cudaError_t Device::pin(void** to, size_t bytes) {
  const std::lock_guard lock(mutex_);
  ++allocations_;
  *to = nullptr;
  if (bytes == 0) return cudaSuccess;
  std::byte* memory = take(bytes);
  if (!memory) return cudaErrorMemoryAllocation;
  pinned_[memory] = bytes;
  *to = memory;
  return cudaSuccess;
}

cudaError_t Device::unpin(void* memory) {
  const std::lock_guard lock(mutex_);
  return !memory || give_back(pinned_, memory) ? cudaSuccess : cudaErrorInvalidValue;
}

Device::Side Device::side(const void* from, size_t bytes) {
  const std::lock_guard lock(mutex_);
  auto* begin = static_cast<std::byte*>(const_cast<void*>(from));
  const auto within = [&](const Ranges& ranges, Side side) {
    auto after = ranges.upper_bound(begin);
    if (after != ranges.end() && begin + bytes > after->first) return Side::astride;
    if (after == ranges.begin()) return Side::pageable;
    const auto& [memory, size] = *--after;
    if (begin >= memory + size) return Side::pageable;
    return begin + bytes <= memory + size ? side : Side::astride;
  };
  const Side found = within(allocated_, Side::device);
  return found == Side::pageable ? within(pinned_, Side::pinned) : found;
}

void Device::read_environment() {
  const char* text = std::getenv("CONTINUO_EMULATED_DEVICE");
  const std::string device = text ? text : "";
  failure_ = device == "none" ? cudaErrorNoDevice : device == "driver" ? cudaErrorInsufficientDriver : cudaSuccess;
  old_ = device == "old";
  total_ = number_of("CONTINUO_EMULATED_MEMORY", uint64_t{8} << 30);
  fault_ = number_of("CONTINUO_EMULATED_FAULT", 0);
}

uint64_t launches() { return Device::one().launches(); }
Calls calls() { return Device::one().calls(); }

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

cudaError_t cudaGetLastError() {
  const cudaError_t standing = Device::one().standing(), last = last_error;
  last_error = cudaSuccess;
  return standing != cudaSuccess ? standing : last;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  return call([&] { return *count = 1, cudaSuccess; });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int number) {
  return call([&] {
    if (number != 0) return cudaErrorInvalidDevice;
    size_t free = 0;
    *properties = {};
    std::strcpy(properties->name, "emulated");
    Device::one().room(&free, &properties->totalGlobalMem);
    properties->major = Device::one().old() ? 7 : 9;
    properties->minor = Device::one().old() ? 5 : 0;
    properties->multiProcessorCount = 2;
    return cudaSuccess;
  });
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = Device::one().standing() == cudaErrorInsufficientDriver ? 11000 : 13000;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  *attributes = {1024};
  return call([] { return Device::one().old() ? cudaErrorNoKernelImageForDevice : cudaSuccess; });
}

cudaError_t cudaDeviceReset() {
  Device::one().reset();
  last_error = cudaSuccess;
  const cudaError_t standing = Device::one().standing();
  return standing == cudaErrorIllegalAddress ? cudaSuccess : failed(standing);
}

cudaError_t cudaMalloc(void** to, size_t bytes) {
  return uncaptured([&] { return Device::one().allocate(to, bytes); });
}

// Unlike CUDA's, does not wait for streams: work on this memory must be done before.
cudaError_t cudaFree(void* memory) {
  return uncaptured([&] { return Device::one().free(memory); });
}

cudaError_t cudaMallocHost(void** to, size_t bytes) {
  return uncaptured([&] { return Device::one().pin(to, bytes); });
}

cudaError_t cudaFreeHost(void* memory) {
  return uncaptured([&] { return Device::one().unpin(memory); });
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return call([&] { return Device::one().room(free, total), cudaSuccess; });
}
