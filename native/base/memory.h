// Blocks of aligned memory, zeroed, that free themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <sys/mman.h>
#include <unistd.h>

namespace continuo {

// Aligned blocks that leave holes in which the next block of their size fits. aligned_alloc of glibc (2.36 and before)
// looks for a hole that is larger by the alignment and cuts it to size, so what a block leaves never serves another: a
// process whose contexts come and go grew by almost each of them. `bytes` is a multiple of `alignment`, a power of two
// that is at least a pointer's size. Throws std::bad_alloc.
inline std::byte* allocate_aligned(size_t bytes, size_t alignment) {
#ifdef __SANITIZE_ADDRESS__
  // The block is malloc's own here, so that a step beyond its end is seen.
  void* block = std::aligned_alloc(alignment, bytes);
  if (!block) throw std::bad_alloc();
  return static_cast<std::byte*>(block);
#else
  if (bytes > SIZE_MAX - 2 * alignment) throw std::bad_alloc();
  void* block = std::malloc(bytes + alignment);
  if (!block) throw std::bad_alloc();
  // malloc's addresses are multiples of a pointer's size at least, so the one before an aligned address always lies in
  // the block.
  auto* data = static_cast<std::byte*>(block) + alignment - reinterpret_cast<uintptr_t>(block) % alignment;
  std::memcpy(data - sizeof block, &block, sizeof block);
  return data;
#endif
}

inline void free_aligned(std::byte* data) noexcept {
#ifdef __SANITIZE_ADDRESS__
  std::free(data);
#else
  if (!data) return;
  void* block = nullptr;
  std::memcpy(&block, data - sizeof block, sizeof block);
  std::free(block);
#endif
}

class Memory {
 public:
  Memory() = default;
  explicit Memory(size_t bytes, size_t alignment = 64) : size_(bytes) {
    const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    if (rounded == 0) return;
    data_.reset(
        allocate_aligned(rounded, alignment));  // what it throws is caught where jobs are run and at the binding
    std::memset(data_.get(), 0, rounded);
  }

  size_t size() const { return size_; }
  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  template <class T> T* as() { return reinterpret_cast<T*>(data_.get()); }
  template <class T> const T* as() const { return reinterpret_cast<const T*>(data_.get()); }

 private:
  struct Free {
    void operator()(std::byte* p) const { free_aligned(p); }
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t size_ = 0;
};

// Whole pages, which nobody can write once they are sealed: a stray store ends the process instead of changing a
// weight.
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
