#include "experts/disk.h"

#include <cstring>

namespace continuo::experts {

Result<std::unique_ptr<Disk>> open_disk(Backend& backend, size_t depth) {
  if (backend == Backend::mapped) return mapped_disk();
  if (backend != Backend::threads) {
    int why = 0;
    if (auto disk = ring_disk(depth, why)) {
      backend = Backend::io_uring;
      return disk;
    }
    if (backend == Backend::io_uring)
      return Error{Code::unavailable,
                   text("The kernel refuses io_uring: ", std::strerror(why), ". Read with threads.")};
  }
  backend = Backend::threads;
  return thread_disk(depth);
}

}  // namespace continuo::experts
