// CudaDevice: a Device on CUDA. It uses these streams:
//
//   one per executor  its steps: upload of arguments and inputs, a captured graph or single launches, download of
//                     results
//   copies            of experts of a store, one for each store (expert_buffers.h)
//   transfers         all other copies: snapshots, restores, paging, first states, lists. They go through page-locked
//                     memory, and but for lists are complete when the call returns
//
// so that a snapshot of one session can be copied while other sessions are stepped. No context is in both streams at
// the same time: a call claims the context, and waits for its own work before it releases the claim. Lists that are
// laid are not waited for by the host (transfer_later): an executor's stream waits for them before its next step.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>

#include "backends/cuda/check.h"
#include "backends/cuda/kernels/cuda.h"
#include "backends/cuda/list_staging.h"
#include "backends/cuda/residency.h"
#include "experts/cache.h"
#include "runtime/model/device.h"

namespace continuo::cuda {

class CudaDevice;
class ExpertBuffers;

// Keeps the device from being reset during its own lifetime. A thread may have several.
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
  // `host`: the host as a device, and the functions that the runtime computes there.
  explicit CudaDevice(std::shared_ptr<Device> host);
  ~CudaDevice() override;

  std::string_view name() const override { return "cuda"; }
  const HostKernels& host_kernels() const override { return host_; }
  std::shared_ptr<Device> host_device() const override { return host_device_; }
  bool runs(Op op) const override;
  bool lost() const noexcept override;
  std::byte* allocate(size_t bytes) override;
  std::byte* allocate_unwritten(size_t bytes) override;
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
  void lay(const ListRows& rows, ThreadPool& pool) override;
  void adopt(Constant& constant) override;
  std::unique_ptr<Executor> executor(std::shared_ptr<const Model> model, ThreadPool& pool,
                                     const ExecutorOptions& options) override;
  void enter() noexcept override;
  void leave() noexcept override;
  void enlist(Pageable& pageable) override { residency_.enlist(pageable); }
  void dismiss(Pageable& pageable) override { residency_.dismiss(pageable); }
  // The use comes before the lock of the residency, in the order of every other call: the other order could deadlock.
  bool pin(Pageable& pageable) override {
    const Use in_use;
    return residency_.pin(pageable);
  }
  void unpin(Pageable& pageable) override { residency_.unpin(pageable); }

  // Memory that is free now, for what may be given up again (enlist): no context is paged out for it. Null where there
  // is none.
  std::byte* allocate_spare(size_t bytes);
  // The buffers for the experts of a store, which all executors share.
  std::shared_ptr<ExpertBuffers> expert_buffers(const std::shared_ptr<experts::ExpertCache>& store);

  // Throws DeviceError once the device was lost: the memory that this object gave out does not exist any more.
  [[nodiscard]] Use use() const { return Use(*this); }
  const Residency& residency() const { return residency_; }

  // Has `work` put something into the stream of transfers, and does not wait for it. Whatever is put there afterwards
  // comes behind it; and so does, after follow_transfers(), what is put into another stream.
  template <class Work> void transfer_later(const Work& work) {
    const auto in_use = use();
    const std::lock_guard lock(transfers_mutex_);
    pending_ = true;
    work(transfers_);
    check(cudaEventRecord(behind_, transfers_), "record an event");
  }
  void follow_transfers(cudaStream_t stream) const {
    if (pending_) check(cudaStreamWaitEvent(stream, behind_, 0), "wait for an event");
  }

 private:
  // Page-locked memory for transfers, which are cut into parts of this size.
  static constexpr size_t staging_bytes = size_t{4} << 20;
  static constexpr size_t most_reserve = size_t{512} << 20;

  // Waits for the stream of transfers, which the caller has locked.
  void finish_transfers(const char* what);
  // Bytes that stay free as long as a context can be paged out: CUDA takes memory for graphs, and fails without it.
  size_t reserve() const;
  // The value that kernels of the transfer stream wrote into the flag; `what` as in check().
  uint32_t flag(const char* what);
  void transfer(std::byte* to, const std::byte* from, size_t bytes, cudaMemcpyKind kind, const char* what);
  // Memory of the device, where `reserve` bytes stay free after taking it. Null where that is impossible. A block that
  // CUDA cuts from memory it has taken before does not reduce what is free.
  static std::byte* take(size_t bytes, size_t reserve);

  const std::shared_ptr<Device> host_device_;
  const HostKernels& host_;
  const uint64_t life_;  // number of this device object: a reset begins the next life
  size_t total_ = 0;     // bytes of the device's memory
  Residency residency_;
  std::mutex transfers_mutex_;
  cudaStream_t transfers_ = nullptr;
  cudaEvent_t behind_ = nullptr;      // recorded behind the work of the last transfer_later()
  std::atomic<bool> pending_{false};  // that work may not be done yet
  std::byte* staging_ = nullptr;      // [staging_bytes], page-locked memory of the host
  uint32_t* flag_ = nullptr;          // [1], on the device
  ListStaging lists_{*this};
  std::mutex buffers_mutex_;
  std::map<const experts::ExpertCache*, std::weak_ptr<ExpertBuffers>> buffers_;
};

}  // namespace continuo::cuda
