// Emulates the part of CUDA that this project uses on the CPU. With this header any C++20 compiler builds the .cu
// sources as they are, and a machine without a GPU runs every kernel.
//
// The threads of a block are fibers of the host thread that launches the kernel (block.cc). They run one at a time. The
// order of threads between two barriers, and the order of blocks, changes from block to block: a kernel that lacks a
// barrier gives other results under another order. Behaviour that CUDA leaves undefined ends the process with a
// sentence: a barrier that a thread of the block does not reach, a shuffle whose lanes do not meet. Static shared
// memory is thread_local; only nvcc checks that it stays below 48 KB.
//
// There are no atomics on purpose: a sum in order of arrival cannot have the CPU's bits. A kernel that uses an atomic
// does not compile.
//
// Device memory is host memory that begins filled with 0xFF, which is NaN. A stream runs its work at once or later
// (streams.cc), in the thread that adds the work or that waits for the stream. Names and meanings are CUDA's. Functions
// that the project does not use are missing.
//
// Read from the environment at first use, and again after cudaDeviceReset:
//   CONTINUO_EMULATED_DEVICE   none (cudaErrorNoDevice), driver (cudaErrorInsufficientDriver),
//                              old (compute capability 7.5)
//   CONTINUO_EMULATED_MEMORY   bytes of device memory, 8 GiB by default
//   CONTINUO_EMULATED_FAULT    n: the nth kernel of the process fails with cudaErrorIllegalAddress, and from then on
//                              every call does, until cudaDeviceReset
//   CONTINUO_EMULATED_LASTING  1: calls also fail after cudaDeviceReset, though that itself reports success
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <source_location>
#include <type_traits>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __shared__ static thread_local

struct uint3 {
  unsigned int x, y, z;
};
struct dim3 {
  unsigned int x, y, z;
  constexpr dim3(unsigned int nx = 1, unsigned int ny = 1, unsigned int nz = 1) : x(nx), y(ny), z(nz) {}
};

