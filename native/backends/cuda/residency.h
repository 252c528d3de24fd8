// Residency: which contexts lie in the device's memory. Where other memory is needed, contexts that are not pinned are
// paged out to the host, the least recently used first.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <unordered_map>

#include "runtime/model/device.h"

namespace continuo::cuda {

class Residency {
 public:
  void enlist(Pageable& pageable);
  void dismiss(Pageable& pageable);
  // As Device::pin.
  bool pin(Pageable& pageable);
  void unpin(Pageable& pageable);
  // Calls take() until it succeeds, and pages one context out after each failure. False when none is left to page out.
  bool make_room(const std::function<bool()>& take);
  size_t paged_out() const;

 private:
  struct Entry {
    size_t pins = 0;
    bool out = false;   // paged out, wholly or in part
    uint64_t used = 0;  // clock_ when it was last pinned
  };
  bool page_one_out();

  // Recursive: paging a context in takes memory, for which make_room() may page out another one.
  mutable std::recursive_mutex mutex_;
  std::unordered_map<Pageable*, Entry> entries_;
  uint64_t clock_ = 0;
};

}  // namespace continuo::cuda
