#include "backends/cuda/residency.h"

#include <algorithm>

namespace continuo::cuda {

void Residency::enlist(Pageable& pageable) {
  const std::lock_guard lock(mutex_);
  entries_[&pageable] = {0, false, ++clock_};
}

void Residency::dismiss(Pageable& pageable) {
  const std::lock_guard lock(mutex_);
  entries_.erase(&pageable);
}

bool Residency::pin(Pageable& pageable) {
  const std::lock_guard lock(mutex_);
  auto& entry = entries_.at(&pageable);
  entry.used = ++clock_;
  ++entry.pins;
  if (!entry.out) return true;
  try {
    pageable.page_in();
    entry.out = false;
    return true;
  } catch (const DeviceError&) {
    --entry.pins;
    // A part of the context may have been paged in.
    pageable.page_out();
    const bool others =
        std::any_of(entries_.begin(), entries_.end(), [](const auto& other) { return other.second.pins > 0; });
    if (!others) throw;
    return false;
  }
}

void Residency::unpin(Pageable& pageable) {
  const std::lock_guard lock(mutex_);
  if (const auto found = entries_.find(&pageable); found != entries_.end()) --found->second.pins;
}

bool Residency::make_room(const std::function<bool()>& take) {
  const std::lock_guard lock(mutex_);
  while (!take()) {
    if (!page_one_out()) return false;
  }
  return true;
}

bool Residency::page_one_out() {
  auto oldest = entries_.end();
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    const auto& [pins, out, used] = entry->second;
    if (pins > 0 || out || entry->first->device_bytes() == 0) continue;
    if (oldest == entries_.end() || used < oldest->second.used) oldest = entry;
  }
  if (oldest == entries_.end()) return false;
  // Set before: page_out() may fail after a part of the context has left.
  oldest->second.out = true;
  oldest->first->page_out();
  return true;
}

size_t Residency::paged_out() const {
  const std::lock_guard lock(mutex_);
  return static_cast<size_t>(
      std::count_if(entries_.begin(), entries_.end(), [](const auto& entry) { return entry.second.out; }));
}

}  // namespace continuo::cuda
