// Device: the memory where a model's numbers lie, and the executor that computes with them. Graph, plan, model, context
// and binding work with any device: they own blocks of its memory and copy bytes in and out. Only the device's own
// executor reads those bytes in place.
//
// The contexts of a model may need more memory than its device has. Then the device pages idle contexts out to the
// host's memory. Code that is about to touch a context pins it, which pages it in: see Pageable.
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
struct ListRows;

// Memory ran out, or the device stopped working. Like std::bad_alloc it may be thrown wherever memory is taken. The
// engine (guarded(), engine.cc) and the binding catch it. The message is a whole sentence.
class DeviceError : public std::exception {
 public:
  explicit DeviceError(std::string message) : message_(std::move(message)) {}
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  std::string message_;
};

// An object whose device memory can be paged out while it is not pinned. Only the device calls these functions.
class Pageable {
 public:
  virtual ~Pageable() = default;
  // Moves all its bytes to the host's memory, and back. The bits do not change.
  virtual void page_out() = 0;
  virtual void page_in() = 0;
  // Bytes that it takes on the device when it is paged in.
  virtual size_t device_bytes() const = 0;
};

// A contiguous range of bytes on the device.
struct Piece {
  const std::byte* data;
  size_t bytes;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string_view name() const = 0;  // "cpu", "cuda"
  // The functions that the runtime computes on the host with every device.
  virtual const HostKernels& host_kernels() const = 0;
  // Whether its executor can run the op. A model with any other op is refused when it is loaded.
  virtual bool runs(Op op) const = 0;
  // Whether an error has ended the device. Then every call throws DeviceError, and the contents of its memory are gone.
  virtual bool lost() const { return false; }

  // Zeroed memory, aligned to a cache line. Throws DeviceError or std::bad_alloc.
  virtual std::byte* allocate(size_t bytes) = 0;
  // The same for memory that is written before anything reads it: it need not be zeroed.
  virtual std::byte* allocate_unwritten(size_t bytes) { return allocate(bytes); }
  virtual void release(std::byte* data, size_t bytes) noexcept = 0;
  // Whether its memory is the host's, which then may be written without `upload`.
  virtual bool in_host_memory() const { return false; }
  // A device whose memory is the host's, for tables that only the host reads; null: this one is such a device.
  virtual std::shared_ptr<Device> host_device() const { return nullptr; }
  // Host memory for the bytes that are paged out.
  virtual std::byte* allocate_host(size_t bytes) = 0;
  virtual void release_host(std::byte* data) noexcept = 0;
  virtual void page_out(std::byte* host, const std::byte* from, size_t bytes) = 0;
  virtual void page_in(std::byte* to, const std::byte* host, size_t bytes) = 0;

  // Copies from the host, to the host (the pieces one after the other), and within the device. The copy is complete on
  // return.
  virtual void upload(std::byte* to, const std::byte* from, size_t bytes) = 0;
  virtual void download(std::byte* to, std::span<const Piece> pieces) = 0;
  virtual void copy(std::byte* to, const std::byte* from, size_t bytes) = 0;
  // Sets n elements to the number of `type` nearest to `value`.
  virtual void fill(std::byte* to, Type type, size_t n, double value) = 0;
  // Whether all f32 of these pieces are finite.
  virtual bool finite(std::span<const Piece> pieces) = 0;

  // Lays rows of a list (list_rows.h), once no step uses what they lie in. They are there for every later call of the
  // device and every step that begins later; on return the host's memory that they lie in may change.
  virtual void lay(const ListRows& rows, ThreadPool& pool) = 0;

  // Moves a constant, which was packed in the host's memory, into the device's memory.
  virtual void adopt(Constant& constant) = 0;
  virtual std::unique_ptr<Executor> executor(std::shared_ptr<const Model> model, ThreadPool& pool,
                                             const ExecutorOptions& options) = 0;

  // Between enter() and leave(), memory that the device gave out stays valid to touch, page-locked host memory
  // included, even if the device is lost meanwhile. The pair counts for the calling thread and may be nested.
  virtual void enter() noexcept {}
  virtual void leave() noexcept {}

  // Tells the device of an object that it may page out, and that the object goes away.
  virtual void enlist(Pageable&) {}
  virtual void dismiss(Pageable&) {}
  // Pages the object in where it was paged out, and keeps it on the device until unpin() was called as often as pin().
  // False where there is no room beside the objects that are pinned now. Throws DeviceError where the object would not
  // fit even alone.
  virtual bool pin(Pageable&) { return true; }
  // A ticket that opens when the object can be pinned, where its bytes are still on their way; else null. The scheduler
  // asks before it pins.
  virtual std::shared_ptr<Ticket> awaited(Pageable&) { return nullptr; }
  virtual void unpin(Pageable&) {}
};

// Keeps an object pinned during its own lifetime.
class Pinned {
 public:
  // Throws DeviceError where the device has no room for the object now.
  Pinned(Device& device, Pageable& pageable);
  ~Pinned() { device_.unpin(pageable_); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

 private:
  Device& device_;
  Pageable& pageable_;
};

// Calls enter() and leave() around its own lifetime.
class InUse {
 public:
  explicit InUse(std::shared_ptr<Device> device) : device_(std::move(device)) { device_->enter(); }
  ~InUse() { device_->leave(); }
  InUse(const InUse&) = delete;
  InUse& operator=(const InUse&) = delete;

 private:
  std::shared_ptr<Device> device_;
};

// Owns a block of a device's memory, [size] bytes.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(std::shared_ptr<Device> device, size_t bytes) : device_(std::move(device)), size_(bytes) {
    if (size_ > 0) data_ = device_->allocate(size_);
  }
  // Memory that is yet to be written.
  static DeviceMemory unwritten(std::shared_ptr<Device> device, size_t bytes) {
    DeviceMemory out;
    out.device_ = std::move(device);
    if (bytes > 0) out.data_ = out.device_->allocate_unwritten(bytes);
    out.size_ = bytes;
    return out;
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
  std::byte* paged_ = nullptr;  // the bytes on the host while paged out; data_ is null then
  size_t size_ = 0;
};

}  // namespace continuo
