#include "backends/cpu/device.h"

#include <cstring>

#include "backends/cpu/executor.h"
#include "backends/cpu/kernels/kernels.h"
#include "base/cast.h"
#include "base/memory.h"

namespace continuo {

namespace {

constexpr size_t line = 64;

}  // namespace

const HostKernels& CpuDevice::host_kernels() const { return kernels_; }

std::byte* CpuDevice::allocate(size_t bytes) {
  auto* data = allocate_unwritten(bytes);
  std::memset(data, 0, bytes);
  return data;
}

std::byte* CpuDevice::allocate_unwritten(size_t bytes) {
  return allocate_aligned((bytes + line - 1) / line * line, line);
}

void CpuDevice::release(std::byte* data, size_t) noexcept { free_aligned(data); }

void CpuDevice::download(std::byte* to, std::span<const Piece> pieces) {
  for (const auto& [data, bytes] : pieces) {
    std::memcpy(to, data, bytes);
    to += bytes;
  }
}

void CpuDevice::copy(std::byte* to, const std::byte* from, size_t bytes) { std::memcpy(to, from, bytes); }

void CpuDevice::fill(std::byte* to, Type type, size_t n, double value) { continuo::fill(to, type, n, value); }

bool CpuDevice::finite(std::span<const Piece> pieces) {
  for (const auto& [data, bytes] : pieces) {
    if (!kernels_.finite(reinterpret_cast<const float*>(data), bytes / sizeof(float))) return false;
  }
  return true;
}

std::unique_ptr<Executor> CpuDevice::executor(std::shared_ptr<const Model> model, ThreadPool& pool,
                                              const ExecutorOptions& options) {
  return std::make_unique<CpuExecutor>(std::move(model), pool, options, kernels_);
}

Result<std::shared_ptr<Device>> open_cpu() {
  auto kernels = choose_kernels();
  if (!kernels) return kernels.error();
  return cpu_device(**kernels);
}

std::shared_ptr<Device> cpu_device(const Kernels& kernels) { return std::make_shared<CpuDevice>(kernels); }

}  // namespace continuo
