// The memory of the cache's records: pages of their own, used again and again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace continuo::experts {

// To be called by one thread at a time.
class Buffers {
 public:
  // Two buffers of `largest` bytes stand in reserve for the time when the system has no more; reserved() says whether
  // they could be had. Until they are used they are address space only. `may`: for tests, false where none of so many
  // bytes can be had; may be null.
  Buffers(size_t largest, std::function<bool(size_t)> may);
  ~Buffers();
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  bool reserved() const { return reserve_.size() == reserve_count; }
  // `bytes`, a multiple of 4096, is aligned to 4096. Null: there is no memory.
  std::byte* get(size_t bytes);
  void put(std::byte* data);

 private:
  static constexpr size_t reserve_count = 2;
  struct Block {
    std::byte* data;
    size_t bytes;
  };
  std::byte* map(size_t bytes);

  const size_t largest_;
  const std::function<bool(size_t)> may_;
  std::vector<std::byte*> reserve_;
  std::vector<Block> lent_;  // sorted by address
  std::vector<Block> free_;
};

}  // namespace continuo::experts
