// A block of 64-byte aligned memory, zeroed, that frees itself.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

namespace continuo {

class Memory {
 public:
  Memory() = default;
  explicit Memory(size_t bytes) : size_(bytes) {
    const size_t rounded = (bytes + 63) / 64 * 64;
    if (rounded == 0) return;
    data_.reset(static_cast<std::byte*>(std::aligned_alloc(64, rounded)));
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

}  // namespace continuo
