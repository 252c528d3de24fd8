#include "base/arena.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>
#include <sys/mman.h>

#include "base/memory.h"

namespace continuo {

namespace {

// A page of every system that we build for, or a whole number of them; and what a huge page is on most.
constexpr size_t page = size_t{64} << 10, huge_page = size_t{2} << 20;
// Address space of a region, or one block where that is more.
constexpr size_t region_bytes = size_t{32} << 20;
// Bytes of free blocks whose pages the process keeps, so that the next block of that size faults none in.
constexpr size_t most_kept = size_t{8} << 20;

size_t rounded(size_t bytes, size_t unit) {
  if (bytes > SIZE_MAX - unit) throw std::bad_alloc();
  return (bytes + unit - 1) / unit * unit;
}

// Address space that begins with a huge page. Throws std::bad_alloc.
std::byte* map_region(size_t bytes) {
  if (bytes > SIZE_MAX - huge_page) throw std::bad_alloc();
  void* all = ::mmap(nullptr, bytes + huge_page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) throw std::bad_alloc();
  auto* begin = static_cast<std::byte*>(all);
  const size_t before = rounded(reinterpret_cast<uintptr_t>(all), huge_page) - reinterpret_cast<uintptr_t>(all);
  if (before > 0) ::munmap(begin, before);
  ::munmap(begin + before + bytes, huge_page - before);
  prefer_huge_pages(begin + before, bytes);
  return begin + before;
}

// Gives the pages back; they are zero when they are touched again. False where the system keeps what lies in them, as
// it does with locked memory, and everywhere but on Linux.
bool returned([[maybe_unused]] std::byte* data, [[maybe_unused]] size_t bytes) noexcept {
#ifdef __linux__
  return ::madvise(data, bytes, MADV_DONTNEED) == 0;
#else
  return false;
#endif
}

}  // namespace

Arena::~Arena() {
  for (auto& [size, regions] : sizes_) {
    for (auto& [data, region] : regions) ::munmap(data, region.bytes);
  }
}

Arena::Regions::iterator Arena::open(Regions& regions, size_t size) {
  Region region{rounded(std::max(region_bytes, size), huge_page), std::max<size_t>(region_bytes / size, 1), 0, {}};
  region.free.reserve(region.capacity);
  // The node first: nothing that throws may come between the mapping and its owner.
  Regions one;
  one.emplace(nullptr, std::move(region));
  auto node = one.extract(one.begin());
  node.key() = map_region(node.mapped().bytes);
  return regions.insert(std::move(node)).position;
}

void Arena::close(Regions& regions, Regions::iterator region, size_t size) noexcept {
  for (const auto& each : region->second.free) kept_ -= each.written ? size : 0;
  ::munmap(region->first, region->second.bytes);
  regions.erase(region);
}

std::byte* Arena::take(size_t bytes, bool zeroed) {
  const size_t size = rounded(bytes, page);
  bool written = false;
  std::byte* data = nullptr;
  {
    const std::lock_guard lock(mutex_);
    Regions& regions = sizes_[size];
    auto at = std::find_if(regions.begin(), regions.end(), [](const auto& each) { return !each.second.full(); });
    if (at == regions.end()) at = open(regions, size);
    Region& region = at->second;
    if (region.free.empty()) {
      data = at->first + region.begun++ * size;
    } else {
      data = region.free.back().data, written = region.free.back().written;
      region.free.pop_back();
      kept_ -= written ? size : 0;
    }
  }
  if (written && zeroed) std::memset(data, 0, bytes);
  return data;
}

void Arena::give(std::byte* data, size_t bytes) noexcept {
  const size_t size = rounded(bytes, page);
  const std::lock_guard lock(mutex_);
  Regions& regions = sizes_.find(size)->second;
  const auto at = std::prev(regions.upper_bound(data));
  Region& region = at->second;
  if (region.live() == 1) {
    close(regions, at, size);
    if (regions.empty()) sizes_.erase(size);
    return;
  }
  const bool written = kept_ + size <= most_kept || !returned(data, size);
  kept_ += written ? size : 0;
  region.free.push_back({data, written});
}

size_t Arena::reserved() const {
  const std::lock_guard lock(mutex_);
  size_t bytes = 0;
  for (const auto& [size, regions] : sizes_) {
    for (const auto& [data, region] : regions) bytes += region.bytes;
  }
  return bytes;
}

}  // namespace continuo
