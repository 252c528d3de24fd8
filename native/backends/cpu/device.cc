#include "backends/cpu/device.h"

#include <cstring>

#include "backends/cpu/executor.h"
#include "backends/cpu/kernels/kernels.h"
#include "base/cast.h"
#include "base/memory.h"
#include "base/threads.h"
#include "runtime/model/list_rows.h"

namespace continuo {

namespace {

constexpr size_t cache_line = 64;

// Under a sanitizer a block must end where its allocation ends, so that an access beyond its end is reported.
bool in_arena([[maybe_unused]] size_t bytes) {
#ifdef __SANITIZE_ADDRESS__
  return false;
#else
  return bytes >= Arena::least_bytes;
#endif
}

ListJob job_of(const ListRows& of, size_t slot, size_t layer, size_t which) {
  const auto& row = of.rows[slot];
  ListJob job{};
  job.from = row.from[which] + layer * row.from_layer;
  job.to = reinterpret_cast<float*>(row.to[which] + layer * row.to_layer);
  if (row.type == Type::f8)
    job.exponents = reinterpret_cast<const int8_t*>(row.exponents) + (layer * keys_and_values + which) * of.heads;
  job.from_head = row.from_head;
  job.heads = of.heads, job.channels = of.channels, job.pairs = of.increments.size();
  if (which == 0) job.increments = of.increments.data();
  job.position = static_cast<uint32_t>(slot);
  job.type = row.type;
  return job;
}

}  // namespace

const HostKernels& CpuDevice::host_kernels() const { return kernels_; }

std::byte* CpuDevice::allocate(size_t bytes) {
  if (in_arena(bytes)) return arena_.take(bytes, true);
  auto* data = allocate_unwritten(bytes);
  std::memset(data, 0, bytes);
  return data;
}

std::byte* CpuDevice::allocate_unwritten(size_t bytes) {
  return in_arena(bytes) ? arena_.take(bytes, false) : allocate_host(bytes);
}

void CpuDevice::release(std::byte* data, size_t bytes) noexcept {
  if (in_arena(bytes)) return arena_.give(data, bytes);
  release_host(data);
}

std::byte* CpuDevice::allocate_host(size_t bytes) {
  return allocate_aligned((bytes + cache_line - 1) / cache_line * cache_line, cache_line);
}

void CpuDevice::release_host(std::byte* data) noexcept { free_aligned(data); }

void CpuDevice::download(std::byte* to, std::span<const Piece> pieces) {
  for (const auto& [data, bytes] : pieces) {
    std::memcpy(to, data, bytes);
    to += bytes;
  }
}

void CpuDevice::copy(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void CpuDevice::fill(std::byte* to, Type type, size_t n, double value) { continuo::fill(to, type, n, value); }

bool CpuDevice::finite(std::span<const Piece> pieces) {
  for (const auto& [data, bytes] : pieces) {
    if (!kernels_.finite(reinterpret_cast<const float*>(data), bytes / sizeof(float))) return false;
  }
  return true;
}

void CpuDevice::lay(const ListRows& of, ThreadPool& pool) {
  pool.parallel_for(of.layers * keys_and_values, [&](size_t task) {
    for (size_t slot = 0; slot < of.rows.size(); ++slot)
      kernels_.rerotate_kv(job_of(of, slot, task / keys_and_values, task % keys_and_values));
  });
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
