#include "backends/cuda/device.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <shared_mutex>

#include "backends/cpu/device.h"
#include "backends/cuda/check.h"
#include "backends/cuda/cuda.h"
#include "backends/cuda/executor.h"
#include "backends/cuda/expert_buffers.h"
#include "backends/cuda/kernels/kernels.h"
#include "base/cast.h"
#include "weights/weights.h"

namespace continuo {

namespace cuda {

namespace {

std::mutex current_mutex;
std::weak_ptr<CudaDevice> current;
// A sticky error ends the life of a device; open_cuda() begins the next one.
std::atomic<bool> is_lost{false};
std::atomic<uint64_t> life{0};

// Shared by all threads that use the device; exclusive for the thread that resets it.
std::shared_mutex use_mutex;
thread_local size_t uses = 0;

void enter_any() {
  if (uses++ == 0) use_mutex.lock_shared();
}

void leave_any() {
  if (--uses == 0) use_mutex.unlock_shared();
}

std::string megabytes(size_t bytes) { return text((bytes + (size_t{1} << 20) - 1) >> 20, " MiB"); }

// Errors that leave the device as it was: the ones named here, and all errors of stream capture (900 to 908 in CUDA).
bool passing(cudaError_t error) {
  constexpr int first_of_capture = 900, last_of_capture = 908;
  return error == cudaErrorMemoryAllocation || error == cudaErrorInvalidValue ||
         (error >= first_of_capture && error <= last_of_capture);
}

// The sticky error of the device, or success. Asks with a call that does not synchronise: a synchronising call would
// invalidate the captures of other threads.
cudaError_t standing() {
  size_t free = 0, total = 0;
  const cudaError_t error = cudaMemGetInfo(&free, &total);
  (void)cudaGetLastError();
  return error;
}

}  // namespace

Use::Use() { enter_any(); }

Use::Use(const CudaDevice& device) : Use() {
  // The delegated constructor has completed, so the destructor runs after this throw.
  if (device.lost())
    throw DeviceError(
        "The CUDA device was lost by an earlier error, and every context on it: open the model again and rebuild them "
        "from their snapshots.");
}

Use::~Use() { leave_any(); }

void CudaDevice::enter() noexcept { enter_any(); }
void CudaDevice::leave() noexcept { leave_any(); }

// An error is sticky if a call that should always succeed fails after it.
void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  (void)cudaGetLastError();
  if (passing(error) || standing() == cudaSuccess) {
    throw DeviceError(
        text("CUDA failed to ", what, ": ", cudaGetErrorString(error), " (", cudaGetErrorName(error), ")."));
  }
  is_lost = true;
  throw DeviceError(
      text("The CUDA device was lost when it tried to ", what, ": ", cudaGetErrorString(error), " (",
           cudaGetErrorName(error),
           "). Every context on it is gone: open the model again and rebuild them from their snapshots."));
}

bool CudaDevice::lost() const noexcept { return is_lost || life_ != life; }

CudaDevice::CudaDevice(std::shared_ptr<Device> host)
    : host_device_(std::move(host)), host_(host_device_->host_kernels()), life_(life) {
  size_t free = 0;
  check(cudaMemGetInfo(&free, &total_), "say what memory is free");
  check(cudaStreamCreateWithFlags(&transfers_, cudaStreamNonBlocking), "make a stream");
  check(cudaEventCreateWithFlags(&behind_, cudaEventDisableTiming), "make an event");
  check(cudaMallocHost(reinterpret_cast<void**>(&staging_), staging_bytes), "take pinned memory");
  check(cudaMalloc(reinterpret_cast<void**>(&flag_), sizeof *flag_), "take memory");
  // Load and run a kernel now, so that a driver or a device that cannot do so fails here and not in the middle of a
  // step.
  check(cuda::load(), "load the kernels (this driver may be too old for what they were built with)");
  constexpr uint32_t sample = 0x0C0FFEE0;
  cuda::fill(flag_, 1, sample, sizeof sample, transfers_);
  if (flag("run a first kernel") != sample)
    throw DeviceError(
        "CUDA failed to run a first kernel: it left another number than it was told to. Do not trust this device.");
  residency_.enlist(lists_);
}

// The reset after a loss has freed everything that a lost device had.
CudaDevice::~CudaDevice() {
  const Use in_use;
  if (lost()) return;
  lists_.free();
  (void)cudaFree(flag_);
  (void)cudaFreeHost(staging_);
  (void)cudaEventDestroy(behind_);
  (void)cudaStreamDestroy(transfers_);
}

// CUDA cuts small blocks from larger ones that it has taken from the device before. So the free memory of the device
// does not tell whether a block can be had: only an allocation tells.
std::byte* CudaDevice::take(size_t bytes, size_t reserve) {
  const auto free_now = [] {
    size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "say what memory is free");
    return free;
  };
  const auto try_take = [&]() -> std::byte* {
    void* data = nullptr;
    const cudaError_t error = cudaMalloc(&data, bytes);
    if (error == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();
      return nullptr;
    }
    check(error, "take memory");
    return static_cast<std::byte*>(data);
  };
  std::byte* data = try_take();
  if (!data || reserve == 0) return data;
  const size_t left = free_now();
  if (left >= reserve) return data;
  check(cudaFree(data), "give memory back");
  return free_now() == left ? try_take() : nullptr;
}

