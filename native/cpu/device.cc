#include "device.h"

#include <cstring>

#include "../cast.h"
#include "../kernels/cpu/kernels.h"
#include "../memory.h"
#include "executor.h"

namespace continuo {

namespace {

constexpr size_t line = 64;

}  // namespace

CpuDevice::CpuDevice() : kernels_(runnable_kernels().front()) {}

std::byte* CpuDevice::allocate(size_t bytes) {
  const size_t rounded = (bytes + line - 1) / line * line;
  auto* data = allocate_aligned(rounded, line);
  std::memset(data, 0, rounded);
  return data;
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
    if (!kernels_->finite(reinterpret_cast<const float*>(data), bytes / sizeof(float))) return false;
  }
  return true;
}

std::unique_ptr<Executor> CpuDevice::executor(std::shared_ptr<const Model> model, ThreadPool& pool, const ExecutorOptions& options) {
  return std::make_unique<CpuExecutor>(std::move(model), pool, options);
}

std::shared_ptr<Device> cpu_device() {
  static const auto device = std::make_shared<CpuDevice>();
  return device;
}

}  // namespace continuo
