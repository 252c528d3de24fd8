#include "experts/buffers.h"

#include <algorithm>
#include <cstdint>
#include <sys/mman.h>

#include "base/memory.h"

namespace continuo::experts {

namespace {

constexpr size_t huge = size_t{2} << 20, chunk_bytes = size_t{32} << 20;
constexpr size_t reserve_count = 2;

}  // namespace

Buffers::Buffers(size_t largest, size_t most, std::function<bool(size_t)> may)
    : largest_(largest), most_(most), may_(std::move(may)) {
  reserved_ = map(reserve_count * largest);
  for (size_t i = 0; reserved_ && i < reserve_count; ++i) reserve_.push_back(reserved_ + i * largest);
}

Buffers::~Buffers() {
  for (const auto& each : mappings_) ::munmap(each.data, each.bytes);
}

// At a multiple of a large page, if it holds any.
std::byte* Buffers::map(size_t bytes) {
  if (may_ && !may_(bytes)) return nullptr;
  const size_t more = bytes >= huge ? huge : 0;
  void* data = ::mmap(nullptr, bytes + more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return nullptr;
  mappings_.push_back({data, bytes + more});
  if (more == 0) return static_cast<std::byte*>(data);
  prefer_huge_pages(data, bytes + more);
  return static_cast<std::byte*>(data) + (huge - reinterpret_cast<uintptr_t>(data) % huge) % huge;
}

Buffers::Size& Buffers::size_of(size_t bytes) {
  const auto found = std::find_if(sizes_.begin(), sizes_.end(), [&](const Size& each) { return each.bytes == bytes; });
  return found != sizes_.end() ? *found : sizes_.emplace_back(Size{bytes, {}, {}});
}

void Buffers::give_pages_back() {
  for (auto& [bytes, used, fresh] : sizes_) {
    for (std::byte* data : used) ::madvise(data, bytes, MADV_DONTNEED);
    fresh.insert(fresh.end(), used.begin(), used.end());
    used.clear();
  }
}

std::byte* Buffers::get(size_t bytes) {
  Size& size = size_of(bytes);
  const auto from = [](std::vector<std::byte*>& free) {
    std::byte* data = free.back();
    free.pop_back();
    return data;
  };
  if (!size.used.empty()) return from(size.used);
  give_pages_back();
  if (size.fresh.empty()) {
    size_t count = std::max<size_t>(1, std::min(chunk_bytes, most_) / bytes);
    std::byte* data = map(count * bytes);
    if (!data && count > 1) data = map((count = 1) * bytes);
    // The lowest addresses are lent first.
    for (size_t i = count; data && i > 0; --i) size.fresh.push_back(data + (i - 1) * bytes);
  }
  if (!size.fresh.empty()) return from(size.fresh);
  return reserve_.empty() || bytes > largest_ ? nullptr : from(reserve_);
}

void Buffers::put(std::byte* data, size_t bytes) {
  if (data >= reserved_ && data < reserved_ + reserve_count * largest_)
    reserve_.push_back(data);
  else
    size_of(bytes).used.push_back(data);
}

}  // namespace continuo::experts