size_t CudaDevice::reserve() const { return std::min(most_reserve, total_ / 32); }

std::byte* CudaDevice::allocate_spare(size_t bytes) {
  const auto in_use = use();
  return take(bytes, reserve());
}

std::shared_ptr<ExpertBuffers> CudaDevice::expert_buffers(const std::shared_ptr<experts::ExpertCache>& store) {
  const std::lock_guard lock(buffers_mutex_);
  auto& known = buffers_[store.get()];
  auto buffers = known.lock();
  if (!buffers) {
    buffers = std::make_shared<ExpertBuffers>(shared_from_this(), store);
    known = buffers;
    std::erase_if(buffers_, [](const auto& entry) { return entry.second.expired(); });
  }
  return buffers;
}

std::byte* CudaDevice::allocate_unwritten(size_t bytes) {
  const auto in_use = use();
  std::byte* data = nullptr;
  if (!residency_.make_room([&] { return (data = take(bytes, reserve())) != nullptr; })) data = take(bytes, 0);
  if (!data) {
    size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "say what memory is free");
    throw DeviceError(text("The CUDA device has no memory left: ", megabytes(bytes), " were asked for, ",
                           megabytes(free), " of ", megabytes(total),
                           " are free, and no session at rest could be paged out. Give it fewer sessions at once or a "
                           "smaller model, stop what else uses the "
                           "device (nvidia-smi shows it), or choose another with CUDA_VISIBLE_DEVICES."));
  }
  return data;
}

std::byte* CudaDevice::allocate(size_t bytes) {
  const auto in_use = use();
  std::byte* data = allocate_unwritten(bytes);
  const std::lock_guard lock(transfers_mutex_);
  check(cudaMemsetAsync(data, 0, bytes, transfers_), "clear memory");
  finish_transfers("clear memory");
  return data;
}

void CudaDevice::release(std::byte* data, size_t) noexcept {
  const Use in_use;
  if (lost()) return;
  // A list that is still being laid may read or write the memory.
  if (pending_) {
    const std::lock_guard lock(transfers_mutex_);
    if (cudaStreamSynchronize(transfers_) == cudaSuccess) pending_ = false;
  }
  (void)cudaFree(data);
}

std::byte* CudaDevice::allocate_host(size_t bytes) {
  const auto in_use = use();
  void* data = nullptr;
  check(cudaMallocHost(&data, bytes), "take pinned memory");
  return static_cast<std::byte*>(data);
}

void CudaDevice::release_host(std::byte* data) noexcept {
  const Use in_use;
  if (!lost()) (void)cudaFreeHost(data);
}

void CudaDevice::finish_transfers(const char* what) {
  check(cudaStreamSynchronize(transfers_), what);
  pending_ = false;
}

void CudaDevice::transfer(std::byte* to, const std::byte* from, size_t bytes, cudaMemcpyKind kind, const char* what) {
  const auto in_use = use();
  const std::lock_guard lock(transfers_mutex_);
  check(cudaMemcpyAsync(to, from, bytes, kind, transfers_), what);
  finish_transfers(what);
}

