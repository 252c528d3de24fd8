// Which contexts lie in the device's memory. Those that nobody holds may be paged out to the host, the one unused for
// longest first, where the memory is wanted for something else.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <unordered_map>

#include "runtime/device.h"

namespace continuo::cuda {

class Residency {
 public:
  void enlist(Pageable& pageable);
  void dismiss(Pageable& pageable);
  // As Device::hold.
  bool pin(Pageable& pageable);
  void unpin(Pageable& pageable);
  // Calls take() until it succeeds, and pages somebody out after each failure. False when nobody is left.
  bool make_room(const std::function<bool()>& take);
  size_t paged_out() const;

 private:
  struct Entry {
    size_t held = 0;
    bool out = false;
    uint64_t used = 0;  // when it was last held
  };
  bool page_one_out();

  // Paging in takes memory, for which others may have to leave: one thread at a time, again and again.
  mutable std::recursive_mutex mutex_;
  std::unordered_map<Pageable*, Entry> entries_;
  uint64_t clock_ = 0;
};

}  // namespace continuo::cuda