// Aligned like CUDA's types. So a load from an address that a GPU would refuse is undefined here too, and UBSan reports
// it.
struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned int x, y;
};
struct alignas(16) uint4 {
  unsigned int x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
constexpr int2 make_int2(int x, int y) { return {x, y}; }
constexpr int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
constexpr uint2 make_uint2(unsigned int x, unsigned int y) { return {x, y}; }
constexpr uint4 make_uint4(unsigned int x, unsigned int y, unsigned int z, unsigned int w) { return {x, y, z, w}; }
constexpr float2 make_float2(float x, float y) { return {x, y}; }
constexpr float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

// The indices of the thread that runs now.
extern constinit thread_local uint3 threadIdx, blockIdx;
extern constinit thread_local dim3 blockDim, gridDim;
constexpr int warpSize = 32;

struct CUstream_st;
using cudaStream_t = CUstream_st*;

namespace continuo::emulate {

// The order of threads between two barriers, and of blocks. In `backward` a warp whose lanes have met runs ahead of the
// other warps. `varied` takes each of the other orders in turn.
enum class Order : uint8_t { varied, forward, backward, shuffled };
// Sets the order for the next launches of the calling thread.
void use_order(Order order);

// When a stream runs its work. `late`: when a thread waits for the stream. `varied`: one of the others or anything in
// between, chosen again after every wait.
enum class Pace : uint8_t { varied, at_once, late };
// Sets the pace of every stream, from its next wait on.
void use_pace(Pace pace);

// The number of kernels that have begun in this process.
uint64_t launches();
// Calls of this process so far: those that took memory, of the device or pinned; and those that waited for a stream or
// for the device. Waits for an event are not counted.
struct Calls {
  uint64_t allocations, waits;
};
Calls calls();

enum class Meeting : uint8_t { sync, shuffle, ballot };

void barrier(const std::source_location& where);
// Waits until every lane of `mask` has called, and returns the value of lane `from`; with a ballot, a bit for each lane
// whose value is 1.
uint64_t meet(Meeting meeting, unsigned int mask, uint64_t value, unsigned int from, const std::source_location& where);
unsigned int lane();

// Runs a grid of threads to its end. Each thread calls `thread`.
void run_grid(dim3 grid, dim3 block, const std::function<void()>& thread);
void enqueue(cudaStream_t stream, dim3 grid, dim3 block, std::function<void()> thread);

template <class T> T shuffle(unsigned int mask, T value, unsigned int from, const std::source_location& where) {
  static_assert(std::is_arithmetic_v<T> && sizeof(T) <= 8);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = meet(Meeting::shuffle, mask, bits, from, where);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace continuo::emulate

inline void __syncthreads(const std::source_location& where = std::source_location::current()) {
  continuo::emulate::barrier(where);
}
inline void __syncwarp(unsigned int mask = 0xFFFFFFFFu,
                       const std::source_location& where = std::source_location::current()) {
  continuo::emulate::meet(continuo::emulate::Meeting::sync, mask, 0, continuo::emulate::lane(), where);
}

// Shuffles among groups of `width` lanes, a power of two.
template <class T> T __shfl_sync(unsigned int mask, T value, int from, int width = 32,
                                 const std::source_location& where = std::source_location::current()) {
  const unsigned int own = continuo::emulate::lane(), w = static_cast<unsigned int>(width);
  return continuo::emulate::shuffle(mask, value, (own & ~(w - 1)) + (static_cast<unsigned int>(from) & (w - 1)), where);
}
template <class T> T __shfl_down_sync(unsigned int mask, T value, unsigned int by, int width = 32,
                                      const std::source_location& where = std::source_location::current()) {
  const unsigned int own = continuo::emulate::lane(), w = static_cast<unsigned int>(width);
  return continuo::emulate::shuffle(mask, value, (own & (w - 1)) + by < w ? own + by : own, where);
}
template <class T> T __shfl_xor_sync(unsigned int mask, T value, int by, int width = 32,
                                     const std::source_location& where = std::source_location::current()) {
  const unsigned int own = continuo::emulate::lane(), w = static_cast<unsigned int>(width),
                     from = own ^ static_cast<unsigned int>(by);
  return continuo::emulate::shuffle(mask, value, from <= (own | (w - 1)) ? from : own, where);
}
inline unsigned int __ballot_sync(unsigned int mask, int vote,
                                  const std::source_location& where = std::source_location::current()) {
  return static_cast<unsigned int>(
      continuo::emulate::meet(continuo::emulate::Meeting::ballot, mask, vote != 0, continuo::emulate::lane(), where));
}
inline int __any_sync(unsigned int mask, int vote,
                      const std::source_location& where = std::source_location::current()) {
  return __ballot_sync(mask, vote, where) != 0;
}
inline int __all_sync(unsigned int mask, int vote,
                      const std::source_location& where = std::source_location::current()) {
  return __ballot_sync(mask, vote == 0, where) == 0;
}

// c + Σ of four products of signed bytes.
inline int __dp4a(int a, int b, int c) {
  uint32_t sum = static_cast<uint32_t>(c);
  for (int shift = 0; shift < 32; shift += 8) {
    const int product =
        static_cast<int8_t>(static_cast<uint32_t>(a) >> shift) * static_cast<int8_t>(static_cast<uint32_t>(b) >> shift);
    sum += static_cast<uint32_t>(product);
  }
  return static_cast<int>(sum);
}

template <class T> T __ldg(const T* p) { return *p; }

// The runtime API.

enum cudaError_t : int {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorNoKernelImageForDevice = 209,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700,
  cudaErrorStreamCaptureUnsupported = 900,
};
enum cudaMemcpyKind : int {
  cudaMemcpyHostToHost = 0,
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4,
};
enum cudaStreamCaptureMode : int {
  cudaStreamCaptureModeGlobal = 0,
  cudaStreamCaptureModeThreadLocal = 1,
  cudaStreamCaptureModeRelaxed = 2
};
constexpr unsigned int cudaStreamNonBlocking = 1;
constexpr unsigned int cudaEventDisableTiming = 2;

struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem;
  int major, minor;
  int multiProcessorCount;
};

struct cudaFuncAttributes {
  int maxThreadsPerBlock;
};

struct CUevent_st;
using cudaEvent_t = CUevent_st*;
struct CUgraph_st;
struct CUgraphExec_st;
using cudaGraph_t = CUgraph_st*;
using cudaGraphExec_t = CUgraphExec_st*;

const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();

cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaDeviceReset();

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel);
template <class... Parameters>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, void (*kernel)(Parameters...)) {
  return cudaFuncGetAttributes(attributes, reinterpret_cast<const void*>(kernel));
}

cudaError_t cudaMalloc(void** to, size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaMallocHost(void** to, size_t bytes);
cudaError_t cudaFreeHost(void* memory);
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);
template <class T> cudaError_t cudaMalloc(T** to, size_t bytes) {
  return cudaMalloc(reinterpret_cast<void**>(to), bytes);
}
template <class T> cudaError_t cudaMallocHost(T** to, size_t bytes) {
  return cudaMallocHost(reinterpret_cast<void**>(to), bytes);
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream = nullptr);
cudaError_t cudaMemset(void* to, int value, size_t bytes);
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream = nullptr);

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags = 0);

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags = 0);
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
