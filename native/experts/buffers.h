// The memory of the cache's records.
//
// It comes from the system in chunks of many records, in large pages where there are such: a read past the page cache
// hands the disk each page of its buffer, and of small pages that is a third of the time. A chunk stays mapped.
// When a buffer of one size is needed and only buffers of another size are free, the free ones give their pages back to
// the system; their addresses stay reserved.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace continuo::experts {

// To be called by one thread at a time.
class Buffers {
 public:
  // `most`: bytes of buffers that are needed at once. Two buffers of `largest` bytes stand in reserve for the time when
  // the system has no more; reserved() says whether they could be had. Until they are used they are addresses only.
  // `may`: for tests, false where none of so many bytes can be had; may be null.
  Buffers(size_t largest, size_t most, std::function<bool(size_t)> may);
  ~Buffers();
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  bool reserved() const { return !reserve_.empty(); }
  // `bytes`, a multiple of 4096, is aligned to 4096. Null: there is no memory.
  std::byte* get(size_t bytes);
  void put(std::byte* data, size_t bytes);

 private:
  struct Mapping {
    void* data;
    size_t bytes;
  };
  // Buffers of one size that are free.
  struct Size {
    size_t bytes;
    std::vector<std::byte*> used, fresh;  // with pages, and without
  };
  std::byte* map(size_t bytes);
  Size& size_of(size_t bytes);
  void give_pages_back();

  const size_t largest_, most_;
  const std::function<bool(size_t)> may_;
  std::vector<Mapping> mappings_;
  std::byte* reserved_ = nullptr;    // where the reserve lies
  std::vector<std::byte*> reserve_;  // of it, what is free
  std::vector<Size> sizes_;          // as many as layers differ in
};

}  // namespace continuo::experts