void CudaDevice::page_out(std::byte* host, const std::byte* from, size_t bytes) {
  transfer(host, from, bytes, cudaMemcpyDeviceToHost, "copy from the device");
}
void CudaDevice::page_in(std::byte* to, const std::byte* host, size_t bytes) {
  transfer(to, host, bytes, cudaMemcpyHostToDevice, "copy to the device");
}

void CudaDevice::upload(std::byte* to, const std::byte* from, size_t bytes) {
  const auto in_use = use();
  const std::lock_guard lock(transfers_mutex_);
  for (size_t at = 0; at < bytes; at += staging_bytes) {
    const size_t part = std::min(staging_bytes, bytes - at);
    std::memcpy(staging_, from + at, part);
    check(cudaMemcpyAsync(to + at, staging_, part, cudaMemcpyHostToDevice, transfers_), "copy to the device");
    finish_transfers("copy to the device");
  }
}

// Small pieces share one part of the staging memory, and so one wait for the stream.
void CudaDevice::download(std::byte* to, std::span<const Piece> pieces) {
  const auto in_use = use();
  const std::lock_guard lock(transfers_mutex_);
  size_t waiting = 0;
  const auto flush = [&] {
    if (waiting == 0) return;
    finish_transfers("copy from the device");
    std::memcpy(to, staging_, waiting);
    to += waiting;
    waiting = 0;
  };
  for (const auto& [data, bytes] : pieces) {
    for (size_t at = 0; at < bytes;) {
      if (waiting == staging_bytes) flush();
      const size_t part = std::min(staging_bytes - waiting, bytes - at);
      check(cudaMemcpyAsync(staging_ + waiting, data + at, part, cudaMemcpyDeviceToHost, transfers_),
            "copy from the device");
      waiting += part;
      at += part;
    }
  }
  flush();
}

void CudaDevice::copy(std::byte* to, const std::byte* from, size_t bytes) {
  transfer(to, from, bytes, cudaMemcpyDeviceToDevice, "copy within the device");
}

void CudaDevice::fill(std::byte* to, Type type, size_t n, double value) {
  const auto in_use = use();
  uint64_t pattern = 0;
  write_number(reinterpret_cast<std::byte*>(&pattern), type, 0, value);
  const std::lock_guard lock(transfers_mutex_);
  if (pattern == 0)
    check(cudaMemsetAsync(to, 0, n * size_of(type), transfers_), "clear memory");
  else
    cuda::fill(to, n, pattern, static_cast<uint32_t>(size_of(type)), transfers_);
  check(cudaGetLastError(), "fill memory");
  finish_transfers("fill memory");
}

bool CudaDevice::finite(std::span<const Piece> pieces) {
  const auto in_use = use();
  const std::lock_guard lock(transfers_mutex_);
  check(cudaMemsetAsync(flag_, 0, sizeof *flag_, transfers_), "clear memory");
  for (const auto& [data, bytes] : pieces)
    cuda::finite(reinterpret_cast<const float*>(data), bytes / sizeof(float), flag_, transfers_);
  return flag("look for numbers that are not finite") == 0;
}

uint32_t CudaDevice::flag(const char* what) {
  check(cudaGetLastError(), what);
  check(cudaMemcpyAsync(staging_, flag_, sizeof *flag_, cudaMemcpyDeviceToHost, transfers_), "copy from the device");
  finish_transfers(what);
  uint32_t found = 0;
  std::memcpy(&found, staging_, sizeof found);
  return found;
}

void CudaDevice::lay(const ListRows& rows, ThreadPool& pool) {
  const auto in_use = use();
  lists_.lay(rows, pool);
}

void CudaDevice::adopt(Constant& constant) {
  if (constant.bytes.empty()) return;
  auto memory = std::make_shared<DeviceMemory>(shared_from_this(), constant.bytes.size());
  upload(memory->data(), constant.bytes.data(), constant.bytes.size());
  constant.bytes = {memory->data(), memory->size()};
  constant.owner = std::move(memory);
}

std::unique_ptr<Executor> CudaDevice::executor(std::shared_ptr<const Model> model, ThreadPool& pool,
                                               const ExecutorOptions& options) {
  return std::make_unique<CudaExecutor>(std::static_pointer_cast<CudaDevice>(model->device), std::move(model), pool,
                                        options);
}

}  // namespace cuda

