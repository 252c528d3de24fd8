// ExpertBuffers: experts of a store in the device's memory, the tier above the host's (experts/cache.h).
//
//   loan ──copy──▶ staging ──copy, stream of copies──▶ buffer ──product, an executor's stream──▶ rows
//   host           pinned memory                        on the device
//
// An expert that is not there goes into the buffer that was unused for longest. Two buffers are the least: they take
// turns, so that the copy of one expert goes on while the one before is multiplied. Further ones, up to a bound in
// bytes, keep the experts that were used last, which then need neither loan nor copy. Events order copies and products:
// a buffer is written again behind the last product that reads it, and a product begins behind the copy of its expert.
// The host waits for the copy before the last one alone, whose staging memory it writes again.
//
// All executors of a device that use the same store share its buffers. Memory beyond two buffers is taken only where it
// is free, and given up where the device needs it: what lies there can be had again.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "backends/cuda/kernels/cuda.h"
#include "experts/cache.h"
#include "runtime/model/device.h"

namespace continuo::cuda {

class CudaDevice;

class ExpertBuffers final : public Pageable {
 public:
  // Throws DeviceError where the device has no memory for two buffers.
  ExpertBuffers(std::shared_ptr<CudaDevice> device, std::shared_ptr<experts::ExpertCache> store);
  ~ExpertBuffers() override;
  ExpertBuffers(const ExpertBuffers&) = delete;
  ExpertBuffers& operator=(const ExpertBuffers&) = delete;

  // Whether the expert is there. Another executor may take its place at any time.
  bool holds(uint32_t layer, uint32_t expert);
  // Calls work(form): the expert's address on the device. What it puts into `stream` finds the expert there. `form`:
  // the expert on the host, which may change on return; empty where it should be there. False where it is not.
  template <class Work>
  bool use(uint32_t layer, uint32_t expert, std::span<const std::byte> form, cudaStream_t stream, const Work& work) {
    const Pinned pinned(device(), *this);
    const std::lock_guard lock(mutex_);
    Buffer* buffer = ready(layer, expert, form, stream);
    if (!buffer) return false;
    work(static_cast<const std::byte*>(buffer->data));
    used(*buffer, stream);
    return true;
  }

  // Experts that are there; for tests.
  size_t count();

  void page_out() override;
  void page_in() override {}
  size_t device_bytes() const override;

 private:
  static constexpr uint64_t nobody = ~uint64_t{0};
  static constexpr size_t least_buffers = 2;

  struct Buffer {
    std::byte* data = nullptr;
    uint64_t key = nobody;             // layer and expert
    uint64_t touched = 0;              // clock_ of its last use
    cudaEvent_t filled = nullptr;      // recorded behind its copy
    cudaEvent_t multiplied = nullptr;  // recorded behind its last product
  };
  struct Staging {
    std::byte* data = nullptr;
    cudaEvent_t read = nullptr;  // recorded behind the copy that reads it
  };

  static uint64_t key_of(uint32_t layer, uint32_t expert) { return uint64_t{layer} << 32 | expert; }
  Device& device() const;
  Buffer* ready(uint32_t layer, uint32_t expert, std::span<const std::byte> form, cudaStream_t stream);
  void used(Buffer& buffer, cudaStream_t stream);
  // Takes the memory of a buffer as its own.
  void add(std::byte* data);
  size_t oldest();
  void forget_if_told();
  void free(Buffer& buffer) noexcept;
  void free_all() noexcept;

  const std::shared_ptr<CudaDevice> device_;
  const std::shared_ptr<experts::ExpertCache> store_;
  size_t bytes_ = 0;  // of a buffer: those of the store's largest expert
  size_t most_ = least_buffers;
  cudaStream_t copies_ = nullptr;
  mutable std::mutex mutex_;
  std::vector<Buffer> buffers_;
  std::unordered_map<uint64_t, size_t> places_;  // index into buffers_ by key
  std::array<Staging, 2> staging_;
  size_t turn_ = 0;
  uint64_t clock_ = 0, forgotten_ = 0;
};

}  // namespace continuo::cuda
