// Large blocks of memory that come and go, in huge pages where the system has them: what walks long tables in order
// then misses the TLB less, and the CPU, which fetches ahead within a page only, fetches further.
//
// Blocks of one size lie side by side in regions of address space:
//
//   size 1.5 MB:  region ──▶ │ block │ block │ free │ block │ not touched yet … │
//                 region ──▶ …
//
// The system gives a region memory page by page, as its blocks are first written, so huge pages waste less than one
// page a region. A region is unmapped when its last block is given back. A block that is given back before that returns
// its pages at once, but for a few megabytes that the next blocks use again.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <vector>

namespace continuo {

class Arena {
 public:
  // Smaller blocks are malloc's business.
  static constexpr size_t least_bytes = size_t{256} << 10;

  Arena() = default;
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // A block of so many bytes, at least least_bytes, aligned to a page of memory; zeroed where `zeroed`. Throws
  // std::bad_alloc.
  std::byte* take(size_t bytes, bool zeroed);
  void give(std::byte* data, size_t bytes) noexcept;

  // Bytes of address space, for tests.
  size_t reserved() const;

 private:
  struct Free {
    std::byte* data;
    bool written;  // its memory is still there
  };
  struct Region {
    size_t bytes, capacity;  // of address space; blocks
    size_t begun = 0;        // blocks that were given out at least once
    std::vector<Free> free;  // of those; has room for all
    bool full() const { return free.empty() && begun == capacity; }
    size_t live() const { return begun - free.size(); }
  };
  // By address.
  using Regions = std::map<std::byte*, Region>;

  Regions::iterator open(Regions& regions, size_t size);
  void close(Regions& regions, Regions::iterator region, size_t size) noexcept;

  mutable std::mutex mutex_;
  std::map<size_t, Regions> sizes_;
  size_t kept_ = 0;  // bytes of free blocks whose memory is still there
};

}  // namespace continuo