// The kernels are built for sm_80 and sm_90, with PTX of sm_90 for later devices.
constexpr int least_major = 8;

CudaStatus cuda_status() {
  CudaStatus status;
  status.built = true;
#if defined(CONTINUO_EMULATE)
  status.emulated = true;
#endif
  (void)cudaDriverGetVersion(&status.driver);
  (void)cudaRuntimeGetVersion(&status.runtime);
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver || (error != cudaSuccess && status.driver == 0)) {
    status.reason = status.driver == 0
                        ? "there is no NVIDIA driver on this machine: install one (nvidia-smi must answer), or take "
                          "the CPU, which gives the same bits."
                        : text("the NVIDIA driver speaks CUDA ", status.driver / 1000, ".", status.driver % 1000 / 10,
                               ", the engine was built with ", status.runtime / 1000, ".", status.runtime % 1000 / 10,
                               ": update the driver, or build the engine with an older CUDA.");
    return status;
  }
  if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0)) {
    status.reason = "the NVIDIA driver shows no device: look at nvidia-smi, and at CUDA_VISIBLE_DEVICES if it is set.";
    return status;
  }
  cudaDeviceProp properties{};
  const cudaError_t asked = error != cudaSuccess ? error : cudaGetDeviceProperties(&properties, 0);
  if (asked != cudaSuccess) {
    status.reason =
        text("the NVIDIA driver answers with an error: ", cudaGetErrorString(asked), " (", cudaGetErrorName(asked),
             "). Look at nvidia-smi; a device that fell off the bus needs a restart.");
    return status;
  }
  status.name = properties.name;
  status.major = properties.major;
  status.minor = properties.minor;
  status.total = properties.totalGlobalMem;
  if (properties.major < least_major) {
    status.reason = text("the device ", properties.name, " has compute capability ", properties.major, ".",
                         properties.minor, ", the kernels need ", least_major,
                         ".0 or later (Ampere, 2020): choose another with CUDA_VISIBLE_DEVICES, or take the CPU, which "
                         "gives the same bits.");
    return status;
  }
  if (const cudaError_t free = cudaMemGetInfo(&status.free, &status.total); free != cudaSuccess) {
    (void)cudaGetLastError();
    // After a loss in this process the call fails until open_cuda() resets the device; that is no reason against it.
    if (!cuda::is_lost) {
      status.reason = text("the device ", properties.name, " cannot be used: ", cudaGetErrorString(free), " (",
                           cudaGetErrorName(free),
                           "). Another process may hold it alone, or all of its memory: look at nvidia-smi.");
    }
  }
  return status;
}

Result<std::shared_ptr<Device>> open_cuda() {
  const std::lock_guard lock(cuda::current_mutex);
  if (cuda::is_lost) {
    // The reset frees everything that the process had on the device. After some errors CUDA does not promise that a
    // reset helps, so the result is checked.
    const std::lock_guard alone(cuda::use_mutex);
    cudaError_t error = cudaDeviceReset();
    // The first call may return the earlier error.
    if (error != cudaSuccess) error = cudaDeviceReset();
    (void)cudaGetLastError();
    if (error == cudaSuccess) error = cuda::standing();
    if (error != cudaSuccess) {
      return Error{Code::unavailable,
                   text("The CUDA device was lost and could not be reset in this process: ", cudaGetErrorString(error),
                        " (", cudaGetErrorName(error), "). Start the process again.")};
    }
    cuda::current.reset();
    ++cuda::life;
    cuda::is_lost = false;
  } else if (auto device = cuda::current.lock()) {
    return std::shared_ptr<Device>(device);
  }
  const CudaStatus status = cuda_status();
  if (!status.reason.empty()) return Error{Code::unavailable, "CUDA cannot be used: " + status.reason};
  auto host = open_cpu();
  if (!host) return host.error();
  try {
    auto device = std::make_shared<cuda::CudaDevice>(std::move(*host));
    cuda::current = device;
    return std::shared_ptr<Device>(device);
  } catch (const DeviceError& error) {
    return Error{Code::unavailable, error.what()};
  }
}

}  // namespace continuo
