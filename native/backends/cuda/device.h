// A CUDA device as a Device. Streams:
//
//   of an executor  its steps: arguments and inputs in, a captured graph or single launches, results out
//   transfers       everything else: snapshots, restores, paging, first states. Through pinned memory, and done
//                   when the call returns
//
// so that a snapshot of one session leaves while others are stepped. A context is never in both at once: a call claims
// it, and waits for its own work before it gives the context back.
#pragma once

#include <cstdint>
#include <mutex>

#include "backends/cuda/kernels/cuda.h"
#include "backends/cuda/residency.h"
#include "runtime/device.h"

namespace continuo::cuda {

class CudaDevice;

// Somebody uses the device: it is not reset meanwhile. One thread may hold several.
class Use {
 public:
  Use();
  // Throws DeviceError once the device was lost.
  explicit Use(const CudaDevice& device);
  ~Use();
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
};

class CudaDevice final : public Device, public std::enable_shared_from_this<CudaDevice> {
 public:
  // `host`: the kernels for what is computed on the host.
  explicit CudaDevice(const HostKernels& host);
  ~CudaDevice() override;

  std::string_view name() const override { return "cuda"; }
  const HostKernels& host_kernels() const override { return host_; }
  bool runs(Op op) const override;
  bool lost() const noexcept override;
  std::byte* allocate(size_t bytes) override;
  void release(std::byte* data, size_t bytes) noexcept override;
  std::byte* allocate_host(size_t bytes) override;
  void release_host(std::byte* data) noexcept override;
  void page_out(std::byte* host, const std::byte* from, size_t bytes) override;
  void page_in(std::byte* to, const std::byte* host, size_t bytes) override;
  void upload(std::byte* to, const std::byte* from, size_t bytes) override;
  void download(std::byte* to, std::span<const Piece> pieces) override;
  void copy(std::byte* to, const std::byte* from, size_t bytes) override;
  void fill(std::byte* to, Type type, size_t n, double value) override;
  bool finite(std::span<const Piece> pieces) override;
  void adopt(Constant& constant) override;
  std::unique_ptr<Executor> executor(std::shared_ptr<const Model> model, ThreadPool& pool,
                                     const ExecutorOptions& options) override;
  void enter() noexcept override;
  void leave() noexcept override;
  void enlist(Pageable& pageable) override { residency_.enlist(pageable); }
  void dismiss(Pageable& pageable) override { residency_.dismiss(pageable); }
  // The use comes first, as in every other call: residency's lock lies within it.
  bool pin(Pageable& pageable) override {
    const Use held;
    return residency_.pin(pageable);
  }
  void unpin(Pageable& pageable) override { residency_.unpin(pageable); }

  // For as long as the device is used. Throws DeviceError once it was lost: what this object gave out lies nowhere now.
  [[nodiscard]] Use use() const { return Use(*this); }
  const Residency& residency() const { return residency_; }

 private:
  // Transfers go through this much pinned memory, a part after the other.
  static constexpr size_t staging_bytes = size_t{4} << 20;
  static constexpr size_t most_reserve = size_t{512} << 20;

  // What the kernels of the transfer stream left in the flag; `what` as of check().
  uint32_t flag(const char* what);
  void transfer(std::byte* to, const std::byte* from, size_t bytes, cudaMemcpyKind kind, const char* what);
  // Memory that leaves so much of the device's free, or that takes none of it; null where there is none.
  static std::byte* take(size_t bytes, size_t reserve);

  const HostKernels& host_;
  const uint64_t life_;  // of the process's devices, which follow one another
  size_t total_ = 0;     // bytes of the device
  Residency residency_;
  std::mutex transfers_mutex_;
  cudaStream_t transfers_ = nullptr;
  std::byte* staging_ = nullptr;  // pinned
  uint32_t* flag_ = nullptr;      // on the device
};

}  // namespace continuo::cuda
