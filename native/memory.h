// Blocks of aligned memory, zeroed, that free themselves.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

namespace continuo {

class Memory {
 public:
  Memory() = default;
  explicit Memory(size_t bytes, size_t alignment = 64) : size_(bytes) {
    const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    if (rounded == 0) return;
    data_.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, rounded)));
    if (!data_) throw std::bad_alloc();  // caught where jobs are run and at the binding
    std::memset(data_.get(), 0, rounded);
  }

  size_t size() const { return size_; }
  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  template <class T>
  T* as() { return reinterpret_cast<T*>(data_.get()); }
  template <class T>
  const T* as() const { return reinterpret_cast<const T*>(data_.get()); }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t size_ = 0;
};

// Whole pages, which nobody can write once they are sealed: a stray store ends the process instead of changing a weight.
class SealedMemory {
 public:
  explicit SealedMemory(size_t bytes) : pages_((bytes + page() - 1) / page() * page()), memory_(bytes, page()) {}
  SealedMemory(const SealedMemory&) = delete;
  SealedMemory& operator=(const SealedMemory&) = delete;
  ~SealedMemory() { protect(PROT_READ | PROT_WRITE); }

  Memory& memory() { return memory_; }
  void seal() { protect(PROT_READ); }

 private:
  static size_t page() {
    static const auto bytes = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    return bytes;
  }
  // Where the system refuses, the weights stay as they are.
  void protect(int access) {
    if (pages_ > 0) (void)::mprotect(memory_.data(), pages_, access);
  }

  size_t pages_;
  Memory memory_;
};

}  // namespace continuo
