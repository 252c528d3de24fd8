// Memory: owns a block of aligned, zeroed bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <sys/mman.h>

namespace continuo {

// An aligned block whose freed memory can serve the next block of the same size. aligned_alloc of glibc (2.36 and
// before) looks for a hole that is larger by the alignment, so it never reuses the hole of an equal block: a process
// that made and freed contexts grew by almost every one. `bytes` is a multiple of `alignment`, a power of two that is
// at least the size of a pointer. Throws std::bad_alloc.
inline std::byte* allocate_aligned(size_t bytes, size_t alignment) {
#ifdef __SANITIZE_ADDRESS__
  // Under a sanitizer the block must end where the allocation ends, so that an access beyond its end is reported.
  void* block = std::aligned_alloc(alignment, bytes);
  if (!block) throw std::bad_alloc();
  return static_cast<std::byte*>(block);
#else
  if (bytes > SIZE_MAX - 2 * alignment) throw std::bad_alloc();
  void* block = std::malloc(bytes + alignment);
  if (!block) throw std::bad_alloc();
  // malloc returns multiples of a pointer's size, so there is always room for a pointer before the aligned address.
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

// Asks for huge pages where the system has them: fewer faults while memory is filled, and fewer misses of the TLB in
// every pass over it. A refusal changes nothing but that.
inline void prefer_huge_pages([[maybe_unused]] void* data, [[maybe_unused]] size_t bytes) noexcept {
#ifdef MADV_HUGEPAGE
  (void)::madvise(data, bytes, MADV_HUGEPAGE);
#endif
}

class Memory {
 public:
  Memory() = default;
  explicit Memory(size_t bytes, size_t alignment = 64) : size_(bytes) {
    const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    if (rounded == 0) return;
    data_.reset(allocate_aligned(rounded, alignment));  // the engine and the binding catch std::bad_alloc
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

// Makes room for so many bytes. Where there was less, what lay there is gone.
inline void grow(Memory& memory, size_t bytes) {
  if (memory.size() < bytes) memory = Memory(bytes);
}

// Zeroed pages that are read-only once they are sealed: a stray store then ends the process instead of changing a
// weight. Large ones are huge pages where the system has them.
class SealedMemory {
 public:
  // Throws std::bad_alloc.
  explicit SealedMemory(size_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    // The system aligns the block where it can be huge pages.
    void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<std::byte*>(data);
    if (bytes >= huge) prefer_huge_pages(data_, bytes);
  }
  SealedMemory(const SealedMemory&) = delete;
  SealedMemory& operator=(const SealedMemory&) = delete;
  ~SealedMemory() {
    if (data_) ::munmap(data_, bytes_);
  }

  std::byte* data() { return data_; }
  // A refusal of the system is ignored: the weights are correct, only unprotected.
  void seal() {
    if (data_) (void)::mprotect(data_, bytes_, PROT_READ);
  }

 private:
  static constexpr size_t huge = size_t{1} << 21;
  size_t bytes_;
  std::byte* data_ = nullptr;
};

}  // namespace continuo
