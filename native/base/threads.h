// A fork-join pool. One caller at a time runs `parallel_for`; it works too, so `threads` counts it.
// Tasks are handed out by an atomic counter: which thread runs which task is left open, and nothing may depend on it.
//
// The caller never waits for a worker that has not begun: on a busy machine a worker may get no CPU for milliseconds,
// and then the caller simply does all the tasks itself. So a job is a door:
//
//   caller:  fill in the job ─▶ open ─▶ take tasks ─▶ close ─▶ wait until nobody is inside
//   worker:  see an open door ─▶ enter (fails once it is closed) ─▶ take tasks ─▶ leave
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace continuo {

// Sets rounding and the treatment of denormals of the calling thread to IEEE's defaults. A thread inherits them from
// the one that made it, and another library may have changed them there; our bits must not follow.
void use_default_arithmetic();

class ThreadPool {
 public:
  explicit ThreadPool(size_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  size_t threads() const { return workers_.size() + 1; }

  // Calls body(i) for every i in [0, tasks), returns when all are done. `body` must not throw.
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

  // The current job. Written only while the door is closed and nobody is inside.
  Call call_ = nullptr;
  const void* context_ = nullptr;
  size_t tasks_ = 0;

  // Bits 32…63: the job's number. Bit 31: the door is open. Bits 0…30: workers inside.
  alignas(64) std::atomic<uint64_t> door_{0};
  alignas(64) std::atomic<size_t> next_{0};
  alignas(64) std::atomic<uint32_t> sleepers_{0};
  std::atomic<uint32_t> alarm_{0};
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> workers_;
};

}  // namespace continuo
