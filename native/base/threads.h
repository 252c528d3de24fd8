// A fork-join thread pool. One caller at a time runs `parallel_for`. The caller takes tasks too, so `threads` counts
// it. Threads take tasks from an atomic counter. Which thread runs which task is not defined, and no result may depend
// on it.
//
// The caller never waits for a worker that has not started: on a busy machine a worker may get no CPU for milliseconds,
// and the caller alone is faster then. So workers join a job only while it is open:
//
//   caller:  write the job ─▶ open it ─▶ take tasks ─▶ close it ─▶ wait until no worker is inside
//   worker:  see an open job ─▶ join (fails once the job is closed) ─▶ take tasks ─▶ leave
//
// One atomic word, `door_`, has the job's number, whether it is open, and how many workers are inside. So closing a job
// and joining it cannot overlap.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace continuo {

// Sets the rounding mode and the treatment of subnormals of the calling thread to the defaults of IEEE 754. A new
// thread inherits both from its creator, where another library may have changed them; results must not depend on that.
void use_default_arithmetic();

class ThreadPool {
 public:
  explicit ThreadPool(size_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  size_t threads() const { return workers_.size() + 1; }

  // Calls body(i) for every i in [0, tasks), and returns when all calls have returned. `body` must not throw.
  template <class Body> void parallel_for(size_t tasks, const Body& body) {
    if (tasks <= 1 || workers_.empty()) {
      for (size_t i = 0; i < tasks; ++i) body(i);
      return;
    }
    run(tasks, [](const void* context, size_t i) { (*static_cast<const Body*>(context))(i); }, &body);
  }

 private:
  using Call = void (*)(const void* context, size_t index);
  void run(size_t tasks, Call call, const void* context);
  void stop();
  void worker();
  bool wait_for_door(uint64_t seen);
  void take_tasks();

  // The current job. Written only while the door is closed and no worker is inside.
  Call call_ = nullptr;
  const void* context_ = nullptr;
  size_t tasks_ = 0;

  // Bits 32…63: the job's number. Bit 31: the door is open. Bits 0…30: workers inside.
  alignas(64) std::atomic<uint64_t> door_{0};
  alignas(64) std::atomic<size_t> next_{0};  // the next task
  alignas(64) std::atomic<uint32_t> sleepers_{0};
  std::atomic<uint32_t> alarm_{0};  // sleepers wait for this number to change
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> workers_;
};

}  // namespace continuo
