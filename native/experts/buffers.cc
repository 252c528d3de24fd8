#include "experts/buffers.h"

#include <algorithm>
#include <sys/mman.h>

namespace continuo::experts {

namespace {

constexpr size_t huge = size_t{2} << 20;

}  // namespace

Buffers::Buffers(size_t largest, std::function<bool(size_t)> may) : largest_(largest), may_(std::move(may)) {
  for (size_t i = 0; i < reserve_count; ++i)
    if (std::byte* data = map(largest)) reserve_.push_back(data);
}

Buffers::~Buffers() {
  for (std::byte* data : reserve_) ::munmap(data, largest_);
  for (const auto& each : lent_) ::munmap(each.data, each.bytes);
  for (const auto& each : free_) ::munmap(each.data, each.bytes);
}

std::byte* Buffers::map(size_t bytes) {
  if (may_ && !may_(bytes)) return nullptr;
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return nullptr;
#ifdef MADV_HUGEPAGE
  // A read past the page cache pins each page of its buffer: of large pages there are fewer.
  if (bytes >= huge) ::madvise(data, bytes, MADV_HUGEPAGE);
#endif
  return static_cast<std::byte*>(data);
}

std::byte* Buffers::get(size_t bytes) {
  Block block{nullptr, bytes};
  const auto same = std::find_if(free_.begin(), free_.end(), [&](const Block& each) { return each.bytes == bytes; });
  if (same != free_.end()) {
    block = *same;
    *same = free_.back();
    free_.pop_back();
  } else {
    // Buffers of another size are of no use now, and would add to what is used.
    for (const auto& each : free_) ::munmap(each.data, each.bytes);
    free_.clear();
    block.data = map(bytes);
    if (!block.data && !reserve_.empty() && bytes <= largest_) {
      block = {reserve_.back(), largest_};
      reserve_.pop_back();
    }
  }
  if (!block.data) return nullptr;
  const auto at = std::lower_bound(lent_.begin(), lent_.end(), block.data,
                                   [](const Block& each, const std::byte* data) { return each.data < data; });
  lent_.insert(at, block);
  return block.data;
}

void Buffers::put(std::byte* data) {
  const auto at = std::lower_bound(lent_.begin(), lent_.end(), data,
                                   [](const Block& each, const std::byte* found) { return each.data < found; });
  const Block block = *at;
  lent_.erase(at);
  if (block.bytes == largest_ && reserve_.size() < reserve_count)
    reserve_.push_back(data);
  else
    free_.push_back(block);
}

}  // namespace continuo::experts
