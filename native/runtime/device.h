// Device: where a model's numbers lie, and who computes with them. Graph, plan, model, context and binding do not know
// which it is: they hold memory of the device and move bytes in and out of it; only the device's own executor looks at
// them in place.
//
// A device's memory may be smaller than what its contexts need together. Then those at rest are paged out to the host's
// memory, and whoever is about to touch a context pins it, which brings it back: see Pageable.
#pragma once

#include <cstddef>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "base/type.h"
#include "graph/graph.h"

namespace continuo {

class Executor;
class Model;
class ThreadPool;
class Ticket;
struct Constant;
struct ExecutorOptions;
struct HostKernels;

// Memory ran out, or the device stopped working. Thrown, as std::bad_alloc is, from wherever memory is needed; caught
// where jobs are run and at the binding. The message is a whole sentence.
class DeviceError : public std::exception {
 public:
  explicit DeviceError(std::string message) : message_(std::move(message)) {}
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  std::string message_;
};

// What can be paged out while nobody pins it. All but `held` belongs to the device.
class Pageable {
 public:
  virtual ~Pageable() = default;
  // Moves everything to the host's memory, and back; the bits are the same.
  virtual void page_out() = 0;
  virtual void page_in() = 0;
  virtual size_t device_bytes() const = 0;
};

// Numbers that lie side by side.
struct Piece {
  const std::byte* data;
  size_t bytes;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string_view name() const = 0;  // "cpu", "cuda"
  // What is computed on the host, whatever the device.
  virtual const HostKernels& host_kernels() const = 0;
  // Whether its executor has the operation. A model with another one is refused when it is loaded.
  virtual bool runs(Op op) const = 0;
  // Whether an error has ended it: every call throws DeviceError now, and what lay on it is gone.
  virtual bool lost() const { return false; }

  // Zeroed, at a cache line. Throws DeviceError or std::bad_alloc.
  virtual std::byte* allocate(size_t bytes) = 0;
  virtual void release(std::byte* data, size_t bytes) noexcept = 0;
  // Memory of the host that the device moves bytes to and from, for what is paged out.
  virtual std::byte* allocate_host(size_t bytes) = 0;
  virtual void release_host(std::byte* data) noexcept = 0;
  virtual void page_out(std::byte* host, const std::byte* from, size_t bytes) = 0;
  virtual void page_in(std::byte* to, const std::byte* host, size_t bytes) = 0;

  // From the host, to the host (pieces one after the other), and within the device; done on return.
  virtual void upload(std::byte* to, const std::byte* from, size_t bytes) = 0;
  virtual void download(std::byte* to, std::span<const Piece> pieces) = 0;
  virtual void copy(std::byte* to, const std::byte* from, size_t bytes) = 0;
  // n elements with the value nearest to `value`.
  virtual void fill(std::byte* to, Type type, size_t n, double value) = 0;
  // Whether these f32 are all finite.
  virtual bool finite(std::span<const Piece> pieces) = 0;

  // Takes a constant that was packed in the host's memory.
  virtual void adopt(Constant& constant) = 0;
  virtual std::unique_ptr<Executor> executor(std::shared_ptr<const Model> model, ThreadPool& pool,
                                             const ExecutorOptions& options) = 0;

  // Between these nothing that the device gave out goes away, pinned memory among it, even where the device is lost
  // meanwhile. May be nested, and is the calling thread's.
  virtual void enter() noexcept {}
  virtual void leave() noexcept {}

  virtual void enlist(Pageable&) {}
  virtual void dismiss(Pageable&) {}
  // Brings it back where it was paged out, and keeps it until it is unpinned as often as it was pinned. False where
  // there is no room beside what is pinned already; throws DeviceError where there would be none even alone.
  virtual bool pin(Pageable&) { return true; }
  // What has to be there before it can be pinned, where that is still on its way; else null. Asked by the engine before
  // it pins one.
  virtual std::shared_ptr<Ticket> awaited(Pageable&) { return nullptr; }
  virtual void unpin(Pageable&) {}
};

// Pins for as long as it lives.
class Pinned {
 public:
  // Throws DeviceError where there is no room for it.
  Pinned(Device& device, Pageable& pageable);
  ~Pinned() { device_.unpin(pageable_); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

 private:
  Device& device_;
  Pageable& pageable_;
};

// Uses the device for as long as it lives.
class InUse {
 public:
  explicit InUse(std::shared_ptr<Device> device) : device_(std::move(device)) { device_->enter(); }
  ~InUse() { device_->leave(); }
  InUse(const InUse&) = delete;
  InUse& operator=(const InUse&) = delete;

 private:
  std::shared_ptr<Device> device_;
};

// A block of a device's memory, which frees itself.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(std::shared_ptr<Device> device, size_t bytes) : device_(std::move(device)), size_(bytes) {
    if (size_ > 0) data_ = device_->allocate(size_);
  }
  DeviceMemory(DeviceMemory&& other) noexcept { *this = std::move(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    free();
    device_ = std::move(other.device_);
    data_ = std::exchange(other.data_, nullptr);
    paged_ = std::exchange(other.paged_, nullptr);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }
  ~DeviceMemory() { free(); }

  size_t size() const { return size_; }
  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }

  void page_out() {
    if (size_ == 0 || paged_) return;
    std::byte* host = device_->allocate_host(size_);
    device_->page_out(host, data_, size_);
    device_->release(std::exchange(data_, nullptr), size_);
    paged_ = host;
  }
  void page_in() {
    if (!paged_) return;
    data_ = device_->allocate(size_);
    device_->page_in(data_, paged_, size_);
    device_->release_host(std::exchange(paged_, nullptr));
  }

 private:
  void free() {
    if (data_) device_->release(std::exchange(data_, nullptr), size_);
    if (paged_) device_->release_host(std::exchange(paged_, nullptr));
    size_ = 0;
  }

  std::shared_ptr<Device> device_;
  std::byte* data_ = nullptr;
  std::byte* paged_ = nullptr;  // on the host instead
  size_t size_ = 0;
};

}  // namespace continuo
